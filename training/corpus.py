"""Real prompts without a download: the functions and classes of the installed standard library.

Each one whose docstring is long enough becomes an example: its source without the docstring is
the prompt, the docstring is the reference. Knows Python source; knows nothing of models or tokens.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

INSTRUCTION = "Explain what this Python {kind} does, in plain words, as its docstring."
SKIPPED = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "__pycache__"}
)


@dataclass(frozen=True, slots=True)
class Documented:
    """One function or class of a Python source tree, apart from its docstring."""

    name: str  # module:qualified.name, unique in its tree
    kind: str  # "function" or "class"
    source: str  # without the docstring
    docstring: str  # cleaned as `inspect.cleandoc` does

    @property
    def prompt(self) -> str:
        """What a user of the docstring task would send."""
        return f"{INSTRUCTION.format(kind=self.kind)}\n\n{self.source}"

    @property
    def held_out(self) -> bool:
        """One in five by the hash of the name, so that every run and Python version agrees."""
        return hashlib.sha256(self.name.encode()).digest()[0] < 51


def apart(entries: Iterable[Documented]) -> tuple[list[Documented], list[Documented]]:
    """Those to learn from and those held out, each source once.

    A function may stand in two modules under two names; its source is then held out under both.
    """
    everything = list(entries)
    held_out = {entry.prompt: entry for entry in everything if entry.held_out}
    seen = {e.prompt: e for e in everything if e.prompt not in held_out}
    return list(seen.values()), list(held_out.values())


def standard_library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def documented(tree: Path, *, max_source_lines: int = 30) -> Iterator[Documented]:
    """Everything under `tree` that has a docstring, in the order of paths and lines.

    Files that this interpreter cannot parse are passed over: a source tree holds some on purpose
    (test data, templates). Sources are cut after `max_source_lines`, since a prompt of a whole
    class would be all prefill.
    """
    for path in sorted(tree.rglob("*.py")):
        parts = path.relative_to(tree).with_suffix("").parts
        if SKIPPED.intersection(parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            module = ast.parse(text)
        except (SyntaxError, ValueError, OSError):
            continue
        yield from _documented_in(module, text.splitlines(), ".".join(parts), max_source_lines)


def _documented_in(
    module: ast.Module, lines: list[str], name: str, max_source_lines: int
) -> Iterator[Documented]:
    stack: list[tuple[ast.AST, str]] = [(module, "")]
    while stack:
        node, scope = stack.pop()
        for child in reversed(list(ast.iter_child_nodes(node))):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            qualified = f"{scope}.{child.name}" if scope else child.name
            stack.append((child, qualified))
            docstring = ast.get_docstring(child, clean=True)
            first = child.body[0]
            if not docstring or first.end_lineno is None or child.end_lineno is None:
                continue
            head = lines[child.lineno - 1 : first.lineno - 1]
            body = lines[first.end_lineno : child.end_lineno]
            source = textwrap.dedent("\n".join((head + body)[:max_source_lines])).rstrip()
            if head:  # a one-line definition has its docstring on the same line: nothing to show
                kind = "class" if isinstance(child, ast.ClassDef) else "function"
                yield Documented(f"{name}:{qualified}", kind, source, inspect.cleandoc(docstring))
