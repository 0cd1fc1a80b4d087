"""Which flows there are, as data: the worker makes a deployment for each. Heavy ones compute, for
hours, and one at a time. Light ones look, start and tell, or read weights as `take_in` does: a
release is not to wait for a retrain, and the retrain of an older one is to be told of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prefect.flows import Flow

LIGHT = ("watch", "go_live", "respond", "promote", "rollback", "approve", "refresh", "take_in")
HEAVY = ("retrain",)


def flow_of(name: str) -> Flow[Any, Any]:
    """The flow of that name, from the file that is named like it."""
    made = getattr(import_module(f"flows.{name}"), name)
    assert isinstance(made, Flow)  # our own files
    return made
