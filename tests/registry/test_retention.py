from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from registry import journal
from registry.journal import Entry
from registry.promotion import promote
from registry.retention import DAY_SECONDS, fates, forget
from registry.store import Store
from registry.versions import PairingState, PairVersion, ReleaseVersion

NOW = 1000 * DAY_SECONDS


def pair(version: int, release: str = "old", **fields: object) -> PairVersion:
    plain = PairVersion(
        pairing="docstrings",
        version=version,
        pair_id=f"p-{version}",
        release=release,
        draft_kind="head",
        verdict="PASS",
        aliases=(),
        tags={},
        model_id="",
        run_id="",
        registered=0.0,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def state(*pairs: PairVersion) -> PairingState:
    releases = [ReleaseVersion("docstrings", 1, "old", "/old", "", 0.0)]
    releases += [ReleaseVersion("docstrings", 2, "new", "/new", "", 0.0)]
    return PairingState("docstrings", tuple(releases), tuple(pairs))


CHAMPION = pair(20, "new", aliases=("champion",), tags={"paceline.parent": "p-4"})


def test_the_last_draft_with_weights_that_served_stays_for_the_next_retrain() -> None:
    ngram = pair(20, "new", draft_kind="ngram", aliases=("champion",))
    before = [
        pair(9, tags={"paceline.promoted": "2026-03", "paceline.rolled_back": "it was dead"}),
        pair(8, tags={"paceline.promoted": "2026-02"}),
        pair(7, tags={"paceline.promoted": "2026-01"}),
    ]
    told = fates(state(ngram, *before), (), now=NOW, keep_newest=1)
    assert [(fate.version, fate.goes) for fate in told] == [
        *((20, False), (9, True), (8, False), (7, True))
    ]
    assert told[2].why.startswith("the next retrain may start from it")


def test_what_another_host_promotes_meanwhile_is_not_deleted(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    after = journal.read(three, "docstrings")[-1].number
    journal.append(three, "docstrings", Entry("promote", 2, 1, after, "2026"))
    assert not forget(three, "docstrings", 2), "decided, and no alias yet"
    assert three.pair("docstrings", 2) is not None


def why(about: PairVersion, *, journal: tuple[Entry, ...] = (), **options: object) -> str:
    """The reason for which it stays; empty where it goes."""
    told = fates(state(CHAMPION, about), journal, now=NOW, keep_newest=1, **options)  # type: ignore[arg-type]
    (fate,) = [fate for fate in told if fate.version == about.version]
    return "" if fate.goes else fate.why


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (pair(1, aliases=("somebodys",)), "it carries the alias somebodys"),
        (pair(1, "new"), "a rollback may need it: it is a pair of the release that is serving"),
        (pair(1, "new", verdict="FAIL", tags={"paceline.promoted": "2026"}), "a rollback may need"),
        (pair(1, "new", verdict="FAIL", draft_kind="ngram"), "a rollback may need it"),
        (pair(4), "the champion v20 started from it"),
        (pair(1, registered=NOW - 2 * DAY_SECONDS), "it is 2 days old, and 30 are kept"),
        (pair(21), "it is one of the newest 2"),
        (pair(1), ""),
        (pair(1, "new", verdict="FAIL"), ""),
    ],
)
def test_only_what_nobody_can_need_goes(about: PairVersion, said: str) -> None:
    told = fates(
        state(*sorted([CHAMPION, about], key=lambda one: -one.version)),
        (),
        now=NOW,
        keep_newest=2 if about.version == 21 else 1,
    )
    (fate,) = [fate for fate in told if fate.version == about.version]
    assert fate.goes == (not said)
    assert not said or fate.why.startswith(said)


def test_what_a_server_serves_or_a_promotion_wants_stays() -> None:
    assert why(pair(1), served=["p-1"]) == "a server says that it serves it"
    wanted = Entry("promote", 1, 20, 0, "2026", number=3)
    assert why(pair(1), journal=(wanted,)) == "a promotion is under way"
    left = Entry("promote", 9, 1, 0, "2026", number=3)
    assert why(pair(1), journal=(left,)) == "a promotion is under way"
    assert why(pair(1), journal=(replace(wanted, outcome="done"),)) == ""


def test_what_is_forgotten_leaves_its_run_and_its_report(three: Store) -> None:
    promote(three, "docstrings", 1, expect=None)
    gone, kept = three.pair("docstrings", 2), three.pair("docstrings", 1)
    assert gone is not None
    assert kept is not None
    with three.writing("docstrings"):
        assert forget(three, "docstrings", 2)
        assert not forget(three, "docstrings", 2)
        assert not forget(three, "docstrings", 1)  # it is champion
    assert [one.version for one in three.pairs("docstrings")] == [3, 1]
    assert three.client.get_run(gone.run_id).info.lifecycle_stage == "active"
    assert [a.path for a in three.client.list_artifacts(gone.run_id, "report")]
    experiment = three.client.get_run(gone.run_id).info.experiment_id
    models = {model.model_id for model in three.client.search_logged_models([experiment])}
    assert gone.model_id not in models
    assert kept.model_id in models


def test_files_that_another_version_has_too_stay(three: Store, tmp_path: Path) -> None:
    twin = three.client.get_model_version("docstrings", "2")
    assert twin.source is not None
    three.client.create_model_version(
        "docstrings", source=twin.source, tags=dict(twin.tags), run_id=twin.run_id
    )
    first = three.pair("docstrings", 2)
    assert first is not None
    with three.writing("docstrings"):
        assert forget(three, "docstrings", 2)
    left = three.pair("docstrings", 4)
    assert left is not None
    assert left.model_id == first.model_id
    assert three.manifest(left).pair_id == left.pair_id
