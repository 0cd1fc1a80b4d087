"""All files of a registered pair out of MLflow, verified: for those who take a pair elsewhere.

A serving host takes less, and without MLflow: see `remote`.
"""

from __future__ import annotations

from pathlib import Path

from registry.door import check_answers, speaking
from registry.errors import ManifestError, NotFoundError
from registry.manifest import read_manifest, verify_files
from registry.store import Store
from registry.versions import PairVersion


def fetch_files(store: Store, pair: PairVersion, into: Path) -> Path:
    """The folder with the pair's pair.json, draft/, report/ and training/, below `into`.

    Raises NotFoundError where its files were deleted, DigestError and ManifestError where they are
    not those that were registered, StoreError when MLflow is away.
    """
    name = f"{pair.pairing} v{pair.version}"
    with speaking(store.url, f"looking for the files of {name}"):
        place = store.client.get_logged_model(pair.model_id).artifact_location
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        folder = Path(download_artifacts(place, dst_path=str(into), tracking_uri=store.url))
    except (MlflowException, OSError) as error:
        check_answers(store.url)
        raise NotFoundError(
            f"{name}: its files cannot be fetched: {error}. Where they were deleted, register the "
            "pair again"
        ) from error
    manifest = read_manifest(folder)
    if (manifest.pair_id, manifest.release.digest) != (pair.pair_id, pair.release):
        raise ManifestError(
            f"{name}: its pair.json is of {manifest.pair_id}, its tags say {pair.pair_id}"
        )
    verify_files(manifest, folder)
    return folder
