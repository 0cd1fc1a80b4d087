"""Which flows there are, as data: the worker makes a deployment for each. Light ones look, start
and tell, and are over in seconds to minutes; heavy ones read weights or compute, for hours."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prefect.flows import Flow

LIGHT = ("watch", "go_live", "respond", "promote")
HEAVY = ("retrain",)


def flow_of(name: str) -> Flow[Any, Any]:
    """The flow of that name, from the file that is named like it."""
    made = getattr(import_module(f"flows.{name}"), name)
    assert isinstance(made, Flow)  # our own files
    return made
