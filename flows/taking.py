"""The steps of taking a release in: fetched, told what it is, put in its place, registered.

Plain functions; `take_in` wires them. Each may be killed and asked again.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configuration.faults import ConfigurationError, Fault
from configuration.sources import Source
from flows.child import in_child
from flows.line import store
from flows.progress import Progress
from flows.sources import shown
from registry.adapters import adapter_fits
from registry.arrivals import Arrival
from registry.errors import FolderError, IncompatibleError, RegistryError
from registry.fingerprint import Release, fingerprint
from registry.folders import confined
from registry.incoming import MEANT, is_adapter, signature, unfinished
from registry.room import host_bytes, misfit

if TYPE_CHECKING:
    from configuration.settings import Settings
    from registry.store import Store

GPU = Path("/dev/nvidiactl")  # there is one: its memory is what counts


def releases_folder(settings: Settings, pairing: str) -> Path:
    """Where what was fetched is kept, a folder for each release."""
    return settings.home / "releases" / pairing


def partial(settings: Settings, pairing: str, arrival: Arrival) -> Path:
    """Where an arrival is fetched to; its name is hidden until it is whole."""
    return releases_folder(settings, pairing) / f".{arrival.id}.partial"


def fetch(
    settings: Settings, pairing: str, source: Source, arrival: Arrival, registry: Store
) -> dict[str, Any]:
    """The arrival as a folder that nobody writes to any more: its own, or a copy here.

    Raises FolderError for what is not whole, RegistryError for what cannot be fetched, OSError for
    a disk.
    """
    into = partial(settings, pairing, arrival)
    if source.kind == "mlflow":
        from registry.models import fetch_model

        shutil.rmtree(into, ignore_errors=True)  # where a download was cut, nobody can tell
        folder = fetch_model(registry, arrival.place, into)
    elif source.kind == "hub":
        from registry.hub import fetch_commit

        folder = fetch_commit(arrival.place, into, token=settings.hub_token)
    elif source.kind == "store":
        from registry.objects import fetch_objects

        folder = fetch_objects(arrival, into)
    elif stays(settings, pairing, source, arrival, registry):
        folder = Path(arrival.place)
    else:
        folder = copied(Path(arrival.place), into)
    check_unchanged(source, arrival)
    if why := unfinished(folder):
        raise FolderError(f"{arrival.place}: is not whole: {why}")
    return {"folder": str(folder)}


def check_unchanged(source: Source, arrival: Arrival) -> None:
    """Raises FolderError where a folder is not any more what arrived."""
    if source.kind == "folder" and signature(Path(arrival.place)) != arrival.signature:
        raise FolderError(f"{arrival.place}: was written to while it was taken in")


def changed(settings: Settings, source: Source, arrival: Arrival, registry: Store) -> bool:
    """Whether a place that can be written to shows something else by now, which arrives anew."""
    if source.kind not in ("folder", "store"):
        return False
    try:
        return all(one.id != arrival.id for one in shown(settings, source, registry))
    except (RegistryError, OSError):
        return False


def stays(
    settings: Settings, pairing: str, source: Source, arrival: Arrival, registry: Store
) -> bool:
    """Whether a folder is the release's own place: not where the next one is written over it."""
    place = settings.path(source.place)
    if arrival.pointed and not place.is_symlink():
        return False
    return all(release.uri != arrival.place for release in registry.releases(pairing))


def copied(folder: Path, into: Path) -> Path:
    """A copy of what a release is made of. Raises FolderError for a link that leads outside."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for path in sorted(folder.iterdir()):
        if path.suffix in MEANT and not path.name.startswith(".") and path.is_file():
            shutil.copy2(confined(folder, path.name), into / path.name)
    return into


def identify(
    settings: Settings,
    pairing: str,
    source: Source,
    arrival: Arrival,
    folder: Path,
    report: Progress,
) -> dict[str, Any]:
    """What the folder is as a release, and where it lies as one: an adapter is merged into its
    base. Reads all of it.

    Raises FolderError and IncompatibleError for what can be none, ConfigurationError where its base
    is not configured, ModelFolderError where it cannot fit this machine.
    """

    def progress(done: int, total: int, what: str) -> None:
        report(done, total, f"reading {what}")

    if is_adapter(folder):
        base, out = base_of(settings, pairing, source), merged(settings, pairing, arrival)
        fits = adapter_fits(base, folder)
        if not fits.ok:
            raise IncompatibleError(f"{folder}: does not fit {base}: {'; '.join(fits.reasons)}")
        told = fingerprint(base, adapter=folder, progress=progress)
        known = {one.digest: one.uri for one in store(settings).releases(pairing)}
        if told.digest in known:
            return {"folder": known[told.digest], "release": asdict(told)}
        spec = {"base": str(base), "adapter": str(folder), "out": str(out)}
        folder = in_child("merge", spec, report)
    if GPU.exists():
        beside = merged(settings, pairing, arrival).with_suffix(".fits")
        in_child("fits", {"target": str(folder), "out": str(beside)}, report)
    elif why := misfit(folder, host_bytes(), have="are there in all"):
        raise ValueError(
            f"{folder} does not fit this machine, which is to train and measure its draft: {why}. "
            "To have it served without a draft of its own, announce it with `paceline release`"
        )
    release = fingerprint(folder, progress=progress)
    check_unchanged(source, arrival)
    return {"folder": str(folder), "release": asdict(release)}


def base_of(settings: Settings, pairing: str, source: Source) -> Path:
    """The folder that the source's adapters are of."""
    named = source.base or settings.pairing(pairing).target
    base = settings.path(named)
    if not named or not (base / "config.json").is_file():
        got = f"{base}, which is no model folder" if named else "neither base nor target"
        fault = Fault("base", got, "the folder of the base of LoRA adapters", "set it")
        raise ConfigurationError(f"the source {source.place}", [fault])
    return base


def settle(
    settings: Settings, pairing: str, arrival: Arrival, found: dict[str, Any]
) -> dict[str, Any]:
    """The release in its place: what was fetched gets the name of what it is."""
    folder = Path(found["folder"])
    ours = (partial(settings, pairing, arrival), merged(settings, pairing, arrival))
    if any(folder.is_relative_to(one) for one in ours):
        final = releases_folder(settings, pairing) / found["release"]["digest"][:16]
        if not final.exists():
            os.replace(folder, final)
        folder = final
    clean(settings, pairing, arrival)
    return {"folder": str(folder)}


def clean(settings: Settings, pairing: str, arrival: Arrival) -> None:
    """Delete what was fetched and is in no place yet."""
    for left in (partial(settings, pairing, arrival), merged(settings, pairing, arrival)):
        shutil.rmtree(left, ignore_errors=True)
        for beside in left.parent.glob(f"{left.stem}.*spec.json"):
            beside.unlink()


def merged(settings: Settings, pairing: str, arrival: Arrival) -> Path:
    """Where an adapter is merged to."""
    return releases_folder(settings, pairing) / f".{arrival.id}.merged"


def register(
    settings: Settings, pairing: str, source: Source, arrival: Arrival, found: dict[str, Any]
) -> dict[str, Any]:
    """The release known to the registry; a copy of one that lies elsewhere is not kept."""
    registry, release = store(settings), Release(**found["release"])
    before = {one.digest: one.version for one in registry.releases(pairing)}
    version = registry.register_release(
        pairing,
        Path(found["folder"]),
        release,
        source=arrival.place if source.kind == "mlflow" else "",
    )
    folder = Path(found["folder"])
    if version.uri != str(folder) and folder.parent == releases_folder(settings, pairing):
        shutil.rmtree(folder, ignore_errors=True)
    newest = max(before.values(), default=0)
    return {
        "version": version.version,
        "release": release.digest,
        "folder": version.uri,
        "new": release.digest not in before,
        "back": release.digest in before and version.version < newest,
    }
