"""A release that is copied into a watched folder is registered by the real worker, by itself."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cli.stack import Stack
from configuration.settings import Pairing
from configuration.sources import Source
from configuration.writing import write_default
from registry.fingerprint import fingerprint
from registry.store import Store
from tests.registry import tiny

PATIENCE_SECONDS = 400.0  # two looks and a run of a worker, on a machine that does much else


@pytest.mark.slow  # real MLflow and Prefect servers, and a worker
def test_a_release_that_is_copied_into_a_watched_folder_is_registered_once(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "models"
    place.mkdir()
    line = Pairing(sources=(Source("folder", str(place), settle_seconds=1.0),))
    write_default(home / "paceline.toml", {"docs": line})
    written = tiny.target(tmp_path / "written")
    with Stack(home, os.environ) as stack:
        stack.create_schemas()
        store = Store(stack.start_mlflow())
        stack.start_prefect()
        stack.start_worker()
        (place / "1").mkdir()
        for path in sorted(written.iterdir()):
            shutil.copy2(path, place / "1" / path.name)
        ended = time.monotonic() + PATIENCE_SECONDS
        while not (found := store.releases("docs")):
            stack.check()
            assert time.monotonic() < ended, (home / "run" / "worker.log").read_text()[-3000:]
            time.sleep(1)
        (release,) = found
        assert release.digest == fingerprint(written).digest
        assert release.uri == str(place / "1")
