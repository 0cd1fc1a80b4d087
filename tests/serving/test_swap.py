"""Following the registry: swaps under load, refusals, and starts after every kind of end."""

from __future__ import annotations

import gc
import itertools
import json
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.torch import load_file, save_file

from monitoring.outbox import Outbox
from serving import journal as steps
from serving.journal import Journal
from serving.settings import ServeSettings
from tests.serving.registry_stand_in import PAIRING, StandIn, stand_in
from tests.serving.served import Served, serving
from tests.serving.test_app import metric
from tests.toys import toy_draft_folder, toy_target_folder

COMPLETIONS = "/v1/completions"
PROMPTS = ["a", "the fox", "the lazy dog, so", "returns true if it is so, else false"]
Ask = dict[str, Any]


@pytest.fixture(scope="module")
def drafts(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two heads that differ."""
    place = tmp_path_factory.mktemp("heads")
    return [toy_draft_folder(target_folder, place / str(seed), seed=seed) for seed in (1, 2)]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture
def following(registry: StandIn, tmp_path: Path) -> Callable[..., ServeSettings]:
    def made(**more: Any) -> ServeSettings:
        given: Ask = {"poll_seconds": 0.05, "max_slots": 4, "max_context": 600} | more
        return ServeSettings(home=tmp_path, pairing=PAIRING, registry=registry.url, **given)

    return made


def described(served: Served) -> Ask:
    told: Ask = served.client.get("/admin/pair").json()
    return told


def serves(served: Served, pair: str) -> None:
    served.until(lambda: described(served).get("pair") == pair)


def ask(served: Served, **more: Any) -> Ask:
    body = {"prompt": "the quick brown fox", "max_tokens": 12, "temperature": 0} | more
    answer = served.client.post(COMPLETIONS, json=body)
    assert answer.status_code == 200, answer.text
    whole: Ask = answer.json()
    return whole


def journal(home: Path) -> list[tuple[str, str]]:
    lines = (home / "serving" / "journal.jsonl").read_text().splitlines()
    return [(line["step"], line["pair"]) for line in map(json.loads, lines)]


def test_a_draft_only_swap_keeps_the_target_and_lets_the_old_draft_go(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
) -> None:
    first, second = (registry.register(target_folder, draft) for draft in drafts)
    old = registry.promote(first)
    with serving(following()) as served:
        before = ask(served)
        target = served.loaded.host.target
        gone = weakref.ref(served.loaded)
        served.slow(0.01)
        streamed: list[Ask] = []

        def stream() -> None:
            body = {"prompt": [9], "max_tokens": 100, "temperature": 0, "stream": True}
            body |= {"stream_options": {"include_usage": True}}
            with httpx.stream("POST", served.url + COMPLETIONS, json=body, timeout=60) as answer:
                lines = [line for line in answer.iter_lines() if line]
            assert lines[-1] == "data: [DONE]"
            streamed.append(json.loads(lines[-2].removeprefix("data: "))["usage"])

        running = threading.Thread(target=stream)
        running.start()
        served.until(lambda: metric(served, "paceline_running_requests") == 1)
        new = registry.promote(second)
        serves(served, new)
        assert running.is_alive()
        after = ask(served)
        running.join()
        assert streamed[0]["paceline"]["pair"] == old
        assert streamed[0]["completion_tokens"] == 100
        assert served.loaded.host.target is target
        assert (before["usage"]["paceline"]["pair"], after["usage"]["paceline"]["pair"]) == (
            old,
            new,
        )
        assert before["choices"][0]["text"] == after["choices"][0]["text"]
        served.until(lambda: (steps.FREED, old) in journal(tmp_path))
        # A thread may still stand in the frame that let it go.
        served.until(lambda: gc.collect() >= 0 and gone() is None)
    order = [steps.FOUND, steps.DOWNLOADED, steps.LOADED, steps.PROBED, steps.SWITCHED]
    assert [step for step, pair in journal(tmp_path) if pair == new] == order


def test_a_swap_of_the_target_serves_the_new_one_and_lets_the_old_one_go(
    registry: StandIn, following: Callable[..., ServeSettings], target_folder: Path, tmp_path: Path
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=2)
    first, second = registry.register(target_folder, "ngram"), registry.register(other, "none")
    registry.promote(first)
    with serving(following()) as served:
        before = ask(served)
        gone = weakref.ref(served.loaded.host.target)
        new = registry.promote(second)
        serves(served, new)
        after = ask(served)
        assert before["choices"][0]["text"] != after["choices"][0]["text"]
        assert after["usage"]["paceline"]["drafter"] == "none"
        assert described(served)["target"] == str(other)
        served.until(lambda: steps.FREED in [step for step, _ in journal(tmp_path)])
        # A thread may still stand in the frame that let it go.
        served.until(lambda: gc.collect() >= 0 and gone() is None)


class Load:
    """Clients that ask without pause until told to stop."""

    def __init__(self, served: Served, clients: int) -> None:
        self.url, self.answers, self.faults = served.url, list[Ask](), list[str]()
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, number: int) -> None:
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as client:
            for turn in itertools.count():
                if self.stopping.is_set():
                    return
                body = {"prompt": PROMPTS[number], "max_tokens": 6 + turn % 9, "temperature": 0}
                try:
                    answer = client.post(COMPLETIONS, json=body)
                except httpx.HTTPError as error:
                    self.faults.append(repr(error))
                    return
                if answer.status_code != 200:
                    self.faults.append(answer.text)
                    return
                self.answers.append(answer.json())

    def moved(self, beyond: int) -> bool:
        """More answers than `beyond`, or a fault."""
        return bool(self.faults) or len(self.answers) > beyond

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def swap_under_load(
    served: Served, registry: StandIn, versions: list[int], *, swaps: int, requests: int
) -> list[Ask]:
    """Swap round and round while clients ask; nothing may fail, and counters may only grow."""
    load = Load(served, clients=4)
    counted = 0.0
    try:
        for turn in range(swaps):
            serves(served, registry.promote(versions[(turn + 1) % len(versions)]))
            served.until(partial(load.moved, len(load.answers)))
            now = metric(served, "paceline_emitted_tokens_total")
            assert now >= counted
            counted = now
        served.until(partial(load.moved, requests - 1), 300)
    finally:
        load.stop()
    assert load.faults == []
    emitted = sum(answer["usage"]["completion_tokens"] for answer in load.answers)
    assert metric(served, "paceline_emitted_tokens_total") == emitted
    assert metric(served, "paceline_swaps_total", outcome="switched") == swaps + 1
    assert metric(served, "paceline_swaps_total", outcome="failed") == 0
    pairs = {answer["usage"]["paceline"]["pair"] for answer in load.answers}
    assert pairs == {registry.pair_id(version) for version in versions}
    return load.answers


def test_swaps_under_load_fail_no_request(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
) -> None:
    versions = [registry.register(target_folder, draft) for draft in drafts]
    versions.append(registry.register(target_folder, "ngram"))
    registry.promote(versions[0])
    with serving(following()) as served:
        answers = swap_under_load(served, registry, versions, swaps=3, requests=0)
    # One target all along: whichever draft was served, a prompt's answers begin alike.
    said: dict[int, set[str]] = {}
    for answer in answers:
        text = answer["choices"][0]["text"]
        said.setdefault(answer["usage"]["prompt_tokens"], set()).add(text)
    assert len(said) == len(PROMPTS)
    for texts in said.values():
        longest = max(texts, key=len)
        assert all(longest.startswith(text.rstrip("\ufffd")) for text in texts)


@pytest.mark.slow
def test_a_swap_a_second_over_a_thousand_requests_fails_none(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=2)
    versions = [registry.register(target_folder, draft) for draft in drafts]
    versions.append(registry.register(target_folder, "ngram"))
    versions.append(registry.register(other, "ngram"))
    registry.promote(versions[0])
    with serving(following()) as served:
        swap_under_load(served, registry, versions, swaps=40, requests=1000)


def spoil_digest(place: Path) -> None:
    path = place / "draft" / "model.safetensors"
    stored = path.read_bytes()
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 0xFF]))


def spoil_missing(place: Path) -> None:
    (place / "draft" / "config.json").unlink()


SPOILS = [spoil_digest, spoil_missing]


@pytest.mark.parametrize("spoil", SPOILS, ids=[spoil.__name__ for spoil in SPOILS])
def test_a_bad_pair_is_refused_once_and_the_old_one_serves_on(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
    spoil: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = (
        registry.register(target_folder, "ngram"),
        registry.register(target_folder, drafts[0]),
    )
    spoil(registry.place(bad))
    old = registry.promote(good)
    with serving(following()) as served:
        registry.promote(bad)
        served.until(lambda: metric(served, "paceline_swaps_total", outcome="failed") == 1)
        time.sleep(0.3)  # several polls
        assert ask(served)["usage"]["paceline"]["pair"] == old
        assert metric(served, "paceline_swaps_total", outcome="failed") == 1
        swaps = described(served)["swaps"]
        assert [swap["outcome"] for swap in swaps] == ["swapped", "failed"]
        assert swaps[1]["why"]
    (alarm,) = Outbox(tmp_path / "monitoring" / "outbox").pending()
    assert alarm.cause == "swap_failed"
    assert len([record for record in caplog.records if "is refused" in record.message]) == 1
    assert not list((tmp_path / "serving" / "pairs").glob(".*.partial"))


def test_a_draft_that_is_not_a_number_is_refused(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
) -> None:
    spoiled = shutil.copytree(drafts[0], tmp_path / "spoiled")
    weights = load_file(spoiled / "model.safetensors")
    for name, weight in weights.items():
        if weight.is_floating_point():
            weights[name] = weight * float("nan")
    save_file(weights, spoiled / "model.safetensors")
    registry.promote(registry.register(target_folder, "ngram"))
    with serving(following()) as served:
        registry.promote(registry.register(target_folder, spoiled))
        served.until(lambda: metric(served, "paceline_swaps_total", outcome="failed") == 1)
        assert ask(served)["usage"]["paceline"]["drafter"] == "ngram"


def test_a_release_whose_folder_has_changed_is_refused_and_taken_when_it_is_back(
    registry: StandIn, following: Callable[..., ServeSettings], target_folder: Path, tmp_path: Path
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=2)
    old = registry.promote(registry.register(target_folder, "ngram"))
    version = registry.register(other, "ngram")
    weights = (other / "model.safetensors").read_bytes()
    save_file(
        {k: v + 1 for k, v in load_file(other / "model.safetensors").items()},
        other / "model.safetensors",
        metadata={"format": "pt"},
    )
    with serving(following()) as served:
        new = registry.promote(version)
        served.until(lambda: len(described(served)["swaps"]) == 2)
        assert "weights changed" in described(served)["swaps"][1]["why"]
        assert described(served)["pair"] == old
        (other / "model.safetensors").write_bytes(weights)
        served.client.post("/admin/swap")  # somebody has put it right, and asks
        serves(served, new)


def test_a_registry_that_goes_away_changes_nothing_and_is_followed_when_it_is_back(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = (registry.register(target_folder, draft) for draft in drafts)
    registry.promote(first)
    with serving(following()) as served:
        registry.away = True
        new = registry.promote(second)
        served.until(lambda: described(served)["trouble"] is not None)
        time.sleep(0.2)
        ask(served)
        registry.away = False
        serves(served, new)
        assert described(served)["trouble"] is None
    assert len([one for one in caplog.records if "cannot be read" in one.message]) == 1


def test_a_server_without_a_champion_waits_for_one(
    registry: StandIn, following: Callable[..., ServeSettings], target_folder: Path
) -> None:
    version = registry.register(target_folder, "ngram")
    with serving(following(), wait=False) as served:
        served.until(lambda: served.client.get("/health/live").status_code == 200)
        assert served.client.get("/health/ready").json()["why"] == "no pair is loaded yet"
        registry.promote(version)
        served.ready()


def test_a_start_without_the_registry_serves_the_last_good_pair(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
) -> None:
    first, second = (registry.register(target_folder, draft) for draft in drafts)
    registry.promote(first)
    with serving(following()) as served:
        good = registry.promote(second)
        serves(served, good)
    registry.away = True
    with serving(following()) as served:
        assert ask(served)["usage"]["paceline"]["pair"] == good
        assert described(served)["swaps"][0]["why"] == "from the local copy"
    spoil_digest(tmp_path / "serving" / "pairs" / good)
    with serving(following(), wait=False) as served:
        served.until(lambda: metric(served, "paceline_swaps_total", outcome="failed") == 1)
        assert served.client.get("/health/ready").status_code == 503
        registry.away = False
        served.client.post("/admin/swap")
        serves(served, good)  # fetched again


@pytest.mark.parametrize("step", [steps.FOUND, steps.PROBED])
def test_a_crash_at_any_step_heals_at_the_next_start(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
    step: str,
) -> None:
    first, second = (registry.register(target_folder, draft) for draft in drafts)
    old = registry.promote(first)
    with serving(following()):
        pass
    # What a process that died in the swap to the second pair has left on the disk.
    new = registry.promote(second)
    written = Journal(tmp_path / "serving" / "journal.jsonl")
    for name in steps.OPEN[: steps.OPEN.index(step) + 1]:
        written.write(name, new, "2")
    pairs = tmp_path / "serving" / "pairs"
    partial = pairs / f".{new}.partial"
    if step == steps.FOUND:
        shutil.copytree(registry.place(second), partial)
    else:
        shutil.copytree(registry.place(second), pairs / new)
    registry.away = True
    with serving(following()) as served:
        assert described(served)["pair"] == old
        assert not partial.exists()
        registry.away = False
        serves(served, new)
        ask(served)
    assert (steps.ABANDONED, new) in journal(tmp_path)
