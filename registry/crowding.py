"""A pairing with thousands of versions, written past MLflow straight into its SQLite database, and
how long the registry's looks at it take. For the bench and the tests; no other code writes so."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from registry import journal
from registry.schema import SQLITE, prepare_database
from registry.store import Store
from registry.versions import DRAFT_KIND, OURS, PAIR_ID, RELEASE, VERDICT

PAIRING = "crowded"
TAGS = {PAIR_ID: "p-" + "0" * 16, RELEASE: "0" * 64, VERDICT: "PASS", DRAFT_KIND: "ngram"}


@dataclass(frozen=True, slots=True)
class Look:
    """How long one look took."""

    what: str
    versions: int
    seconds: float  # median of the turns
    turns: int


def crowd(database: Path, name: str, *, first: int, last: int) -> None:
    """Give the registered model the versions `first` to `last`, tagged as pairs are."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "insert or ignore into registered_models (name, creation_time, last_updated_time, "
            "workspace) values (?, 0, 0, 'default')",
            [name],
        )
        connection.execute(
            "insert or ignore into registered_model_tags (name, key, value, workspace) "
            "values (?, ?, 'pairing', 'default')",
            [name, OURS],
        )
        numbers = range(first, last + 1)
        connection.executemany(
            "insert into model_versions (name, version, creation_time, last_updated_time, "
            "current_stage, source, status, workspace) "
            "values (?, ?, 0, 0, 'None', 'paceline:/crowd', 'READY', 'default')",
            ((name, number) for number in numbers),
        )
        connection.executemany(
            "insert into model_version_tags (name, version, key, value, workspace) "
            "values (?, ?, ?, ?, 'default')",
            ((name, number, *tag) for number in numbers for tag in TAGS.items()),
        )


def looks(folder: Path, *, versions: int, turns: int) -> list[Look]:
    """Time the looks at a pairing with so many versions, in a database made in `folder`."""
    database = folder / f"{versions}.db"
    prepare_database(f"{SQLITE}{database}")
    crowd(database, PAIRING, first=1, last=versions)
    store = Store(f"{SQLITE}{database}", locks=folder / "locks")
    store.client.set_registered_model_alias(PAIRING, "champion", "1")
    asked: Mapping[str, Callable[[], object]] = {
        "the champion": lambda: store.champion(PAIRING),
        "the newest 50 and the champion": lambda: store.describe(PAIRING),
        "the journal": lambda: journal.read(store, PAIRING),
    }
    found = []
    for what, ask in asked.items():
        ask()  # the first opens connections
        took = []
        for _ in range(turns):
            began = time.perf_counter()
            ask()
            took.append(time.perf_counter() - began)
        found.append(Look(what, versions, statistics.median(took), turns))
    return found
