"""Bounds and pins agree, and the README's promises stand in the Makefile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = [*PROJECT["dependencies"], *sum(PROJECT["optional-dependencies"].values(), [])]
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
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} -> {link}"
