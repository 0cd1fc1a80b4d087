"""Ends the process that has it on its path with SIGKILL at one moment, once: see test_killed.py.

KILL_AT is WHAT:WHEN. WHAT is the marker or the progress of a step of a retrain, or a write to the
registry: "version" (a pair), "journal" (an entry), "alias" (the champion's). WHEN is "before",
"inside" (a step's progress) or "after". KILL_FLAG is the file that says that it has happened.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import signal
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

WHAT, _, WHEN = os.environ.get("KILL_AT", "").partition(":")


def kill() -> None:
    try:
        os.close(os.open(os.environ["KILL_FLAG"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:  # once is enough
        return
    os.kill(os.getpid(), signal.SIGKILL)


def around(name: str, call: Any, named: Any) -> Any:
    """`call`, with a kill before or after it where `named` says that it is the one."""

    def wrapped(*given: Any, **more: Any) -> Any:
        meant = named(*given, **more)
        if meant and WHEN == "before":
            kill()
        result = call(*given, **more)
        if meant and WHEN in ("after", "inside"):
            kill()
        return result

    return wrapped


def steps(module: Any) -> None:
    def marker(path: Path, value: Any) -> bool:
        if WHEN == "inside":
            return path.name == "progress.json" and value["step"] == WHAT and value["done"] > 0
        return bool(path.name == f"{WHAT}.done.json")

    module.write_json = around("write_json", module.write_json, marker)


def client(module: Any) -> None:
    made = module.MlflowClient

    def version(self: Any, name: str, *_: Any, **__: Any) -> bool:
        return {"version": name == "toy", "journal": "journal" in name}.get(WHAT, False)

    def alias(self: Any, name: str, alias: str, *_: Any, **__: Any) -> bool:
        return WHAT == "alias" and (name, alias) == ("toy", "champion")

    made.create_model_version = around("version", made.create_model_version, version)
    made.set_registered_model_alias = around("alias", made.set_registered_model_alias, alias)


PATCHES = {"flows.steps": steps, "mlflow.tracking.client": client}


class Finder(importlib.abc.MetaPathFinder):
    """Has a module patched right after it was loaded."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name not in PATCHES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        assert isinstance(spec, ModuleSpec)
        assert spec.loader is not None
        loader = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            PATCHES[name](module)

        loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one module
        return spec


if WHAT:
    sys.meta_path.insert(0, Finder())
