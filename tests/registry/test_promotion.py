from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from registry import journal
from registry.effects import heal
from registry.errors import NotFoundError, StoreError
from registry.expecting import expected
from registry.journal import Entry
from registry.promotion import Outcome, Promotion, choose_earlier, promote, rollback
from registry.standing_in import fall_back
from registry.store import PairVersion, Store
from registry.versions import JUDGED_AGAINST, PREVIOUS
from speculation.records import Phase
from tests.registry import tiny
from tests.registry.conftest import registered
from tests.registry.hosts import WRITES


def aliases(store: Store) -> dict[str, int]:
    return {alias: pair.version for pair in store.pairs("docstrings") for alias in pair.aliases}


def test_the_first_champion_and_its_successor(three: Store) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    first = promote(three, "docstrings", 1, expect=None, clock=lambda: noon)
    assert (first.ok, first.outcome) == (True, Outcome.PROMOTED)
    assert first.statement == "v1 is now the first champion"
    assert first.champion is not None
    assert aliases(three) == {"champion": 1, "candidate": 3}
    second = promote(three, "docstrings", 3, expect=1)
    assert second.statement == "v3 is now champion, v1 is previous"
    assert aliases(three) == {"champion": 3, "previous": 1}
    champion = three.champion("docstrings")
    assert champion == second.champion
    assert three.pairs("docstrings")[2].promoted == "2026-01-02T12:00:00+00:00"
    page = three.client.get_registered_model("docstrings").description or ""
    assert page.startswith("**Champion: [v3](#/models/docstrings/versions/3)**")
    assert "2026-01-02 12:00" in page


def test_promoting_the_champion_again_changes_nothing(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 3, expect=1)
    again = promote(three, "docstrings", 3, expect=1)
    assert (again.ok, again.outcome) == (True, Outcome.ALREADY)
    assert aliases(three) == {"champion": 3, "previous": 1}


def test_a_candidate_judged_against_another_champion_is_overtaken(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 2, expect=1)
    for expect, said in ((1, "v1"), (None, "none")):
        late = promote(three, "docstrings", 3, expect=expect)
        assert (late.ok, late.outcome) == (False, Outcome.OVERTAKEN)
        assert f"v3 was judged against {said}, but the champion is v2" in late.statement
    assert aliases(three) == {"champion": 2, "previous": 1, "candidate": 3}


@pytest.mark.parametrize("phase", [Phase.FAIL, Phase.INCONCLUSIVE, None])
def test_only_a_pass_is_promoted_unless_it_is_forced_with_a_reason(
    store: Store, target: Path, tmp_path: Path, phase: Phase | None
) -> None:
    registered(store, target, tmp_path / "a", phase=phase)
    refused = promote(store, "docstrings", 1, expect=None, force="  ")
    assert (refused.ok, refused.outcome) == (False, Outcome.REFUSED)
    assert f"v1 has the verdict {phase or 'UNJUDGED'}, wanted PASS" in refused.statement
    assert aliases(store) == {}
    forced = promote(store, "docstrings", 1, expect=None, force="the only draft that fits")
    assert forced.ok
    assert forced.champion is not None
    assert forced.champion.forced == "the only draft that fits"


def test_a_version_that_is_not_there_cannot_be_promoted(
    store: Store, target: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="docstrings has no version 4"):
        promote(store, "docstrings", 4, expect=None)
    registered(store, target, tmp_path / "a")
    with pytest.raises(NotFoundError, match="docstrings has no version 4"):
        promote(store, "docstrings", 4, expect=None)


