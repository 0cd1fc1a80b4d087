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

from registry.errors import NotFoundError, StoreError
from registry.promotion import Outcome, choose_earlier, promote, rollback
from registry.store import PairVersion, Store
from registry.versions import PREVIOUS
from speculation.records import Phase
from tests.registry import tiny
from tests.registry.conftest import registered

WRITES = ("set_model_version_tag", "set_registered_model_alias", "delete_registered_model_alias")


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
    refused = promote(store, "docstrings", 4, expect=3)
    assert "v4 was rolled back (alarm a-7: dead draft)" in refused.statement
    assert promote(store, "docstrings", 4, expect=3, force="the alarm was false").ok


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
        for name in (*WRITES, "update_registered_model"):
            real = getattr(client, name)

            def counted(*args: Any, _real: Any = real, _name: str = name) -> Any:
                if len(done) == number:
                    raise Killed
                done.append(_name)
                return _real(*args)

            patched.setattr(client, name, counted)
        yield done


def test_killed_at_any_write_the_old_or_the_new_pair_is_champion_and_a_rerun_heals(
    three: Store,
) -> None:
    promote(three, "docstrings", 1, expect=None)
    seen = set()
    for number in itertools.count():
        with killed_at_write(three, number) as done:
            try:
                promote(three, "docstrings", 3, expect=1)
            except Killed:
                pass
            else:
                break
        seen.add(aliases(three)["champion"])
        assert promote(three, "docstrings", 3, expect=1).ok
        assert aliases(three) == {"champion": 3, "previous": 1}
        assert three.pairs("docstrings")[0].promoted
        three.client.set_registered_model_alias("docstrings", "champion", "1")  # once more
        three.client.delete_registered_model_alias("docstrings", "previous")
        three.client.delete_model_version_tag("docstrings", "3", "paceline.promoted")
        three.client.set_registered_model_alias("docstrings", "candidate", "3")
    assert seen == {1, 3}
    assert len(done) == 5


def test_killed_while_rolling_back_a_rerun_heals(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    promote(three, "docstrings", 3, expect=1)
    with killed_at_write(three, 1), pytest.raises(Killed):
        rollback(three, "docstrings", reason="dead draft")
    assert aliases(three)["champion"] == 3
    assert rollback(three, "docstrings", reason="dead draft").ok
    assert aliases(three) == {"champion": 1, "previous": 3}


def test_of_two_concurrent_promotions_one_wins_and_the_other_says_so(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(three, "docstrings", 1, expect=None)
    start = threading.Barrier(2)
    read = Store.champion

    def slowly(self: Store, pairing: str) -> PairVersion | None:
        found = read(self, pairing)
        time.sleep(0.1)  # between the look and the write, where the other would come in
        return found

    def race(version: int) -> Outcome:
        own = Store(three.url)
        assert own.client is not None
        start.wait(timeout=30)
        return promote(own, "docstrings", version, expect=1).outcome

    monkeypatch.setattr(Store, "champion", slowly)
    with ThreadPoolExecutor(2) as racers:
        outcomes = dict(zip((2, 3), racers.map(race, (2, 3)), strict=True))
    assert sorted(outcomes.values()) == [Outcome.OVERTAKEN, Outcome.PROMOTED]
    winner = next(version for version, out in outcomes.items() if out is Outcome.PROMOTED)
    assert aliases(three)["champion"] == winner
    assert aliases(three)["previous"] == 1


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


def test_an_alias_moved_by_another_host_at_the_same_time_is_told(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = three.client.set_registered_model_alias

    def overwritten(pairing: str, alias: str, version: str) -> None:
        write(pairing, alias, version)
        write(pairing, alias, "2")

    monkeypatch.setattr(three.client, "set_registered_model_alias", overwritten)
    with pytest.raises(StoreError, match="another host moved the alias at the same time"):
        promote(three, "docstrings", 1, expect=None)
