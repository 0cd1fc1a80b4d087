"""What a pairing lacks follows from how things are, never from what happened."""

from __future__ import annotations

from typing import Any

import pytest

from configuration.limits import Limits
from configuration.settings import Pairing
from flows import missing as module
from flows.missing import concluded
from registry.leaving import LEFT
from registry.versions import (
    ADAPTERS,
    CHAMPION,
    ENDED_EARLY,
    PREVIOUS,
    ROLLED_BACK,
    STANDS_IN,
    PairVersion,
    ReleaseVersion,
)

OLD, NEW = "a" * 64, "b" * 64
HOUR = 3600.0


def release(version: int, digest: str) -> ReleaseVersion:
    return ReleaseVersion("line", version, digest, f"/targets/{version}", "m-1", 0.0)


def missing(
    *state: Any, line: Pairing | None = None, now: float = HOUR, **more: Any
) -> list[module.Missing]:
    """An hour after everything was released, which is no reason by itself to go live."""
    return module.missing(state[0], line or Pairing(), *state[1:], now=now, **more)


def pair(
    version: int, digest: str, verdict: str, *aliases: str, tags: dict[str, str] | None = None
) -> PairVersion:
    return PairVersion(
        "line", version, f"p-{version}", digest, "head", verdict, aliases, tags or {}, "", "", 0.0
    )


def test_nothing_released_is_nothing_to_do() -> None:
    assert missing("line", [], [], None) == []


def test_a_release_without_a_pair_is_retrained() -> None:
    ((flow, parameters, key, _),) = missing("line", [release(1, OLD)], [], None)
    assert flow == "retrain"
    assert parameters == {"pairing": "line", "release": OLD}
    assert key == f"retrain:line:{OLD}"


def test_a_pair_is_made_anew_where_the_pairings_adapters_are_others_and_serves_on_meanwhile() -> (
    None
):
    champion = pair(1, OLD, "PASS", CHAMPION)
    ((flow, parameters, key, why),) = missing(
        "line", [release(1, OLD)], [champion], champion, adapters=NEW
    )
    assert (flow, parameters) == ("retrain", {"pairing": "line", "release": OLD})
    assert key == f"retrain:line:{OLD}:adapters-{NEW[:12]}", "another name: the first was used up"
    assert why == "v1 was judged with other adapters than the pairing has now"
    made = pair(2, OLD, "PASS", CHAMPION, tags={ADAPTERS: NEW})
    assert missing("line", [release(1, OLD)], [made, champion], made, adapters=NEW) == []
    ((_, _, _, why),) = missing("line", [release(1, OLD)], [made, champion], made)
    assert why == "pair 1 passed for release 1 and is not the champion"
    failed = pair(2, OLD, "FAIL", tags={ADAPTERS: NEW})
    assert missing("line", [release(1, OLD)], [failed, champion], champion, adapters=NEW) == []


def test_a_served_release_needs_nothing() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    assert missing("line", [release(1, OLD)], [champion], champion) == []


def test_only_the_newest_release_counts() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    releases = [release(2, NEW), release(1, OLD)]
    ((_, parameters, _, _),) = missing("line", releases, [champion], champion)
    assert parameters["release"] == NEW


def test_a_pair_that_passed_and_is_not_champion_is_left_to_its_own_retrain() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    pairs = [pair(3, NEW, "PASS"), pair(2, NEW, "FAIL"), champion]
    ((flow, parameters, key, _),) = missing(
        "line", [release(1, OLD), release(2, NEW)], pairs, champion
    )
    assert (flow, parameters["release"], key) == ("retrain", NEW, f"retrain:line:{NEW}")


@pytest.mark.parametrize("verdict", ["FAIL", "INCONCLUSIVE"])
def test_a_release_whose_pair_is_not_promoted_goes_live_without_and_is_not_retrained(
    verdict: str,
) -> None:
    pairs = [pair(1, OLD, verdict)]
    ((flow, parameters, key, why),) = missing("line", [release(1, OLD)], pairs, None)
    assert (flow, key) == ("go_live", f"go_live:line:{OLD}")
    assert parameters == {"pairing": "line", "release": OLD, "why": why}
    assert why == f"because its own draft, v1, is not promoted ({verdict})"
    stands = pair(2, OLD, "UNJUDGED", CHAMPION, tags={STANDS_IN: why})
    assert missing("line", [release(1, OLD)], [*pairs, stands], stands) == []


