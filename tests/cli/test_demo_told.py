"""A pair that did not pass is not served: the demo says so, and leaves the server as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import registry.store
from cli import demo_steps
from cli.demo import NO_SWAP, _end, _tell
from cli.demo_story import Story
from cli.demo_swap import Load
from cli.exits import Exit
from configuration.prompts import write_prompts
from flows.steps import finished
from monitoring.series import Mark, read_series
from speculation.records import Prompt

URLS = {"server": "http://server", "mlflow": "http://mlflow", "prefect": "http://prefect"}
RELEASE = {"release": "e" * 64, "version": 2, "folder": "/targets/release-2"}
CHAMPION = SimpleNamespace(promoted="2026-01-02T03:04:05+00:00", version=2, pair_id="p-new")
ROW = {
    **{"arm": "candidate", "pair": "p", "alpha_hat": 0.5, "acceptance_length": 2.0},
    **{"forwards_per_request": 9.0, "tokens_per_second": 40.0, "plain_tokens_per_second": 30.0},
    **{"speedup": 1.3, "rouge_l": 1.0, "exact_match": 1.0, "requests": 24},
}


def outcome(phase: str, promoted: bool = False) -> dict[str, Any]:
    statement = "v2 is champion" if promoted else f"pair 2 is not promoted: the gate says {phase}"
    return {"phase": phase, "promoted": promoted, "statement": statement, "version": 2}


def never(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("nothing is to be done with a pair that did not pass")


@pytest.fixture
def stack() -> Any:
    def quiet(*arguments: Any) -> None: ...

    starts = ("create_schemas", "start_mlflow", "start_prefect", "start_worker", "check")
    return SimpleNamespace(urls=dict(URLS), **dict.fromkeys(starts, quiet))


@pytest.fixture
def demo(tmp_path: Path, stack: Any) -> demo_steps.Demo:
    prompts = [Prompt("1", ({"role": "user", "content": "?"},))]
    write_prompts(tmp_path / "prompts" / "traffic.jsonl", prompts)
    return demo_steps.Demo(tmp_path, story(), stack, lambda *_: None, print, lambda *_: None)


def story() -> Story:
    return Story(
        first_release=lambda out: out,
        second_release=lambda first, out, run: out,
        initial_draft=None,
        prompts=lambda target: {},
        evaluation_prompts=24,
        max_tokens=24,
        recipe={},
    )


@pytest.fixture
def swapping(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Sets how the flows end; the load is of three requests, one of which failed."""

    @contextlib.contextmanager
    def load(*arguments: Any, **named: Any) -> Iterator[Load]:
        yield Load([(1.0, 3.0, True), (1.5, 2.5, True), (2.2, 4.0, False)], ["refused"])

    def ends(ended: dict[str, Any]) -> None:
        monkeypatch.setattr(demo_steps, "make_pair", lambda *_: ended)

    monkeypatch.setattr(demo_steps, "under_load", load)
    monkeypatch.setattr(demo_steps, "AFTER_SWAP_SECONDS", 0.0)
    monkeypatch.setattr(demo_steps, "wait_for_pair", never)
    store = SimpleNamespace(champion=lambda pairing: CHAMPION)
    monkeypatch.setattr(registry.store, "Store", lambda url: store)
    return ends


@pytest.mark.parametrize("ended", [outcome("FAIL"), outcome("INCONCLUSIVE"), outcome("PASS")])
def test_a_pair_that_is_not_promoted_is_neither_marked_nor_waited_for(
    demo: demo_steps.Demo, swapping: Callable[[dict[str, Any]], None], ended: dict[str, Any]
) -> None:
    swapping(ended)
    assert demo_steps.swap(demo, RELEASE) == {"outcome": ended, "swap": None}
    assert read_series(demo.home / "monitoring" / "series.jsonl") == []
    assert finished(demo.marks, "swap") == {"outcome": ended, "swap": None}


