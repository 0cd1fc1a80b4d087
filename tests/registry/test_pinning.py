"""Going back a release is a person's decision, and stays until a person takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.effects import heal
from registry.errors import NotFoundError
from registry.fingerprint import fingerprint
from registry.pinning import LIFTED, pin, pin_after, unpin
from registry.promotion import Outcome, promote, rollback
from registry.standing_in import go_live
from registry.store import Store
from registry.versions import CHAMPION, PINNED
from tests.registry import tiny
from tests.registry.conftest import registered

NUMBERS = {"one": 1, "two": 2, "three": 3}
BACK = "release 2 answers in rhymes"


@pytest.fixture
def gone_back(three: Store, template: Path, tmp_path: Path) -> Store:
    """Release 2 was served by v4; a person went back to v1, of release 1."""
    newer = tiny.target(tmp_path / "newer", seed=9)
    registered(three, newer, tmp_path / "4", "ngram")
    promote(three, "docstrings", 1, expect=None)
    assert promote(three, "docstrings", 4, expect=1).ok
    assert promote(three, "docstrings", 1, expect=4, force=BACK, by_hand=True).ok
    return three


def test_going_back_a_release_pins_it_and_says_so_on_the_pages(gone_back: Store) -> None:
    state = gone_back.describe("docstrings")
    assert state.pinned is not None
    assert (state.pinned.version, state.pinned.pinned_why) == (1, BACK)
    model = gone_back.client.get_registered_model("docstrings.target")
    assert model.aliases == {PINNED: 1}, "seen in MLflow's own list"
    page = gone_back.client.get_registered_model("docstrings").description or ""
    assert "**Pinned to [release 1](#/models/docstrings.target/versions/1)**" in page
    assert BACK in page
    assert state.warnings == ()


def test_a_pinned_release_is_not_left_for_a_newer_one_that_waited_long_enough(
    gone_back: Store, tmp_path: Path
) -> None:
    newer = tmp_path / "newer"
    told = go_live(gone_back, "docstrings", newer, fingerprint(newer), "ngram", why="it waited")
    assert told.outcome is Outcome.REFUSED
    assert told.statement.startswith("users stay on release 1 (")
    flows = promote(gone_back, "docstrings", 4, expect=1)
    assert flows.outcome is Outcome.REFUSED
    assert "`paceline promote 4` by hand changes it, or `paceline pin --lift`" in flows.statement
    assert gone_back.alias("docstrings", CHAMPION) == 1


def test_within_the_pinned_release_drafts_change_as_ever(gone_back: Store) -> None:
    assert promote(gone_back, "docstrings", 3, expect=1).ok
    assert rollback(gone_back, "docstrings").ok
    assert gone_back.pinned("docstrings") is not None


def test_the_next_promotion_by_hand_lifts_the_pin(gone_back: Store) -> None:
    assert promote(gone_back, "docstrings", 4, expect=1, by_hand=True).ok
    assert gone_back.pinned("docstrings") is None


def test_a_lifted_pin_holds_nothing_back(gone_back: Store, tmp_path: Path) -> None:
    lifted = unpin(gone_back, "docstrings")
    assert lifted is not None
    assert unpin(gone_back, "docstrings") is None
    newer = tmp_path / "newer"
    told = go_live(gone_back, "docstrings", newer, fingerprint(newer), "none", why="it waited")
    assert told.ok
    assert gone_back.alias("docstrings", CHAMPION) == 4, "its own pair, which passed"
    assert len(gone_back.pairs("docstrings")) == 4, "and no stand-in was made"


def test_a_killed_step_back_is_pinned_by_whoever_looks_next(
    three: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(three, tiny.target(tmp_path / "newer", seed=9), tmp_path / "4", "ngram")
    promote(three, "docstrings", 4, expect=None)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("registry.effects.pin", killed)
    with pytest.raises(KeyboardInterrupt):
        promote(three, "docstrings", 1, expect=4, force=BACK)
    assert three.alias("docstrings", CHAMPION) == 4
    monkeypatch.undo()
    heal(three, "docstrings")
    pinned = three.pinned("docstrings")
    assert (three.alias("docstrings", CHAMPION), pinned and pinned.version) == (1, 1)


def test_an_old_release_that_was_chosen_by_moving_the_alias_is_pinned_when_it_is_taken_over(
    three: Store, tmp_path: Path
) -> None:
    registered(three, tiny.target(tmp_path / "newer", seed=9), tmp_path / "4", "ngram")
    promote(three, "docstrings", 4, expect=None)
    three.client.set_registered_model_alias("docstrings", CHAMPION, "1")
    assert promote(three, "docstrings", 1, expect=None, by_hand=True).outcome is Outcome.ALREADY
    assert three.pinned("docstrings") is not None


def test_a_pin_beside_a_champion_of_another_release_is_odd(three: Store, tmp_path: Path) -> None:
    registered(three, tiny.target(tmp_path / "newer", seed=9), tmp_path / "4", "ngram")
    promote(three, "docstrings", 4, expect=None)
    pin(three, "docstrings", three.releases("docstrings")[0].digest, "by hand")
    (told,) = three.describe("docstrings").warnings
    assert told.startswith("the pairing is pinned to release 1, and the champion v4 is of another")
    with pytest.raises(NotFoundError, match="has no release ffffffffffff"):
        pin(three, "docstrings", "f" * 64, "by hand")


@pytest.mark.parametrize(
    ("wanted", "before", "pinned", "after"),
    [
        ("one", None, None, ""),
        ("two", "one", None, ""),
        ("one", "two", None, "one"),
        ("one", "two", "two", "one"),
        ("two", "one", "one", "two"),
        ("three", "one", "one", LIFTED),
        ("one", "one", "one", ""),
        ("three", "three", "one", LIFTED),
    ],
)
def test_what_a_promotion_by_hand_makes_of_the_pin(
    wanted: str, before: str | None, pinned: str | None, after: str
) -> None:
    assert pin_after(wanted, before, pinned, NUMBERS) == after
