"""The files of a registered pair, as MLflow keeps them: where they are, and its pair.json."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from registry.door import check_answers, speaking
from registry.errors import NotFoundError, StoreError
from registry.manifest import FILE, PairManifest, read_manifest
from registry.versions import PairVersion

if TYPE_CHECKING:
    from mlflow import MlflowClient


def stored_manifest(client: MlflowClient, url: str, pair: PairVersion) -> PairManifest:
    """The pair's pair.json. `NotFoundError` when its files are gone from MLflow."""
    name = f"{pair.pairing} v{pair.version}"
    place = _place(client, url, pair)
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as folder:
        try:
            download_artifacts(f"{place}/{FILE}", dst_path=folder, tracking_uri=url)
        except (MlflowException, OSError) as error:
            check_answers(url)
            with speaking(url, f"looking for the files of {name}"):
                there = client.list_logged_model_artifacts(pair.model_id)
            if any(file.path == FILE for file in there):  # a fault, and no sign of a deletion
                raise StoreError(f"{name}: its {FILE} cannot be read now: {error}") from error
            raise NotFoundError(
                f"{name}: MLflow has no {FILE} for it: {error}. Its files were deleted; "
                "register the pair again"
            ) from error
        return read_manifest(Path(folder))


def _place(client: MlflowClient, url: str, pair: PairVersion) -> str:
    """Where MLflow keeps the pair's files. `NotFoundError` when they were deleted."""
    from mlflow.exceptions import MlflowException

    name = f"{pair.pairing} v{pair.version}"
    with speaking(url, f"looking for the files of {name}"):
        try:
            return str(client.get_logged_model(pair.model_id).artifact_location)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise NotFoundError(
                f"{name}: its files were deleted from MLflow ({pair.model_id}); register the "
                "pair again"
            ) from error
