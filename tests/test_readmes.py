"""The README and its Chinese twin say the same, and what both name is there.

Nobody here can compare two languages; what has no language is compared: headings, code, links and
figures. A change of the one that the other misses nearly always changes one of these.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.main import app

ROOT = Path(__file__).parents[1]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
HERE = "\0"  # where a block was
TWINS = {"README.md", "README.zh-CN.md"}


def without_language(text: str) -> list[dict[str, Any]]:
    """What a translation keeps, a section each: of its prose in any order, for languages differ."""
    blocks = BLOCK.findall(text)
    sections = re.split(r"^(?=#+ )", BLOCK.sub(HERE, text), flags=re.MULTILINE)[1:]
    left = iter(blocks)
    return [
        {
            "level": len(section) - len(section.lstrip("#")),
            "blocks": [next(left) for _ in range(section.count(HERE))],
            "code": Counter(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", section)),
            "links": Counter(re.findall(r"\]\(([^)]+)\)", section)) - Counter(TWINS),
            "items": len(re.findall(r"^(?:-|\d+\.) ", section, re.MULTILINE)),
            "tables": [
                (line.count("|"), FIGURE.findall(line))
                for line in section.splitlines()
                if line.startswith("|")
            ],
            "figures": Counter(FIGURE.findall(section)),
        }
        for section in sections
    ]


def test_both_readmes_have_the_same_headings_code_tables_links_and_figures() -> None:
    english, chinese = without_language(ENGLISH), without_language(CHINESE)
    assert [one["level"] for one in english] == [one["level"] for one in chinese]
    for one, other in zip(english, chinese, strict=True):
        assert one == other, "what changes in the one has to change in the other"


def test_the_table_of_measured_figures_is_the_same_to_the_letter() -> None:
    first = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
    assert first.findall(ENGLISH)[0] == first.findall(CHINESE)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\| 0\.\d+ \|", "| 9.999 |"),  # in a table
        (r"\d+ s\b", "0 s"),  # in prose
        ("make demo   #", "make demos  #"),  # in a block
        ("`max_wait_hours`", "`max_wait`"),
        (r"\(docs/operations\.md\)", "(docs/gate.md)"),
        (r"\n## ", "\n### "),
        (r"\n- \*\*", "\n**"),
    ],
)
def test_one_that_fell_behind_is_told(old: str, new: str) -> None:
    behind, changes = re.subn(old, new, CHINESE, count=1)
    assert changes == 1
    assert without_language(behind) != without_language(CHINESE)


def test_each_is_found_from_the_other_before_anything_else() -> None:
    for text, other in ((ENGLISH, "README.zh-CN.md"), (CHINESE, "README.md")):
        assert re.findall(r"\]\(([^)]+)\)", text)[0] == other


def test_every_command_of_the_readme_exists() -> None:
    known = set(getattr(get_command(app), "commands", ()))
    named = set(re.findall(r"\bpaceline ([a-z]+)\b", " ".join(re.findall(r"`[^`]+`", ENGLISH))))
    named |= set(re.findall(r"^paceline ([a-z]+)", ENGLISH, re.MULTILINE))
    assert {"up", "doctor", "init"} <= named <= known


def test_every_file_of_the_readmes_tree_exists() -> None:
    tree = next(block for block in BLOCK.findall(ENGLISH) if block.startswith("```text\nspec"))
    folder, looked_at = "", 0
    for line in tree.splitlines()[1:-1]:
        if not line.startswith(" "):
            folder = line.partition("/")[0]
            assert (ROOT / folder).is_dir(), line
        elif names := re.match(r" +((?:[\w/…]+[,;] )*[\w/…]+) ", line):
            for name in re.split("[,;] ", names[1]):
                there = ROOT / folder / name
                assert "…" in name or there.is_dir() or there.with_suffix(".py").is_file(), there
                looked_at += 1
    assert looked_at > 100
