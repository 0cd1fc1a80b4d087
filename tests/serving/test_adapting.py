"""K adapts in a server: what it learned is the server's, a trial's is fixed, a seed's too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.service import UnavailableError
from serving.settings import ServeSettings
from serving.steering import steered
from tests.serving.fakes import FakePair
from tests.serving.served import Served, serving

BODY = {"prompt": "the quick brown fox the quick brown", "max_tokens": 30, "temperature": 0}


def usage(served: Served, **more: Any) -> dict[str, Any]:
    answer = served.client.post("/v1/completions", json=BODY | more)
    assert answer.status_code == 200
    paceline = answer.json()["usage"]["paceline"]
    assert isinstance(paceline, dict)
    return paceline


@pytest.fixture(scope="module")
def adaptive(
    target_folder: Path, draft_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    settings = ServeSettings(home=home, target=target_folder, draft=str(draft_folder), draft_len=3)
    with serving(settings) as served:
        yield served


def test_what_is_learned_outlives_the_requests(adaptive: Served) -> None:
    pace = adaptive.loaded.engine.paces["head"]
    before = pace._steps
    for _ in range(2):
        usage(adaptive)
    assert adaptive.loaded.engine.paces["head"] is pace
    assert pace._steps >= before + 20  # of two answers of 30 tokens, few of them drafted
    told = adaptive.client.get("/admin/pair").json()
    assert told["adaptive"] is True
    assert told["drafters"]["head"]["pace"] == pace.state


def test_a_seed_keeps_the_configured_k_and_a_trial_its_own(adaptive: Served, trial: Served) -> None:
    for found, k in (
        (usage(adaptive, seed=3), adaptive.loaded.draft_len),
        (usage(trial, paceline={"arm": "candidate", "draft_len": 2}), 2),
        (usage(trial, paceline={"arm": "candidate"}), trial.loaded.draft_len),
    ):
        assert found["draft_len"] == k
        assert found["rounds"] > 0
        # Every round but those at the end drafts K: at most K less one are short.
        assert found["drafted"] >= found["rounds"] * k - k * (k - 1) / 2


@pytest.mark.parametrize("seed", [None, 3])
def test_a_trial_adapts_k_for_the_requests_that_ask_for_it_and_for_no_other(
    trial: Served, seed: int | None
) -> None:
    pace = trial.loaded.engine.paces["candidate"]
    before = pace._steps
    usage(trial, paceline={"arm": "candidate"})
    usage(trial, paceline={"arm": "candidate", "draft_len": 2})
    assert pace._steps == before
    found = usage(trial, paceline={"arm": "candidate", "adaptive": True}, seed=seed)
    assert found["adaptive"]
    assert pace._steps > before
    assert not usage(trial, paceline={"arm": "none", "adaptive": True})["drafted"]


def test_k_that_is_fixed_and_adapts_in_one_request_is_refused(trial: Served) -> None:
    both = {"arm": "candidate", "draft_len": 2, "adaptive": True}
    answer = trial.client.post("/v1/completions", json=BODY | {"paceline": both})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "paceline.adaptive"


def test_k_that_cannot_adapt_is_not_said_to(trial: Served) -> None:
    answer = trial.client.patch("/admin/pair", json={"draft_len": None})
    assert answer.status_code == 400
    assert "does not adapt" in answer.json()["error"]["message"]
    assert trial.client.get("/admin/pair").json()["adaptive"] is False


def test_k_adapts_again_though_the_engine_was_made_anew_while_it_was_fixed(
    adaptive: Served,
) -> None:
    service, loaded = adaptive.running.service, adaptive.loaded
    assert service is not None
    assert adaptive.running._loop is not None
    assert adaptive.client.patch("/admin/pair", json={"draft_len": 2}).json()["draft_len"] == 2
    anew = service.worker.call(loaded.restart)
    asyncio.run_coroutine_threadsafe(anew, adaptive.running._loop).result(20)
    assert usage(adaptive)["draft_len"] == 2
    told = adaptive.client.patch("/admin/pair", json={"draft_len": None}).json()
    assert told["adaptive"] is True
    assert told["drafters"]["head"]["pace"] is not None
    assert told["draft_len"] == loaded.configured != 2, "a seed's K is the configured one again"


class Steered(FakePair):
    """Notes how it is steered."""

    paced = True
    turned: tuple[str, int | None] | None = None

    def steer(self, drafter: str, draft_len: int | None) -> None:
        self.turned = drafter, draft_len


@pytest.mark.parametrize("then", ["new", None])
def test_a_turn_while_pairs_are_swapped_turns_the_one_that_serves_or_says_that_none_does(
    then: str | None,
) -> None:
    old, new = Steered(pair="old"), Steered(pair="new")
    worker: Any = SimpleNamespace(current=old)

    async def call(turn: Callable[[], None]) -> None:
        turn()
        worker.current = new if then else None

    worker.call = call
    service: Any = SimpleNamespace(worker=worker)

    def turn() -> None:
        asyncio.run(steered(service, None, 2, said=True))

    if then is None:
        with pytest.raises(UnavailableError):
            turn()
    else:
        turn()
        assert new.turned == ("head", 2)
