"""An SQLite database for MLflow, created whole or not at all.

Several processes that open a new database at once corrupt it for good, and so does a kill in the
middle of MLflow's migrations. So it is made beside, by one process, and renamed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from registry.errors import StoreError
from registry.locks import lock_folder, locked

SQLITE = "sqlite:///"


def database_of(url: str) -> Path | None:
    """The file behind an SQLite URL, None for any other store."""
    return Path(url.removeprefix(SQLITE)).absolute() if url.startswith(SQLITE) else None


def prepare_database(url: str) -> None:
    """Create the database that `url` names where there is none. Takes seconds the first time.

    Other URLs are left to their server. `StoreError` when the disk is full or not writable.
    """
    path = database_of(url)
    if path is None or path.exists():
        return
    with locked(lock_folder(url) / "schema.lock", timeout_seconds=120):
        if path.exists():
            return
        beside = path.with_name(f".{path.name}.partial")
        _remove(beside)
        try:
            _create(beside)
            os.replace(beside, path)
        except Exception as error:  # MLflow lets every kind through: alembic's, SQLAlchemy's, OS's
            _remove(beside)
            raise StoreError(f"{path}: MLflow's database could not be created: {error}") from error


def _remove(database: Path) -> None:
    """What a killed attempt left; its journal too, which SQLite would play into the next one."""
    for left in database.parent.glob(f"{database.name}*"):
        left.unlink()


def _create(path: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    create: Any = SqlAlchemyStore  # MLflow ships no types for it
    create(f"{SQLITE}{path}", "mlflow-artifacts:/").engine.dispose()
