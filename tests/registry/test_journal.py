from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import journal
from registry.journal import Entry, that_count
from registry.promotion import promote
from registry.store import Store


def entry(number: int, after: int, outcome: str = "") -> Entry:
    return Entry("promote", number, None, after, "2026", number=number, outcome=outcome)


@st.composite
def written(draw: st.DrawFn) -> list[Entry]:
    """What hosts write that each read the journal at some earlier time, or only just now."""
    entries: list[Entry] = []
    for number in range(1, draw(st.integers(1, 25)) + 1):
        seen = that_count(entries[: draw(st.integers(0, len(entries)))])
        entries.append(entry(number, seen[-1].number if seen else 0))
    return entries


@given(written())
def test_of_all_that_follow_one_entry_the_lowest_number_counts(entries: list[Entry]) -> None:
    counting = that_count(entries)
    followed = [one.after for one in counting]
    assert len(set(followed)) == len(followed)
    assert followed == [0, *(one.number for one in counting[:-1])]
    for one in counting:
        assert one.number == min(e.number for e in entries if e.after == one.after)


@given(written(), st.data())
def test_what_counted_counts_whatever_is_written_later(
    entries: list[Entry], data: st.DataObject
) -> None:
    early = that_count(entries[: data.draw(st.integers(0, len(entries)))])
    assert that_count(entries)[: len(early)] == early


@given(written(), st.data())
def test_the_newest_entries_tell_the_same_as_all(entries: list[Entry], data: st.DataObject) -> None:
    """As promotions leave them: each that counted is finished before the next is written."""
    counting = that_count(entries)
    numbers = {one.number for one in counting[:-1]}
    left = [replace(e, outcome="done") if e.number in numbers else e for e in entries]
    window = left[data.draw(st.integers(0, len(left) - 1)) :]
    seen = that_count(window, whole=len(window) == len(left))
    if any(one.finished for one in window):
        assert seen[-1].number == counting[-1].number


@given(written(), st.data())
def test_a_journal_of_which_entries_were_deleted_still_has_a_last_one(
    entries: list[Entry], data: st.DataObject
) -> None:
    finished = {one.number for one in that_count(entries)}
    left = [replace(e, outcome="done") if e.number in finished else e for e in entries]
    gone = data.draw(st.sets(st.sampled_from([e.number for e in left])))
    kept = [e for e in left if e.number not in gone]
    counting = that_count(kept)
    assert {e.number for e in kept} & finished <= {one.number for one in counting}
    last = counting[-1].number if counting else 0
    following = entry(len(entries) + 1, last)
    assert that_count([*kept, following])[-1] == following


def test_a_long_journal_is_read_by_its_end_and_versions_made_by_hand_are_passed_over(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = None
    for version in (1, 2, 3, 1, 2):
        assert promote(three, "docstrings", version, expect=now).ok
        now = version
    name = journal.journal_name("docstrings")
    three.client.create_model_version(name, source="paceline:/by-hand", tags={"version": "x"})
    whole = journal.read(three, "docstrings")
    assert [one.version for one in whole] == [1, 2, 3, 1, 2]
    assert all(one.outcome == "done" for one in whole)
    monkeypatch.setattr(journal, "WINDOW", 3)
    assert journal.read(three, "docstrings") == whole[-2:]
    assert promote(three, "docstrings", 3, expect=2).ok
    monkeypatch.setattr(journal, "WINDOW", 1)  # which shows the newest only
    assert journal.read(three, "docstrings")[-1].version == 3


def test_an_entry_reads_as_a_sentence(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 3, expect=1)
    told = three.client.get_model_version("docstrings.journal", "2").description or ""
    assert told.startswith("v3 promoted, in place of v1.\n\nAt ")
    assert "[v3](#/models/docstrings/versions/3)" in told
