from __future__ import annotations

import pytest

from speculation.records import Prompt
from training.corpus import Documented, documented, standard_library
from training.summaries import INSTRUCTION, LONG, SENTENCE, first_sentence, summaries

REST = "It goes on for long, and says a good deal more about what is done and why it is. " * 6


@pytest.fixture(scope="module")
def shipped() -> list[Prompt]:
    return summaries(documented(standard_library()))


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Read all of it. Then close.", "Read all of it."),
        ("Read\n    all of it.\n\nThen close.", "Read all of it."),
        ("Read e.g. a file. Then close.", "Read e.g. a file."),
        ("Is it a file? Or a folder.", "Is it a file?"),
        ("read(path) -> bytes\n\nRead all of it.", None),
        (">>> read(1)", None),
        ("", None),
    ],
)
def test_the_reference_is_the_sentence_a_docstring_opens_with(
    docstring: str, sentence: str | None
) -> None:
    assert first_sentence(docstring) == sentence


def test_what_is_no_long_docstring_with_a_short_opening_is_left_out() -> None:
    def entry(name: str, docstring: str) -> Documented:
        return Documented(name, "function", "def f():", docstring)

    opening = "Read the whole of a file at once."
    found = summaries(
        [
            entry("m:good", f"{opening}\n\n{REST}"),
            entry("m:twin", f"{opening}\n\n{REST}"),
            entry("m:short", opening),
            entry("m:named", f"Read.\n\n{REST}"),
            entry("m:endless", f"{opening}\n\n{REST * 9}"),
            entry("m:signature", f"read(path)\n\n{REST}"),
        ]
    )
    assert [prompt.id for prompt in found] == ["m:good"]
    assert found[0].reference == opening
    assert found[0].messages[0]["content"] == f"{INSTRUCTION}\n\n{opening}\n\n{REST}"


def test_the_standard_library_holds_hundreds(shipped: list[Prompt]) -> None:
    assert len(shipped) > 300
    assert len({prompt.id for prompt in shipped}) == len(shipped)
    for prompt in shipped:
        said = prompt.messages[0]["content"].removeprefix(INSTRUCTION)
        assert LONG[0] <= len(said.split()) <= LONG[1]
        assert prompt.reference is not None
        assert SENTENCE[0] <= len(prompt.reference.split()) <= SENTENCE[1]
        assert prompt.reference in " ".join(said.split())


def test_the_first_of_them_are_spread_over_many_modules(shipped: list[Prompt]) -> None:
    modules = {prompt.id.partition(":")[0] for prompt in shipped[:60]}
    assert len(modules) > 30
