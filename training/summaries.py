"""A summarisation task without a download: a long docstring, and its first sentence as reference.

Whoever writes a docstring says first, in one sentence, what the rest says at length: a summary by
the author's own hand. Knows documented source (corpus.py); knows nothing of models or tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from speculation.records import Prompt
from training.corpus import Documented

INSTRUCTION = "Summarise this documentation in one sentence."
LONG = (80, 320)  # words of a docstring: a page is all prefill, a paragraph is its own summary
SENTENCE = (5, 30)  # words of its first sentence: fewer name the thing, more are a list
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(`*:>])")


def first_sentence(docstring: str) -> str | None:
    """The sentence that a docstring opens with, on one line; None where it opens otherwise."""
    opening = " ".join(docstring.strip().split("\n\n")[0].split())
    sentence = _END.split(opening)[0]
    return sentence if sentence[:1].isalpha() and sentence.endswith((".", "!", "?")) else None


def summaries(entries: Iterable[Documented]) -> list[Prompt]:
    """The prompts of the task, each docstring once, in an order that is no tree's.

    By the hash of what is asked: the first few hundred are spread over all modules, and the same
    whatever else is installed.
    """
    found: dict[str, Prompt] = {}
    names: set[str] = set()
    for entry in entries:
        reference = first_sentence(entry.docstring)
        if reference is None or not LONG[0] <= len(entry.docstring.split()) <= LONG[1]:
            continue
        if not SENTENCE[0] <= len(reference.split()) <= SENTENCE[1]:
            continue
        content = f"{INSTRUCTION}\n\n{entry.docstring}"
        key = hashlib.sha256(content.encode()).hexdigest()
        if key not in found and entry.name not in names:  # a setter has its property's name
            names.add(entry.name)
            message = {"role": "user", "content": content}
            found[key] = Prompt(entry.name, (message,), reference, "summary", "en")
    return [found[key] for key in sorted(found)]