def test_rolling_back_chooses_among_the_pairs_of_the_serving_release(
    store: Store, target: Path, tmp_path: Path
) -> None:
    registered(store, target, tmp_path / "a")
    newer = tiny.target(tmp_path / "newer", seed=9)
    registered(store, newer, tmp_path / "b")
    promote(store, "docstrings", 1, expect=None)
    promote(store, "docstrings", 2, expect=1)
    stuck = rollback(store, "docstrings")
    assert (stuck.ok, stuck.outcome) == (False, Outcome.REFUSED)
    assert "no other pair of release" in stuck.statement
    assert "is no other pair of release" in rollback(store, "docstrings", to=1).statement
    assert aliases(store) == {"champion": 2, "previous": 1}
    assert not store.pairs("docstrings")[0].rolled_back

    registered(store, newer, tmp_path / "ngram", "ngram", phase=Phase.FAIL)
    registered(store, newer, tmp_path / "c", seed=1)
    promote(store, "docstrings", 4, expect=2)
    back = rollback(store, "docstrings", reason="alarm a-7: dead draft")
    assert back.ok
    assert aliases(store) == {"champion": 2, "previous": 4}
    again = rollback(store, "docstrings", reason="alarm a-8: drift")
    assert again.ok
    assert again.champion is not None
    assert again.champion.draft_kind == "ngram"  # v4 was rolled back, v1 is of another release
    # Or no server would follow: it has no PASS, and somebody has to have said why it serves.
    assert again.champion.forced == "fallen back to: alarm a-8: drift"
    refused = promote(store, "docstrings", 4, expect=3)
    assert "v4 was rolled back (alarm a-7: dead draft)" in refused.statement
    assert promote(store, "docstrings", 4, expect=3, force="the alarm was false").ok


def test_a_promotion_takes_nobody_back_to_an_earlier_release_without_a_word(
    store: Store, target: Path, tmp_path: Path
) -> None:
    registered(store, target, tmp_path / "a")
    registered(store, tiny.target(tmp_path / "newer", seed=9), tmp_path / "b")
    promote(store, "docstrings", 1, expect=None)
    assert promote(store, "docstrings", 2, expect=1).ok, "forward it goes"
    refused = promote(store, "docstrings", 1, expect=2)
    assert refused.outcome is Outcome.REFUSED
    assert "v1 is of release 1, and release 2 is serving" in refused.statement
    assert aliases(store)["champion"] == 2
    back = promote(store, "docstrings", 1, expect=2, force="release 2 answers wrongly")
    assert back.ok
    assert back.champion is not None
    assert back.champion.forced == "release 2 answers wrongly"


def test_nobody_goes_back_to_what_was_left_or_never_served(
    store: Store, target: Path, tmp_path: Path
) -> None:
    for number, phase in enumerate((Phase.PASS, Phase.FAIL, Phase.PASS)):
        registered(store, target, tmp_path / str(number), seed=number, phase=phase)
    promote(store, "docstrings", 1, expect=None)
    promote(store, "docstrings", 3, expect=1)
    assert rollback(store, "docstrings", reason="dead draft").ok
    assert aliases(store)["champion"] == 1
    for to, why in ((3, "v3 was rolled back (dead draft)"), (2, "v2 has the verdict FAIL")):
        refused = rollback(store, "docstrings", to=to)
        assert refused.outcome is Outcome.REFUSED
        assert refused.statement.startswith(why)
    assert aliases(store)["champion"] == 1


def test_a_pair_that_is_left_without_a_word_is_marked_all_the_same(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 3, expect=1)
    assert rollback(three, "docstrings", reason=" ").ok
    refused = promote(three, "docstrings", 3, expect=1)
    assert "v3 was rolled back (no reason was given)" in refused.statement


