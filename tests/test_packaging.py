"""Bounds and pins agree, and the README's promises stand in the Makefile."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cli import exits

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
# the wheel's own; `all` and `dev` name these
EXTRAS = ("control", "train", "serve", "evaluate", "monitor")
OURS = {*PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], "examples"}
FOLDERS = [  # beside the lean base, which of the extras a folder's code may count on
    ("cli", EXTRAS),
    ("configuration", ()),
    ("evaluation", ("evaluate",)),
    ("examples", ("control", "train", "serve")),  # Prefect, for its work pools
    ("flows", ("control", "train", "evaluate")),
    ("monitoring", ("evaluate", "monitor")),
    ("registry", ("control", "server")),  # boto3, where a source is an object store
    ("serving", ("serve",)),
    ("speculation", ("serve",)),
    ("speculation", ("train",)),
    ("training", ("train",)),
]
UNSEEN = {"accelerate", "gguf"}  # peft and transformers import them for what we ask
DECLARED = [*PROJECT["dependencies"], *sum(OPTIONAL.values(), [])]
PINNED = {
    requirement.name.lower().replace("_", "-"): str(requirement.specifier).removeprefix("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if (text := line.partition("#")[0].strip())
    for requirement in [Requirement(text)]
}


@pytest.mark.parametrize("declared", [d for d in DECLARED if not d.startswith("paceline[")])
def test_what_is_declared_is_pinned_within_its_bound(declared: str) -> None:
    requirement = Requirement(declared)
    assert requirement.specifier.contains(PINNED[requirement.name.lower()])
    assert ">=" in declared, "a lower bound as tested"


def names(requirements: Iterable[str]) -> set[str]:
    return {Requirement(one).name.lower().replace("_", "-") for one in requirements}


@cache
def imported(folder: str) -> set[str]:
    """The libraries that any line of a folder imports, by the names they are installed by."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    tops = {name.partition(".")[0] for name in found} - OURS - {"tests"} - sys.stdlib_module_names
    return {name.replace("_", "-") for name in tops}


@pytest.mark.parametrize(("folder", "extras"), FOLDERS)
def test_what_a_folder_imports_is_declared_for_it(folder: str, extras: tuple[str, ...]) -> None:
    declared = names(PROJECT["dependencies"]).union(*(names(OPTIONAL[one]) for one in extras))
    assert imported(folder) - declared == set()


def test_what_is_declared_is_imported() -> None:
    assert {folder for folder, _ in FOLDERS} == OURS
    declared = names(PROJECT["dependencies"]).union(*(names(OPTIONAL[one]) for one in EXTRAS))
    assert declared.difference(*(imported(folder) for folder in OURS)) == UNSEEN


def test_a_missing_library_is_looked_for_in_an_extra_that_has_it() -> None:
    optional = names(sum((OPTIONAL[one] for one in EXTRAS), []))
    assert {library.replace("_", "-") for library in exits.EXTRAS} == optional
    for library, extras in exits.EXTRAS.items():
        for extra in extras.split(","):
            assert library.replace("_", "-") in names(OPTIONAL[extra])


def test_pins_name_no_index_and_no_local_build() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"://|--|\+|@", text)
    assert PINNED["torch"] == "2.13.0"


def test_what_has_to_pass_is_what_the_readme_names() -> None:
    runs = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert runs == ["test", "wheel", "test-slow"]


def test_the_readme_is_short_and_its_commands_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 200
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z][a-z-]*)\b", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_linked_file_of_the_documents_exists() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} -> {link}"
