"""The registry as a serving host sees it: which pair is champion, and its files. REST only.

Needs httpx and none of MLflow, so a serving process stays small. A pair is downloaded beside its
place, every file compared with the digest in its pair.json, and renamed when all are right: what is
in place is whole, whenever the process was killed. Knows nothing of what a draft is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from registry.addresses import sayable
from registry.credentials import header
from registry.errors import (
    DigestError,
    IncompatibleError,
    ManifestError,
    NotFoundError,
    RegistryError,
    StoreError,
)
from registry.locks import locked
from registry.loopback import on_this_machine
from registry.manifest import FILE, SAFE_PAIR_ID, PairManifest, read_manifest, verify_files
from registry.versions import (
    CHAMPION,
    DRAFT_KIND,
    FORCED,
    PAIR_ID,
    RELEASE,
    ROLLED_BACK,
    VERDICT,
    PairVersion,
    as_named_now,
    check_name,
    target_name,
    unfit,
)

TIMEOUT_SECONDS = 10.0  # of connecting and between two pieces, not of a whole file
# Of a file. One that drips would else hold whoever waits: there is always a next piece.
LEAST_BYTES_A_MINUTE = 2**20
MANIFEST_LIMIT_BYTES = 50_000_000
REPORT_LIMIT_BYTES = 200_000_000
SERVED = "draft/"  # what a server needs of a pair, beside pair.json
REPORT_FILE = "report/report.json"
SOURCE = re.compile(r"models:/(m-[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class RemotePair:
    """A pair as the server's aliases and tags tell it."""

    url: str
    pairing: str
    version: int
    pair_id: str
    release: str  # digest
    draft_kind: str
    verdict: str
    forced: str  # why it was promoted without a PASS; empty when it was not
    model_id: str
    rolled_back: str  # why it was taken out of service; empty when it was not

    @property
    def unfit(self) -> str:
        """Why it is not to be served, since its alias was moved by hand; empty where it is."""
        return unfit(self.verdict, self.forced, self.rolled_back)


def champion(
    url: str, pairing: str, *, token: str | None = None, client: httpx.Client | None = None
) -> RemotePair | None:
    """The pair that the alias `champion` names; None where there is none or no such pairing.

    `StoreError` when the server is away, or the alias names a version that is no pair.
    """
    with _client(url, token, client) as asking:
        answer = _answer(
            asking,
            "/api/2.0/mlflow/registered-models/alias",
            {"name": check_name(pairing), "alias": CHAMPION},
        )
        if answer is None:
            return None
        with _read_as_mlflows(asking):
            version = answer["model_version"]
            number = int(version["version"])
            told = {str(tag["key"]): str(tag.get("value", "")) for tag in version.get("tags", [])}
            tags = as_named_now(told)
            source = SOURCE.fullmatch(version.get("source", ""))
    if not SAFE_PAIR_ID.fullmatch(tags.get(PAIR_ID, "")) or source is None:
        raise StoreError(
            f"{pairing} v{number} carries the alias {CHAMPION} and is no pair of "
            "Paceline's: promote a pair instead"
        )
    return RemotePair(
        url=url.rstrip("/"),
        pairing=pairing,
        version=number,
        pair_id=tags[PAIR_ID],
        release=tags.get(RELEASE, ""),
        draft_kind=tags.get(DRAFT_KIND, ""),
        verdict=tags.get(VERDICT, ""),
        forced=tags.get(FORCED, ""),
        model_id=source.group(1),
        rolled_back=tags.get(ROLLED_BACK, ""),
    )


def known(url: str, pair: PairVersion) -> RemotePair:
    """A pair that the store at `url` told of."""
    return RemotePair(
        url=url.rstrip("/"),
        pairing=pair.pairing,
        version=pair.version,
        pair_id=pair.pair_id,
        release=pair.release,
        draft_kind=pair.draft_kind,
        verdict=pair.verdict,
        forced=pair.forced,
        model_id=pair.model_id,
        rolled_back=pair.rolled_back,
    )


