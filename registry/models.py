"""Releases out of an MLflow registered model that somebody else keeps: seen by version, fetched.

An alias is followed as it moves, or every version counts. Only reads: what others register is
never changed. Knows no pairs.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from registry import asking
from registry.arrivals import Arrival
from registry.door import check_answers, speaking
from registry.errors import FolderError, NotFoundError, StoreError
from registry.incoming import ADAPTER_CONFIG, is_one
from registry.store import SOURCE_FORM, Store
from registry.versions import OURS

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

MOST_VERSIONS = 200  # the newest, where each of them is a release
TOKENIZER = Path("components") / "tokenizer"  # where the transformers flavour keeps it apart


def named(store: Store, name: str, *, alias: str) -> list[Arrival]:
    """The version that the alias names; none where it names none yet. Raises StoreError, also for
    a model of that name that is Paceline's own, which would be its own source."""
    _check_theirs(store, name)
    version = asking.aliased(store.client, store.url, name, alias)
    return [] if version is None else [_arrival(name, version, pointed=True)]


def every(store: Store, name: str) -> list[Arrival]:
    """Every version that is ready, the newest MOST_VERSIONS of them. Raises StoreError."""
    _check_theirs(store, name)
    found = asking.versions(store.client, store.url, name, limit=MOST_VERSIONS)
    return [_arrival(name, version, pointed=False) for version in found]


def fetch_model(store: Store, place: str, into: Path) -> Path:
    """The model folder of the version models:/name/version, downloaded below `into`.

    Raises NotFoundError where its files were deleted, FolderError where there is not one model
    among them, StoreError where MLflow is away.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    matched = SOURCE_FORM.fullmatch(place)
    assert matched is not None  # `_arrival` wrote it
    into.mkdir(parents=True, exist_ok=True)
    client = store.client
    with speaking(store.url, f"looking for the files of {place}"):
        uri = client.get_model_version_download_uri(matched["name"], matched["version"])
    try:
        download_artifacts(uri, dst_path=str(into), tracking_uri=store.url)
    except (MlflowException, OSError) as error:
        check_answers(store.url)
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's
        raise NotFoundError(f"{place}: its files cannot be fetched: {error}") from error
    return model_inside(into, place)


def model_inside(folder: Path, what: str) -> Path:
    """The one model or adapter somewhere in a folder, made whole where a flavour takes it apart.

    Raises NotFoundError for a folder without a file, FolderError where there is none or several.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:  # MLflow answers so for a model that was deleted for good
        raise NotFoundError(f"{what}: has no files any more: they were deleted")
    tokenizers = [path for path in folder.rglob(str(TOKENIZER)) if path.is_dir()]
    found = sorted(
        {path.parent for path in files if is_one(path.parent)}
        - {*tokenizers, *(path for path in folder.rglob("components/*") if path.is_dir())}
    )
    adapters = [one for one in found if (one / ADAPTER_CONFIG).exists()]
    chosen = adapters or found
    if len(chosen) != 1:
        names = ", ".join(str(one.relative_to(folder)) for one in chosen) or "none"
        raise FolderError(
            f"{what}: got {names} among {len(files)} files, wanted one folder with config.json or "
            f"{ADAPTER_CONFIG}: log one model, such as save_pretrained writes it"
        )
    (model,) = chosen
    for tokenizer in tokenizers:
        for path in tokenizer.iterdir():
            if path.is_file() and not (model / path.name).exists():
                shutil.copy2(path, model / path.name)
    return model


def _arrival(name: str, version: ModelVersion, *, pointed: bool) -> Arrival:
    ready = version.status == "READY"
    return Arrival(
        place=f"models:/{name}/{version.version}",
        # a model that was deleted and made again counts its versions from 1 again
        signature=f"{version.creation_timestamp} {version.source}",
        created=version.creation_timestamp / 1000,
        pointed=pointed,
        waits="" if ready else f"its version is {version.status}",
    )


def _check_theirs(store: Store, name: str) -> None:
    model = asking.registered_model(store.client, store.url, name)
    if model is None:
        raise StoreError(f"there is no registered model {name} at {store.url}: register it first")
    if OURS in model.tags:
        raise StoreError(
            f"{name} is a registered model that Paceline keeps for itself: name the one that your "
            "targets are registered in as the source"
        )
