"""Every flow loads from its module, as the worker starts it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.flows import Flow, load_flow_from_entrypoint

from flows.catalogue import HEAVY, LIGHT

FOLDER = Path(__file__).parent.parent.parent / "flows"


@pytest.mark.parametrize("name", [*LIGHT, *HEAVY])
def test_a_flow_loads_by_its_module_without_a_placeholder(name: str) -> None:
    loaded: Flow[Any, Any] = load_flow_from_entrypoint(
        f"flows.{name}.{name}", use_placeholder_flow=False
    )
    assert loaded.name == name


def test_every_file_with_a_flow_is_in_the_catalogue() -> None:
    decorated = {
        path.stem
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one).split("(")[0] == "flow" for one in node.decorator_list)
    }
    assert decorated == {*LIGHT, *HEAVY}


def test_no_flow_file_is_named_like_a_package_that_it_would_hide() -> None:
    ours = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    packages = {path.name for path in FOLDER.parent.iterdir() if (path / "__init__.py").exists()}
    assert not ours & (packages | set(sys.stdlib_module_names))


def test_no_file_of_the_flows_defines_a_class() -> None:
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)], path


def test_the_flows_load_without_torch_or_mlflow() -> None:
    code = (
        "import sys, flows.worker, flows.making, flows.keeping; "
        "print([m for m in ('torch', 'transformers', 'mlflow', 'evaluate') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip().splitlines()[-1] == "[]"