def test_a_promotion_is_marked_when_it_was_and_its_swap_told_by_the_requests_under_way(
    demo: demo_steps.Demo,
    swapping: Callable[[dict[str, Any]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swaps = [("p-old", 1.0), ("p-new", 2.0)]
    told = {"swaps": [{"outcome": "swapped", "pair": pair, "at": at} for pair, at in swaps]}
    monkeypatch.setattr(demo_steps, "wait_for_pair", lambda url, pair, **_: told)
    swapping(outcome("PASS", promoted=True))
    found = demo_steps.swap(demo, RELEASE)["swap"]
    assert (found["requests_in_flight"], found["failed"], found["requests"]) == (2, 1, 3)
    assert (found["seen"], found["faults"]) == (True, ["refused"])
    (mark,) = read_series(demo.home / "monitoring" / "series.jsonl")
    assert mark == Mark(1767323045.0, "promotion", "v2", "p-new")


def test_a_server_that_does_not_take_the_pair_is_named_with_its_log(
    demo: demo_steps.Demo,
    swapping: Callable[[dict[str, Any]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swapping(outcome("PASS", promoted=True))
    monkeypatch.setattr(demo_steps, "wait_for_pair", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match=r"did not take pair p-new .*server\.log"):
        demo_steps.swap(demo, RELEASE)


@pytest.mark.parametrize(
    ("phase", "code"), [("FAIL", Exit.NO), ("INCONCLUSIVE", Exit.INCONCLUSIVE)]
)
@pytest.mark.parametrize("refused", [1, 2])
def test_a_release_whose_pair_does_not_pass_ends_the_story_there_and_says_why(
    refused: int,
    phase: str,
    code: Exit,
    tmp_path: Path,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def release(told: Any, number: int, folder: Path) -> dict[str, Any]:
        return {**RELEASE, "version": number, "folder": str(folder)}

    def make_pair(told: Any, released: dict[str, Any], **_: Any) -> dict[str, Any] | None:
        if released["version"] == 2:
            return None  # the gate has spoken; the rest is seen under load
        return outcome(phase) if refused == 1 else outcome("PASS", promoted=True)

    def traffic(told: Any, released: dict[str, Any], name: str) -> dict[str, Any]:
        asked.append(name)
        return {
            **{"requests": 6, "alpha_hat": 0.5, "forwards_per_request": 9.0},
            **{"plain_forwards_per_request": 24.0, "tokens_per_second": 40.0},
            **{"plain_tokens_per_second": 30.0, "speedup": 1.3},
        }

    monkeypatch.setenv("FLOWS_WORKER_STARTED", "")  # put back as it was afterwards
    monkeypatch.setattr(demo_steps, "environment", lambda stack: None)
    monkeypatch.setattr(demo_steps, "release", release)
    monkeypatch.setattr(demo_steps, "make_pair", make_pair)
    monkeypatch.setattr(demo_steps, "measured", lambda work: [ROW, {**ROW, "arm": "incumbent"}])
    if refused == 1:
        monkeypatch.setattr(demo_steps, "serve", never)
    else:
        swap = {"outcome": outcome(phase), "swap": None}
        monkeypatch.setattr(demo_steps, "serve", lambda told: None)
        monkeypatch.setattr(demo_steps, "swap", lambda *_: swap)
        monkeypatch.setattr(demo_steps, "picture", lambda *_: None)
    monkeypatch.setattr(demo_steps, "traffic", traffic)

    record = _tell(tmp_path, story(), stack, {})
    assert (record["verdict"], record["promoted"], record["swap"]) == (phase, False, NO_SWAP)
    assert len(record["rows"]) == (1 if refused == 1 else 3)
    assert asked == ([] if refused == 1 else ["1"]), "nothing is asked of a pair that is not served"
    assert _end(tmp_path, record) == code
    said = capsys.readouterr().out
    assert f"the gate says {phase}" in said
    assert ("release 1: " in said) == (refused == 1)
    assert "no swap was seen" in said
