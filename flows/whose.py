"""Whose a run of Prefect's is: several homes, and other teams, may share one Prefect server.

Everything of a home carries its tag. Where the server is the home's own, deployments have the plain
names of their flows; where `prefect` names another, the home's id is a part of each name and key,
so that two homes with a pairing of the same name stay apart.
"""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path

from flows.line import settings

ID_BYTES = 4


def home_id() -> str:
    """The home's own name, drawn once and kept in it."""
    return _drawn(Path(os.environ.get("PACELINE_HOME", "paceline-home")).absolute())


def tag() -> str:
    """What all deployments and runs of this home carry."""
    return f"paceline:{home_id()}"


def deployment(flow: str) -> str:
    """The name of a flow's deployment."""
    return f"{flow}-{home_id()}" if _shared() else flow


def own_key(key: str) -> str:
    """The idempotency key of a run that the flows of this home call `key`."""
    return f"{home_id()}:{key}" if _shared() else key


def _shared() -> bool:
    return bool(settings().prefect)


@cache
def _drawn(home: Path) -> str:
    kept = home / "flows" / "id"
    kept.parent.mkdir(parents=True, exist_ok=True)
    drawn = kept.with_name(f".id.{os.getpid()}.{secrets.token_hex(2)}")
    drawn.write_text(secrets.token_hex(ID_BYTES))
    try:
        os.link(drawn, kept)  # whole, and only where none is there: two that start at once agree
    except FileExistsError:
        pass
    finally:
        drawn.unlink()
    return kept.read_text().strip()