def download(
    pair: RemotePair,
    into: Path,
    stopped: Callable[[], bool] = lambda: False,
    *,
    token: str | None = None,
    client: httpx.Client | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """The verified folder `into/<pair_id>` with pair.json and draft/; downloaded where it is not.

    `IncompatibleError` for a pair of a release that is none of its pairing's, `DigestError` or
    `ManifestError` when what is stored is not what was registered, `NotFoundError` when files are
    gone from the server, `StoreError` when it is away or as slow as if it were, this machine's disk
    is full, or once `stopped()` is true, which is asked between two pieces. A failure leaves what
    was in place before, and nothing half done.
    """
    place = into / pair.pair_id
    with locked(into / f".{pair.pair_id}.lock"):
        if _whole(place, pair):
            return place
        beside = into / f".{pair.pair_id}.partial"
        shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed
        try:
            beside.mkdir(parents=True)
            with _client(pair.url, token, client) as asking:
                _fetch(asking, pair, beside, stopped, clock)
            _settle(beside, place)
        except OSError as error:
            raise StoreError(f"{place}: the pair cannot be stored: {error.strerror}") from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return place


def manifest(
    pair: RemotePair, *, token: str | None = None, client: httpx.Client | None = None
) -> PairManifest:
    """What the pair was registered as. Raises as `download` does."""
    with tempfile.TemporaryDirectory() as folder, _client(pair.url, token, client) as asking:
        return _manifest(asking, pair, _root(asking, pair), Path(folder))


def report(
    pair: RemotePair, *, token: str | None = None, client: httpx.Client | None = None
) -> dict[str, Any]:
    """The JSON of the pair's report, its bytes those that were registered.

    Raises as `download` does, and `NotFoundError` for a pair that was registered without one.
    """
    with tempfile.TemporaryDirectory() as folder, _client(pair.url, token, client) as asking:
        place, root = Path(folder), _root(asking, pair)
        registered = _manifest(asking, pair, root, place)
        if REPORT_FILE not in registered.files:
            raise NotFoundError(f"{pair.pairing} v{pair.version}: was registered without a report")
        into = place / "report.json"
        got = _file(asking, f"{root}/{REPORT_FILE}", into, limit_bytes=REPORT_LIMIT_BYTES)
        if got != registered.files[REPORT_FILE]:
            raise DigestError(
                f"{pair.pairing} v{pair.version}: its report is not the one that was registered"
            )
        try:
            read: dict[str, Any] = json.loads(into.read_bytes())
        except ValueError as error:
            raise StoreError(f"{pair.pairing} v{pair.version}: its report is no JSON") from error
        return read


def _manifest(client: httpx.Client, pair: RemotePair, root: str, place: Path) -> PairManifest:
    """The pair's manifest, which is stored in the folder `place`."""
    _file(client, f"{root}/{FILE}", place / FILE, limit_bytes=MANIFEST_LIMIT_BYTES)
    found = read_manifest(place)
    _check_manifest(found, pair)
    return found


def _whole(place: Path, pair: RemotePair) -> bool:
    try:
        _check_manifest(read_manifest(place), pair)
        verify_files(read_manifest(place), place, under=SERVED)
    except RegistryError:
        return False
    return True


def _fetch(
    client: httpx.Client,
    pair: RemotePair,
    beside: Path,
    stopped: Callable[[], bool],
    clock: Callable[[], float],
) -> None:
    _check_release(client, pair)
    root = _root(client, pair)
    file = partial(_file, client, stopped=stopped, clock=clock)
    file(f"{root}/{FILE}", beside / FILE, limit_bytes=MANIFEST_LIMIT_BYTES)
    manifest = read_manifest(beside)
    _check_manifest(manifest, pair)
    for name, digest in sorted(manifest.files.items()):
        if not name.startswith(SERVED):
            continue
        got = file(f"{root}/{name}", beside / name)
        if got != digest:
            raise DigestError(
                f"{pair.pairing} v{pair.version}: {name} has sha256 {got[:12]}… and was registered "
                f"with {digest[:12]}…: register the pair again"
            )


def _check_release(client: httpx.Client, pair: RemotePair) -> None:
    """A version copied from another pairing has a verdict too, of another target: no alias may
    bring that to this pairing's users."""
    wanted = f"name='{target_name(pair.pairing)}' AND tags.`{RELEASE}`='{pair.release}'"
    search = {"filter": wanted, "max_results": "1"}
    found = _answer(client, "/api/2.0/mlflow/model-versions/search", search)
    with _read_as_mlflows(client):
        known = [] if found is None else list(found.get("model_versions", []))
    if not known:
        raise IncompatibleError(
            f"{pair.pairing} v{pair.version}: release {pair.release[:12]} is none of "
            f"{pair.pairing}'s, so it is another pairing's pair: promote one of its own, and "
            "delete this version"
        )


def _check_manifest(manifest: PairManifest, pair: RemotePair) -> None:
    if manifest.pair_id != pair.pair_id or manifest.release.digest != pair.release:
        raise ManifestError(
            f"{pair.pairing} v{pair.version}: its {FILE} is of {manifest.pair_id} for release "
            f"{manifest.release.digest[:12]}, its tags say {pair.pair_id} for {pair.release[:12]}"
        )


def _root(client: httpx.Client, pair: RemotePair) -> str:
    """Where the server's artifact proxy keeps the pair's files."""
    found = _answer(client, f"/api/2.0/mlflow/logged-models/{pair.model_id}", {})
    name = f"{pair.pairing} v{pair.version}"
    if found is None:
        raise NotFoundError(f"{name}: its files were deleted from MLflow ({pair.model_id})")
    with _read_as_mlflows(client):
        uri = urlsplit(str(found["model"]["info"]["artifact_uri"]))
    if uri.scheme != "mlflow-artifacts":
        raise StoreError(
            f"{name}: its files are at {uri.geturl()}, which a serving host cannot read. Start the "
            "server with --serve-artifacts and --artifacts-destination, and register again"
        )
    return f"/api/2.0/mlflow-artifacts/artifacts/{quote(uri.path.strip('/'))}"


def _file(
    client: httpx.Client,
    address: str,
    path: Path,
    *,
    limit_bytes: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Stream one file to the disk and give its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size_bytes = hashlib.sha256(), 0
    since, then_bytes = clock(), 0  # when the pace was looked at last, and what had come then
    with _asked(client), client.stream("GET", quote(address, safe="/%")) as answer:
        if answer.status_code == 404:
            raise NotFoundError(f"{_place(client)}{address}: is gone from the server")
        answer.raise_for_status()
        with path.open("wb") as file:
            for piece in answer.iter_bytes():
                size_bytes += len(piece)
                if limit_bytes is not None and size_bytes > limit_bytes:
                    raise StoreError(f"{address}: is longer than {limit_bytes} bytes")
                if stopped():
                    raise StoreError(f"{address}: is wanted no longer")
                if (seconds := clock() - since) >= 60.0:
                    pace = (size_bytes - then_bytes) * 60.0 / seconds
                    if pace < LEAST_BYTES_A_MINUTE:
                        raise StoreError(
                            f"{address}: comes at {pace:.0f} bytes a minute, wanted "
                            f"{LEAST_BYTES_A_MINUTE} at least: look at the registry, and at what "
                            "stands between"
                        )
                    since, then_bytes = since + seconds, size_bytes
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    return digest.hexdigest()


def _settle(beside: Path, place: Path) -> None:
    """Put the finished folder in its place; one that is broken there steps aside first."""
    if place.exists():
        old = place.with_name(f".{place.name}.broken")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(place, old)
        shutil.rmtree(old, ignore_errors=True)
    os.replace(beside, place)


def _answer(
    client: httpx.Client, path: str, parameters: Mapping[str, str]
) -> dict[str, Any] | None:
    """The JSON of a REST call, None where MLflow says that there is no such thing."""
    with _asked(client):
        answer = client.get(path, params=dict(parameters))
        if answer.status_code in (400, 404):  # 400 is its answer for a missing alias
            with _read_as_mlflows(client):
                code = answer.json().get("error_code", "")
            if code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
        answer.raise_for_status()
        with _read_as_mlflows(client):
            read: dict[str, Any] = answer.json()
            if not isinstance(read, dict):
                raise TypeError("no object")
        return read


@contextmanager
def _read_as_mlflows(client: httpx.Client) -> Iterator[None]:
    """What is not shaped as MLflow shapes its answers (a proxy's page, say) is a `StoreError`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the registry at {_place(client)} does not answer as MLflow does "
            f"({type(error).__name__}): check the URL, and what stands between"
        ) from error


@contextmanager
def _client(url: str, token: str | None, client: httpx.Client | None) -> Iterator[httpx.Client]:
    if client is not None:
        yield client
        return
    with httpx.Client(
        base_url=url,
        headers=header(token),
        timeout=TIMEOUT_SECONDS,
        trust_env=not on_this_machine(url),
    ) as own:
        yield own


@contextmanager
def _asked(client: httpx.Client) -> Iterator[None]:
    """httpx's faults come out as a `StoreError`."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        answer = error.response
        raise StoreError(
            f"the registry at {_place(client)} answers {answer.status_code} to "
            f"{answer.request.url.path}: check the URL and the token"
        ) from error
    except (httpx.HTTPError, ValueError) as error:  # ValueError: an answer that is not JSON
        raise StoreError(
            f"the registry at {_place(client)} does not answer as MLflow does "
            f"({error or type(error).__name__}): check the URL, or start the server"
        ) from error


def _place(client: httpx.Client) -> str:
    return sayable(str(client.base_url))