def test_a_pair_whose_measuring_was_cut_short_is_measured_again_a_few_times() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    releases = [release(1, OLD), release(2, NEW)]
    cut: list[PairVersion] = []
    for again in range(1, module.MEASUREMENTS):
        last = pair(1 + again, NEW, "INCONCLUSIVE", tags={ENDED_EARLY: "it hangs"})
        cut.append(last)
        pairs = [*cut, champion]
        ((flow, _, key, why),) = missing("line", releases, pairs, champion)
        assert (flow, key) == ("retrain", f"retrain:line:{NEW}:again-{again}"), "and none goes live"
        assert why == f"measuring pair {last.version} ended early: it hangs"
        assert concluded(NEW, pairs, champion) is None
        told = [*pairs, pair(8, NEW, "FAIL")]  # measured again, whole, and not good enough
        assert [flow for flow, *_ in missing("line", releases, told, champion)] == ["go_live"]
    pairs = [pair(9, NEW, "INCONCLUSIVE", tags={ENDED_EARLY: "it hangs"}), *cut, champion]
    assert [flow for flow, *_ in missing("line", releases, pairs, champion)] == ["go_live"]
    ended = concluded(NEW, pairs, champion)
    assert ended is not None
    assert (ended["phase"], ended["promoted"]) == ("INCONCLUSIVE", False)
    assert ended["statement"].endswith("INCONCLUSIVE, since measuring ended early: it hangs")


def test_with_its_pair_a_release_waits_as_long_as_it_may_and_goes_on_being_retrained() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    state = "line", [release(1, OLD), release(2, NEW)], [champion], champion
    line = Pairing(max_wait_hours=2)
    assert [flow for flow, *_ in missing(*state, line=line, now=2 * HOUR - 1)] == ["retrain"]
    found = missing(*state, line=line, now=2 * HOUR)
    assert [flow for flow, *_ in found] == ["go_live", "retrain"]
    assert found[0][3] == "because it waited 2.0 hours for its draft (max_wait_hours)"


def test_while_users_stay_on_an_earlier_release_none_goes_live_and_drafts_are_made() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    releases = [release(1, OLD), release(2, NEW)]
    line = Pairing(on_release="at_once", max_wait_hours=1.0)
    state = ("line", releases, [champion], champion)
    assert [flow for flow, *_ in missing(*state, line=line, pinned=NEW)] == ["go_live"]
    found = missing(*state, line=line, now=9 * HOUR, pinned=OLD)
    assert [(flow, parameters["release"]) for flow, parameters, *_ in found] == [("retrain", NEW)]


MADE = {f"retrain:line:{NEW}": "its run is over"}


def test_a_retrain_that_nobody_works_on_any_more_withholds_no_release() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    state = "line", [release(1, OLD), release(2, NEW)], [champion], champion
    assert [flow for flow, *_ in missing(*state)] == ["retrain"]
    (flow, _, _, why), (again, *_) = missing(*state, ended=MADE)
    assert flow == "go_live"
    assert why == "because nobody makes its draft any more: its run is over"
    assert again == "retrain", "which a repair may bring back to life"


@pytest.mark.parametrize("stands_in", [True, False])
def test_what_passed_and_was_not_promoted_by_its_retrain_is_promoted_against_the_champion_of_now(
    stands_in: bool,
) -> None:
    tags = {STANDS_IN: "until its own is made"} if stands_in else {}
    champion = pair(4, NEW if stands_in else OLD, "UNJUDGED", CHAMPION, tags=tags)
    pairs = [pair(3, NEW, "PASS"), pair(2, NEW, "FAIL"), champion]
    state = "line", [release(1, OLD), release(2, NEW)], pairs, champion
    assert [flow for flow, *_ in missing(*state)] == ["retrain"], "which may be about to"
    ((flow, parameters, key, why),) = missing(*state, ended=MADE)
    assert (flow, key) == ("promote", "promote:line:3:4")
    assert parameters == {"pairing": "line", "version": 3, "expect": 4, "by_hand": False}
    assert why == "pair 3 passed and is not the champion"
    stays = [flow for flow, *_ in missing(*state, ended=MADE, pinned=OLD)]
    assert "promote" not in stays, "while users are to stay on another release"


