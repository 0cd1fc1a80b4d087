"""A server whose real MLflow is away, and one that was killed while it took a pair from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.promotion import promote
from registry.store import PairVersion
from serving import journal as steps
from tests.serving.real_registry import (
    Forks,
    Paceline,
    Registry,
    forks,
    free_port,
    paceline,
    real_registry,
)

pytestmark = pytest.mark.slow  # a real MLflow server, and servers in processes of their own


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with real_registry(tmp_path_factory.mktemp("mlflow")) as registry:
        yield registry


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("driver")) as driver:
        yield driver


@pytest.fixture(scope="module")
def begun(
    registry: Registry,
    driver: Forks,
    target_folder: Path,
    draft_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, PairVersion, PairVersion]:
    """The home of a server that served a pair and ended; that pair, and the champion now."""
    home = tmp_path_factory.mktemp("homes") / "begun"
    old = registry.add("killed", target_folder, "ngram")
    new = registry.add("killed", target_folder, draft_folder)
    assert promote(registry.store, "killed", old.version, expect=None).ok
    with driver.paceline(home, registry.url, "killed") as server:
        server.until_served(old)
    assert promote(registry.store, "killed", new.version, expect=old.version).ok
    return home, old, new


@pytest.mark.parametrize(
    "step",
    ["", steps.FOUND, "a file", "all files", *steps.OPEN[1:], steps.SWITCHED],
)
def test_a_server_that_is_killed_while_it_takes_a_pair_serves_whole_pairs_at_the_next_start(
    registry: Registry,
    driver: Forks,
    begun: tuple[Path, PairVersion, PairVersion],
    tmp_path: Path,
    step: str,
) -> None:
    before, old, new = begun
    home = shutil.copytree(before, tmp_path / "home")
    if step:
        driver.killed(home, registry.url, "killed", step)
    pairs = home / "serving" / "pairs"
    left = {one.name for one in pairs.iterdir() if one.is_dir()}
    if step in ("a file", "all files"):
        assert f".{new.pair_id}.partial" in left  # and in no pair's place
        assert new.pair_id not in left
    with driver.paceline(home, registry.url, "killed") as server:
        server.until_served(new)
        swaps = [(one["outcome"], one["pair"]) for one in server.told()["swaps"]]
        first = new if step == steps.SWITCHED else old  # what had been served last
        expected = [("swapped", first.pair_id), ("swapped", new.pair_id)]
        assert swaps == expected[: 1 if first is new else 2]
        assert {one.name for one in pairs.iterdir() if one.is_dir()} == {old.pair_id, new.pair_id}
    lines = (home / "serving" / "journal.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    abandoned = [one["why"] for one in told if one["step"] == steps.ABANDONED]
    assert len(abandoned) == (step not in ("", steps.SWITCHED))
    assert (told[-1]["step"], told[-1]["pair"]) in [
        (steps.SWITCHED, new.pair_id),
        (steps.RESUMED, new.pair_id),
        (steps.FREED, old.pair_id),
    ]


def test_a_registry_that_is_away_costs_no_request_and_is_followed_when_it_is_back(
    registry: Registry, target_folder: Path, draft_folder: Path, driver: Forks, tmp_path: Path
) -> None:
    home, port = tmp_path / "home", free_port()
    old = registry.add("away", target_folder, draft_folder)
    new = registry.add("away", target_folder, "ngram")
    assert promote(registry.store, "away", old.version, expect=None).ok
    with driver.paceline(home, registry.url, "away") as server:
        server.until_served(old)
    url = f"http://127.0.0.1:{port}"  # the same registry, by another server, which is away
    with paceline(home, url, "away") as server:
        server.until(server.ready)
        assert server.told()["swaps"][0]["why"] == "from the local copy"
        assert server.ask()["pair"] == old.pair_id
        server.until(lambda: troubled(server, url))
        with real_registry(registry.home, "--port", str(port)):
            server.until(lambda: server.told()["trouble"] is None)
            assert promote(registry.store, "away", new.version, expect=old.version).ok
            server.until_served(new)
        server.until(lambda: troubled(server, url))  # away again, while it serves
        assert server.ready()
        assert server.ask()["pair"] == new.pair_id
        assert server.failed() == []


def troubled(server: Paceline, url: str) -> bool:
    return f"the registry at {url} does not answer" in str(server.told()["trouble"])


def test_a_server_without_a_pair_waits_for_a_registry_that_is_away_and_says_so(
    driver: Forks, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with driver.paceline(tmp_path / "home", url, "away") as server:
        server.until(lambda: troubled(server, url))
        answer = server.client.get("/health/ready")
        assert answer.status_code == 503
        assert server.client.get("/health/live").status_code == 200
        refused = server.client.post("/v1/completions", json={"prompt": "x"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert url not in refused.text  # where the registry is need not be a client's business
