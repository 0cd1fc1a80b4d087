"""Following the registry: swaps under load, refusals, and starts after every kind of end."""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitoring.outbox import Outbox
from serving import journal as steps
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


def test_a_target_that_does_not_fit_beside_the_old_one_waits_for_it_and_says_when_to_come_back(
    registry: StandIn, following: Callable[..., ServeSettings], target_folder: Path, tmp_path: Path
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=2)
    first, second = registry.register(target_folder, "ngram"), registry.register(other, "none")
    old = registry.promote(first)
    with serving(following(together=False)) as served:
        served.slow(0.01)
        answers: list[Ask] = []
        running = threading.Thread(target=lambda: answers.append(ask(served, max_tokens=100)))
        running.start()
        served.until(lambda: metric(served, "paceline_running_requests") == 1)
        new = registry.promote(second)
        served.until(lambda: served.client.get("/health/ready").status_code == 503)
        refused = served.client.post(COMPLETIONS, json={"prompt": "x"})
        assert running.is_alive()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert served.client.get("/health/live").status_code == 200
        serves(served, new)
        running.join()
        assert answers[0]["usage"]["paceline"]["pair"] == old
        assert answers[0]["usage"]["completion_tokens"] == 100
        assert ask(served)["usage"]["paceline"]["pair"] == new


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
    served: Served,
    registry: StandIn,
    versions: list[int],
    *,
    swaps: int,
    requests: int,
    seconds: float = 0.0,
) -> list[Ask]:
    """Swap round and round while clients ask; nothing may fail, and counters may only grow.

    So many swaps, or as many as `seconds` hold where those are more; says how many.
    """
    load = Load(served, clients=4)
    counted, done, end = 0.0, 0, time.monotonic() + seconds
    try:
        while done < swaps or time.monotonic() < end:
            done += 1
            serves(served, registry.promote(versions[done % len(versions)]))
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
    assert metric(served, "paceline_swaps_total", outcome="switched") == done + 1
    assert metric(served, "paceline_swaps_total", outcome="failed") == 0
    pairs = {answer["usage"]["paceline"]["pair"] for answer in load.answers}
    assert pairs == {registry.pair_id(version) for version in versions}
    print(f"{done} swaps over HTTP, {len(load.answers)} answers meanwhile, no fault")
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
def test_a_minute_of_swaps_under_load_fails_no_request(
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
        swap_under_load(served, registry, versions, swaps=40, requests=1000, seconds=60.0)


def spoil_digest(place: Path) -> None:
    path = place / "draft" / "model.safetensors"
    stored = path.read_bytes()
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 0xFF]))


def test_a_bad_pair_is_refused_once_and_the_old_one_serves_on(
    registry: StandIn,
    following: Callable[..., ServeSettings],
    target_folder: Path,
    drafts: list[Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = (
        registry.register(target_folder, "ngram"),
        registry.register(target_folder, drafts[0]),
    )
    spoil_digest(registry.place(bad))
    old = registry.promote(good)
    with serving(following()) as served:
        registry.promote(bad)
        served.until(lambda: metric(served, "paceline_swaps_total", outcome="failed") == 1)
        looks = registry.looks
        served.until(lambda: registry.looks > looks + 3)
        assert ask(served)["usage"]["paceline"]["pair"] == old
        assert metric(served, "paceline_swaps_total", outcome="failed") == 1
        swaps = described(served)["swaps"]
        assert [swap["outcome"] for swap in swaps] == ["swapped", "failed"]
        assert swaps[1]["why"]
    (alarm,) = Outbox(tmp_path / "monitoring" / "outbox").pending()
    assert alarm.cause == "swap_failed"
    assert len([record for record in caplog.records if "is refused" in record.message]) == 1
    # It is tried again now and then, so a download may still be on its way when the server ends.
    served.until(lambda: not list((tmp_path / "serving" / "pairs").glob(".*.partial")))


def test_a_server_without_a_champion_waits_for_one(
    registry: StandIn, following: Callable[..., ServeSettings], target_folder: Path
) -> None:
    version = registry.register(target_folder, "ngram")
    with serving(following(), wait=False) as served:
        why = f"pairing {PAIRING} has no champion"
        served.until(lambda: served.client.get("/health/ready").json()["why"] == why)
        assert registry.url in described(served)["trouble"]
        registry.promote(version)
        served.ready()