def test_who_cannot_go_back_is_told_the_command_that_can(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    assert "`paceline rollback --to ngram`" in rollback(three, "docstrings", to=1).statement


def test_a_pair_that_another_host_deletes_meanwhile_is_said_to_be_deleted(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune that looked before the entry was written: nobody moved an alias by hand."""
    promote(three, "docstrings", 1, expect=None)
    write = journal.append

    def just_after_the_other_host(store: Store, pairing: str, entry: Entry) -> None:
        if store.pair(pairing, 2) is not None:
            store.client.delete_model_version(pairing, "2")
        write(store, pairing, entry)

    monkeypatch.setattr(journal, "append", just_after_the_other_host)
    refused = promote(three, "docstrings", 2, expect=1)
    assert refused.outcome is Outcome.REFUSED
    assert refused.statement == "v2 was deleted while it was to become champion: v1 still is"
    assert refused.champion is not None
    (warning,) = three.describe("docstrings").warnings
    assert warning.startswith("v2 was deleted while it was to become champion, and v1 still is")
    assert promote(three, "docstrings", 1, expect=1).ok
    assert three.describe("docstrings").warnings == ()


def test_without_a_champion_there_is_nothing_to_go_back_from(store: Store) -> None:
    assert "has no champion" in rollback(store, "docstrings").statement


def earlier(version: int, **fields: Any) -> PairVersion:
    tags = {f"paceline.{key}": str(value) for key, value in fields.pop("tags", {}).items()}
    plain: dict[str, Any] = {
        "pairing": "docstrings",
        "pair_id": f"p-{version}",
        "release": "r",
        "draft_kind": "head",
        "verdict": "PASS",
        "aliases": (),
        "model_id": "",
        "run_id": "",
        "registered": 0.0,
    }
    return PairVersion(version=version, tags=tags, **{**plain, **fields})


def test_the_best_pair_to_go_back_to_is_previous_then_the_last_promoted_then_a_pass() -> None:
    pairs = [
        earlier(1, aliases=(PREVIOUS,)),
        earlier(2, tags={"promoted": "2026-02"}),
        earlier(3, tags={"promoted": "2026-01"}),
        earlier(4),
        earlier(5, draft_kind="ngram", verdict="FAIL"),
        earlier(6, draft_kind="none", verdict="FAIL"),
        earlier(7, tags={"rolled_back": "dead", "promoted": "2026-03"}, aliases=()),
        earlier(8, verdict="FAIL"),
    ]
    order = []
    while (chosen := choose_earlier(pairs)) is not None:
        order.append(chosen.version)
        pairs.remove(chosen)
    assert order == [1, 2, 3, 4, 5, 6]


class Killed(BaseException):
    """The process is gone; nothing catches it."""


@contextmanager
def killed_at_write(store: Store, number: int) -> Iterator[list[str]]:
    """The process dies before its write `number` (from 0) to MLflow."""
    done: list[str] = []
    client = store.client
    with pytest.MonkeyPatch.context() as patched:
        for name in WRITES:
            real = getattr(client, name)

            def counted(*args: Any, _real: Any = real, _name: str = name, **named: Any) -> Any:
                if len(done) == number:
                    raise Killed
                done.append(_name)
                return _real(*args, **named)

            patched.setattr(client, name, counted)
        yield done


def test_killed_at_any_write_nothing_has_changed_or_the_next_look_ends_it(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    now, healed = 1, set()
    for number in itertools.count():
        other, before = 4 - now, aliases(three)
        with killed_at_write(three, number) as done:
            try:
                promote(three, "docstrings", other, expect=now)
            except Killed:
                pass
            else:
                break
        decided = "create_model_version" in done
        assert aliases(three)["champion"] in ({now, other} if decided else {now})
        healing = heal(three, "docstrings")
        assert healing is not None
        assert healing.version == (other if decided else now)
        healed.add(healing.version == other)
        if decided:
            assert aliases(three) == {"champion": other, "previous": now}
        else:
            assert aliases(three) == before
        assert promote(three, "docstrings", other, expect=now).ok
        assert aliases(three) == {"champion": other, "previous": now}
        assert three.pair("docstrings", other).promoted  # type: ignore[union-attr]
        assert three.describe("docstrings").warnings == ()
        now = other
    assert healed == {True, False}
    assert "set_registered_model_alias" in done
    assert len(done) >= 7


def test_killed_while_rolling_back_the_same_call_ends_it_and_goes_back_once(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 2, expect=1)
    promote(three, "docstrings", 3, expect=2)
    with killed_at_write(three, 2), pytest.raises(Killed):
        rollback(three, "docstrings", reason="dead draft")
    assert aliases(three)["champion"] == 3
    (warning,) = three.describe("docstrings").warnings
    assert warning.startswith("the promotion of v2 was interrupted, or is under way (entry 4, ")
    again = rollback(three, "docstrings", reason="dead draft")
    assert again.ok
    assert "a rollback that was interrupted is done" in again.statement
    assert aliases(three) == {"champion": 2, "previous": 3}
    assert three.pairs("docstrings")[0].rolled_back == "dead draft"


def test_whoever_says_what_is_to_be_left_goes_back_once(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 2, expect=1)
    promote(three, "docstrings", 3, expect=2)
    first = rollback(three, "docstrings", leave=3, reason="alarm a-7")
    again = rollback(three, "docstrings", leave=3, reason="alarm a-7")
    assert (first.outcome, again.outcome) == (Outcome.PROMOTED, Outcome.ALREADY)
    assert again.statement.startswith("v3 is champion no longer, v2 is")
    assert aliases(three) == {"champion": 2, "previous": 3}


def test_a_pair_whose_files_are_gone_or_are_anothers_is_passed_over(
    three: Store, target: Path, tmp_path: Path
) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 2, expect=1)
    promote(three, "docstrings", 3, expect=2)
    gone = three.pair("docstrings", 2)
    assert gone is not None
    place = Path(three.client.get_logged_model(gone.model_id).artifact_location)
    kept = (place / "pair.json").read_text()
    (place / "pair.json").unlink()
    refused = rollback(three, "docstrings", to=2)
    assert refused.outcome is Outcome.REFUSED
    assert "v2: its files were deleted from MLflow" in refused.statement
    first = three.pair("docstrings", 1)
    assert first is not None
    (place / "pair.json").write_text(
        (
            Path(three.client.get_logged_model(first.model_id).artifact_location) / "pair.json"
        ).read_text()
    )
    refused = rollback(three, "docstrings", to=2)
    assert "v2: its pair.json is of another draft than its tag says" in refused.statement
    assert aliases(three)["champion"] == 3
    assert rollback(three, "docstrings").statement == "v1 is now champion, v3 is previous"
    (place / "pair.json").write_text(kept)
    assert rollback(three, "docstrings").statement == "v2 is now champion, v1 is previous"


def test_another_pairings_pair_cannot_be_promoted(
    three: Store, target: Path, tmp_path: Path
) -> None:
    registered(three, tiny.target(tmp_path / "other", seed=7), tmp_path / "pair", pairing="other")
    (theirs,) = three.pairs("other")
    source = three.client.get_model_version("other", "1").source
    assert source is not None
    three.client.create_model_version("docstrings", source=source, tags=dict(theirs.tags))
    refused = promote(three, "docstrings", 4, expect=None)
    assert refused.outcome is Outcome.REFUSED
    assert "is none of docstrings's: it is another pairing's" in refused.statement


def test_an_alias_moved_by_hand_is_told_and_taken_over_or_undone(
    store: Store, target: Path, tmp_path: Path
) -> None:
    for number, phase in enumerate([Phase.PASS, Phase.PASS, Phase.FAIL]):
        registered(store, target, tmp_path / str(number), seed=number, phase=phase)
    promote(store, "docstrings", 1, expect=None)
    by_hand = store.client.set_registered_model_alias

    by_hand("docstrings", "champion", "2")
    (warning,) = store.describe("docstrings").warnings
    assert warning.startswith("the alias champion was moved by hand from v1 to v2")
    adopted = promote(store, "docstrings", 2, expect=1)
    assert adopted.outcome is Outcome.ALREADY
    assert "its alias was moved by hand, which is noted now" in adopted.statement
    assert store.describe("docstrings").warnings == ()

    by_hand("docstrings", "champion", "3")
    moved, unjudged = store.describe("docstrings").warnings
    assert "from v2 to v3" in moved
    assert "the champion v3 has the verdict FAIL and was not forced" in unjudged
    assert promote(store, "docstrings", 3, expect=3).outcome is Outcome.REFUSED
    forced = promote(store, "docstrings", 3, expect=3, force="it is for a test")
    assert forced.ok
    assert forced.champion is not None
    assert forced.champion.forced == "it is for a test"
    assert store.describe("docstrings").warnings == ()

    by_hand("docstrings", "champion", "2")
    assert promote(store, "docstrings", 3, expect=2, force="put back").ok
    assert store.describe("docstrings").warnings == ()


def test_a_champion_deleted_by_hand_is_told_and_another_is_promoted(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 3, expect=1)
    three.client.delete_model_version("docstrings", "3")
    (warning,) = three.describe("docstrings").warnings
    assert warning.startswith("v3 was champion, and no version carries the alias now")
    assert promote(three, "docstrings", 1, expect=None).ok
    assert three.describe("docstrings").warnings == ()


def test_a_foreign_version_under_the_alias_can_be_promoted_away(
    three: Store, tmp_path: Path
) -> None:
    promote(three, "docstrings", 1, expect=None)
    three.client.create_model_version("docstrings", source=str(tmp_path), run_id="0" * 32)
    three.client.set_registered_model_alias("docstrings", "champion", "4")
    told = three.describe("docstrings").warnings
    assert any("v4 carries the alias champion and is no pair" in warning for warning in told)
    assert promote(three, "docstrings", 3, expect=1).outcome is Outcome.OVERTAKEN
    assert promote(three, "docstrings", 3, expect=4).ok
    assert aliases(three)["champion"] == 3
    assert three.describe("docstrings").warnings == (
        "not registered by Paceline, and passed over: v4",
    )


def test_of_two_hosts_that_decide_on_the_same_champion_the_first_entry_counts(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host's lock orders nothing: it promotes between our decision and our entry."""
    promote(three, "docstrings", 1, expect=None)
    write = journal.append
    other = Store(three.url, locks=three._locks.parent / "locks of another host")

    def late(store: Store, pairing: str, entry: Entry) -> None:
        if store is three:
            assert promote(other, "docstrings", 2, expect=1).ok
        write(store, pairing, entry)

    monkeypatch.setattr(journal, "append", late)
    lost = promote(three, "docstrings", 3, expect=1)
    assert lost.outcome is Outcome.OVERTAKEN
    assert "but the champion is v2, by " in lost.statement
    assert aliases(three) == {"champion": 2, "previous": 1, "candidate": 3}
    monkeypatch.undo()
    assert promote(three, "docstrings", 3, expect=2).ok


def test_a_host_that_slept_before_its_write_of_the_alias_puts_the_later_champion_back(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(three, "docstrings", 1, expect=None)
    other = Store(three.url, locks=three._locks.parent / "locks of another host")
    write = three.client.set_registered_model_alias

    def slept(pairing: str, alias: str, version: str) -> None:
        if alias == "champion" and version == "2":
            monkeypatch.undo()
            assert promote(other, "docstrings", 3, expect=2).ok
        write(pairing, alias, version)

    monkeypatch.setattr(three.client, "set_registered_model_alias", slept)
    told = promote(three, "docstrings", 2, expect=1)
    assert told.outcome is Outcome.PROMOTED
    assert told.statement == "v2 was made champion, and v3 followed it at once"
    assert aliases(three) == {"champion": 3, "previous": 2}
    assert three.describe("docstrings").warnings == ()


def test_an_entry_that_was_sent_twice_promotes_once(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = journal.append

    def twice(store: Store, pairing: str, entry: Entry) -> None:
        write(store, pairing, entry)
        write(store, pairing, entry)  # MLflow's client tries again where an answer was lost

    monkeypatch.setattr(journal, "append", twice)
    assert promote(three, "docstrings", 1, expect=None).ok
    assert promote(three, "docstrings", 2, expect=1).ok
    assert [entry.version for entry in journal.read(three, "docstrings")] == [1, 2]


@pytest.mark.parametrize("hosts", ["one", "two"])
def test_of_two_concurrent_promotions_one_wins_and_the_other_says_so(
    three: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str
) -> None:
    """Both were judged against v1. On one host a lock makes the second wait; on two hosts both look
    before either writes, and the journal decides."""
    promote(three, "docstrings", 1, expect=None)
    both = threading.Barrier(2)
    write = journal.append

    def after_both_decided(store: Store, pairing: str, entry: Entry) -> None:
        if hosts == "two":
            both.wait(timeout=30)
        else:
            time.sleep(0.1)  # between the look and the write, where the other would come in
        write(store, pairing, entry)

    def race(version: int) -> Promotion:
        locks = three._locks if hosts == "one" else tmp_path / f"locks of host {version}"
        own = Store(three.url, locks=locks)
        number = expected(own, "docstrings", version)
        assert number == 1
        both.wait(timeout=30)
        return promote(own, "docstrings", version, expect=number)

    for version in ("2", "3"):
        three.client.set_model_version_tag("docstrings", version, JUDGED_AGAINST, "1")
    monkeypatch.setattr(journal, "append", after_both_decided)
    with ThreadPoolExecutor(2) as racers:
        told = dict(zip((2, 3), racers.map(race, (2, 3)), strict=True))
    outcomes = {version: promotion.outcome for version, promotion in told.items()}
    assert sorted(outcomes.values()) == [Outcome.OVERTAKEN, Outcome.PROMOTED]
    winner = next(version for version, out in outcomes.items() if out is Outcome.PROMOTED)
    statement = told[5 - winner].statement
    assert f"was judged against v1, but the champion is v{winner}" in statement
    assert statement.endswith(f"with `--expect {winner}`")
    assert aliases(three)["champion"] == winner
    assert aliases(three)["previous"] == 1


def test_without_a_word_the_champion_is_expected_that_the_pair_was_judged_against(
    three: Store, target: Path, tmp_path: Path
) -> None:
    four = registered(three, target, tmp_path / "4", seed=4, judged_against=0)
    assert four.judged_against == 0
    assert expected(three, "docstrings", 4) is None
    assert expected(three, "docstrings", 3) is None, "on record nowhere, and none is champion"
    promote(three, "docstrings", 1, expect=None)
    assert expected(three, "docstrings", 3) == 1, "on record nowhere: whichever is"
    assert expected(three, "docstrings", 4) is None
    assert expected(three, "docstrings", 4, force="a look at it") == 1
    assert promote(three, "docstrings", 4, expect=1).ok
    three.client.set_registered_model_alias("docstrings", "champion", "2")
    assert expected(three, "docstrings", 4) == 2, "moved by hand, and put back"


RACER = """
import sys
from registry.promotion import promote
from registry.store import Store
store = Store(sys.argv[1])
store.client
print("ready", flush=True)
sys.stdin.readline()
print(promote(store, "raced", int(sys.argv[2]), expect=None).outcome, flush=True)
"""


@pytest.mark.slow  # each process imports MLflow
def test_of_two_processes_that_promote_through_a_server_one_wins(
    server: str, target: Path, tmp_path: Path
) -> None:
    store = Store(server)
    for seed in range(2):
        registered(store, target, tmp_path / str(seed), seed=seed, pairing="raced")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, server, str(version)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for version in (1, 2)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        outcomes = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
    assert sorted(outcomes) == ["overtaken", "promoted"]
    champion = store.champion("raced")
    assert champion is not None
    assert champion.version == 1 + outcomes.index("promoted")


def test_an_alias_moved_by_hand_at_the_same_time_is_told(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = three.client.set_registered_model_alias

    def overwritten(pairing: str, alias: str, version: str) -> None:
        write(pairing, alias, version)
        write(pairing, alias, "2")

    monkeypatch.setattr(three.client, "set_registered_model_alias", overwritten)
    with pytest.raises(StoreError, match="moved by hand, or by a program"):
        promote(three, "docstrings", 1, expect=None)


@pytest.mark.parametrize("kind", ["ngram", "none"])
def test_a_release_with_one_pair_can_fall_back_to_what_needs_no_making(
    store: Store, target: Path, tmp_path: Path, kind: str
) -> None:
    registered(store, target, tmp_path / "a")
    promote(store, "docstrings", 1, expect=None)
    assert rollback(store, "docstrings").outcome is Outcome.REFUSED
    back = fall_back(store, "docstrings", kind, reason="alarm a-1: dead_draft", leave=1)
    assert back.outcome is Outcome.PROMOTED
    champion = store.champion("docstrings")
    assert champion is not None
    assert (champion.version, champion.draft_kind, champion.release) == (
        *(2, kind),
        store.pairs("docstrings")[-1].release,
    )
    assert champion.forced == "fallen back to: alarm a-1: dead_draft"
    assert champion.stands_in
    left = store.pair("docstrings", 1)
    assert left is not None
    assert left.rolled_back == "alarm a-1: dead_draft"
    again = fall_back(store, "docstrings", kind, reason="alarm a-1: dead_draft", leave=1)
    assert again.outcome is Outcome.ALREADY
    assert len(store.pairs("docstrings")) == 2


def test_there_is_nothing_to_fall_back_from_without_a_champion(store: Store) -> None:
    assert fall_back(store, "docstrings", "ngram", reason="why").outcome is Outcome.REFUSED
    with pytest.raises(ValueError, match="wanted ngram or none, and a reason"):
        fall_back(store, "docstrings", "head", reason="why")