def test_what_passed_and_cannot_be_promoted_withholds_no_release() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    pairs = [pair(3, NEW, "PASS"), champion]
    ended = {**MADE, "promote:line:3:1": "its files were deleted"}
    state = "line", [release(1, OLD), release(2, NEW)], pairs, champion
    assert [flow for flow, *_ in missing(*state, ended=ended)] == ["go_live", "promote"]


def test_a_person_is_asked_where_that_is_the_policy_and_where_the_gate_could_not_tell() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    releases = [release(1, OLD), release(2, NEW)]
    person = Pairing(limits=Limits(approval="person"))
    passed = [pair(3, NEW, "PASS"), champion]
    ((flow, parameters, key, _),) = missing(
        "line", releases, passed, champion, line=person, ended=MADE
    )
    assert (flow, key, parameters["version"]) == ("approve", "approve:line:3", 3)
    unsure = [pair(3, NEW, "INCONCLUSIVE"), champion]
    flows = [flow for flow, *_ in missing("line", releases, unsure, champion, ended=MADE)]
    assert flows == ["go_live", "approve"], "its release does not wait for the answer"
    left = [pair(3, NEW, "PASS", tags={LEFT: "too slow"}), champion]
    flows = [flow for flow, *_ in missing("line", releases, left, champion, ended=MADE)]
    assert flows == ["go_live"], "whoever said no is not asked again"


def test_at_once_a_release_does_not_wait_and_its_draft_is_made_when_it_serves() -> None:
    line = Pairing(on_release="at_once")
    champion = pair(1, OLD, "PASS", CHAMPION)
    releases = [release(1, OLD), release(2, NEW)]
    ((flow, _, _, why),) = missing("line", releases, [champion], champion, line=line, now=0.0)
    assert (flow, why) == ("go_live", 'because on_release = "at_once"')
    stands = pair(2, NEW, "UNJUDGED", CHAMPION, tags={STANDS_IN: why})
    pairs = [stands, champion]
    ((flow, parameters, _, why),) = missing("line", releases, pairs, stands, line=line)
    assert (flow, parameters["release"]) == ("retrain", NEW)
    assert why == "release 2 has no pair of its own"
    own = pair(3, NEW, "PASS", CHAMPION)
    assert missing("line", releases, [own, *pairs], own, line=line) == []


def test_the_old_draft_that_stands_in_is_not_taken_for_the_releases_own() -> None:
    stands = pair(2, NEW, "PASS", CHAMPION, tags={STANDS_IN: "until its own is made"})
    ((flow, *_),) = missing("line", [release(2, NEW)], [stands], stands)
    assert flow == "retrain"
    assert concluded(NEW, [stands], stands) is None


def test_a_pair_that_was_rolled_back_is_not_promoted_again() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    pairs = [pair(2, NEW, "PASS", tags={ROLLED_BACK: "dead draft"}), champion]
    ((flow, *_),) = missing("line", [release(1, OLD), release(2, NEW)], pairs, champion)
    assert flow == "go_live", "nor does its release wait for another"


def test_a_release_has_ended_when_its_pair_serves_or_was_refused() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    assert concluded(NEW, [champion], champion) is None
    assert concluded(NEW, [pair(2, NEW, "PASS"), champion], champion) is None, "to be promoted yet"
    served = concluded(OLD, [champion], champion)
    assert served is not None
    assert served["promoted"]
    gone = pair(1, OLD, "PASS", PREVIOUS)
    succeeded = concluded(OLD, [gone], pair(2, NEW, "PASS", CHAMPION))
    assert succeeded is not None
    assert succeeded["promoted"], "a champion that was followed by another was one"
    refused = concluded(NEW, [pair(2, NEW, "INCONCLUSIVE"), champion], champion)
    assert refused is not None
    assert not refused["promoted"]
    assert refused["phase"] == "INCONCLUSIVE"
