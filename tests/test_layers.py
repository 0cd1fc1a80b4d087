"""Imports go one way, and a folder loads without what it has no business with."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PYPROJECT["tool"]["importlinter"]["root_packages"]

TORCH = {"torch", "transformers", "peft", "accelerate"}
DOORS = {"mlflow", "prefect"}
STAYS_OUT = [  # of one fresh interpreter that has imported every module of these folders
    (("configuration",), TORCH | DOORS | {"httpx", "numpy"}),
    (("cli", "configuration", "evaluation", "monitoring", "registry"), TORCH | DOORS | {"river"}),
    (("flows",), TORCH | {"mlflow"}),
    (("serving", "speculation", "training"), DOORS),
]
WALK = """
import importlib, json, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(("packages", "out"), STAYS_OUT, ids=lambda value: "-".join(sorted(value)))
def test_a_folder_loads_without_what_it_has_no_business_with(
    packages: tuple[str, ...], out: set[str]
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WALK, *packages], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert set(json.loads(run.stdout.splitlines()[-1])) & out == set()


def test_every_folder_is_looked_at() -> None:
    assert {package for packages, _ in STAYS_OUT for package in packages} == set(PACKAGES)


def test_imports_go_one_way() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    run = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:]


def test_no_contract_has_an_exception() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert contracts
    assert not [contract for contract in contracts if "ignore_imports" in contract]


def test_every_package_is_shipped_typed_and_linted() -> None:
    shipped = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert shipped == PACKAGES
    assert set(PACKAGES) < set(PYPROJECT["tool"]["mypy"]["files"])
    folders = {init.parent.name for init in ROOT.glob("*/__init__.py")}
    assert folders == set(PACKAGES)


def test_every_init_is_empty_and_tests_have_none() -> None:
    inits = [path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    assert len(inits) >= len(PACKAGES)
    assert [str(path) for path in inits if path.read_text().strip()] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []
