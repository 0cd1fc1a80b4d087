"""What a pairing lacks follows from how things are, never from what happened."""

from __future__ import annotations

from flows.missing import concluded, missing
from registry.versions import CHAMPION, PREVIOUS, ROLLED_BACK, PairVersion, ReleaseVersion

OLD, NEW = "a" * 64, "b" * 64


def release(version: int, digest: str) -> ReleaseVersion:
    return ReleaseVersion("line", version, digest, f"/targets/{version}", "m-1", 0.0)


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


def test_a_release_whose_pair_failed_waits_for_a_person() -> None:
    pairs = [pair(1, OLD, "FAIL")]
    assert missing("line", [release(1, OLD)], pairs, None) == []


def test_a_pair_that_was_rolled_back_is_not_promoted_again() -> None:
    champion = pair(1, OLD, "PASS", CHAMPION)
    pairs = [pair(2, NEW, "PASS", tags={ROLLED_BACK: "dead draft"}), champion]
    assert missing("line", [release(1, OLD), release(2, NEW)], pairs, champion) == []


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
