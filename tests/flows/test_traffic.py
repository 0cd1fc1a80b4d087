"""A draft learns from what users asked since requests changed, and from nothing else of theirs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from flows import traffic as module
from flows.traffic import FEWEST, captured, forget, gather, taught
from monitoring.exchanges import ExchangeLog
from monitoring.outbox import Outbox
from speculation.records import Alarm, Counts, Exchange, Prompt
from tests.toys import toy_tokenizer

RELEASE = "c" * 64
LINE = Pairing(adapters={"law": Path("lora")})
PLAN = {"release": RELEASE, "target": "/t"}
OF, TOOK = ("x", "p", RELEASE, "head", 4, 0.0, 3, 0), (0.0, 0.0, 0.0)
SERVED = Exchange(*OF, Counts(), *TOOK, outcome="stop", prompt_ids=(1, 2, 3))
DRIFT = Alarm("a-1", "p", RELEASE, "drift", "it fell", since=100.0, requests=9, slice="")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, pairings={"line": LINE})


def served(settings: Settings, *exchanges: Exchange, at: float = 200.0) -> None:
    log = ExchangeLog(settings.home / "serving" / "exchanges", clock=lambda: at)
    for exchange in exchanges:
        log.append(exchange)
    log.close()


def alarmed(settings: Settings, alarm: Alarm) -> None:
    Outbox(settings.home / "monitoring" / "outbox").put(alarm)


def child(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    """Each captured request is a question, in place of a tokenizer that says so."""

    def run(step: str, spec: dict[str, Any], progress: Any) -> Path:
        lines = Path(spec["exchanges"]).read_text().splitlines()
        seen.extend(json.loads(line)["id"] for line in lines)
        out = Path(spec["out"])
        write_prompts(
            out, [Prompt(f"traffic-{n}", ({"role": "user", "content": f"{n}"},)) for n in seen]
        )
        out.with_suffix(".left.json").write_text('{"asked before": 2}')
        return out

    monkeypatch.setattr(module, "in_child", run)


def test_only_captured_requests_of_the_release_and_of_its_adapters_are_taken(
    settings: Settings,
) -> None:
    served(settings, replace(SERVED, id="too early"), at=50.0)
    served(
        settings,
        replace(SERVED, id="plain"),
        replace(SERVED, id="law", adapter="law"),
        replace(SERVED, id="unknown", adapter="tenor"),
        replace(SERVED, id="counts alone", prompt_ids=None),
        replace(SERVED, id="another release", release="d" * 64),
    )

    def ids(of: str = "") -> list[str]:
        return [one["id"] for one in captured(settings, LINE, RELEASE, since=100.0, of=of)]

    assert ids() == ["plain", "law"]
    assert ids("adapter=law") == ["law"]
    assert ids("adapter=none") == ["plain"]


def test_what_drifted_teaches_and_what_was_asked_before_does_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    child(monkeypatch, seen)
    alarmed(settings, replace(DRIFT, slice="adapter=law"))
    served(settings, replace(SERVED, id="early", adapter="law"), at=50.0)
    laws = [replace(SERVED, id=f"law {n}", adapter="law") for n in range(FEWEST)]
    served(settings, *laws, replace(SERVED, id="plain"))
    work = settings.home / "work"
    told = gather(settings, LINE, PLAN, "a-1", work, print)
    assert seen == [f"law {n}" for n in range(FEWEST)]
    assert (told["count"], told["refused"]) == (FEWEST, "")
    assert "2 others left out" in told["told"]
    assert [path.name for path in (work / "traffic").iterdir() if "left" not in path.name] == [
        "prompts.jsonl"
    ], "token ids are gone as soon as they are read"
    configured = [Prompt(f"c{n}", ({"role": "user", "content": f"c{n}"},)) for n in range(20)]
    learns = [prompt.id for prompt in taught(configured, told)]
    assert learns[:4] == ["traffic-law 0", "c0", "traffic-law 1", "c1"]
    assert len(learns) == FEWEST + 20
    forget(work)
    assert not (work / "traffic").exists()


@pytest.mark.parametrize(
    ("cause", "refused"), [("drift", True), ("external", True), ("release_mismatch", False)]
)
def test_without_captured_requests_a_drift_is_not_trained_away_and_the_sentence_says_what_to_do(
    settings: Settings, cause: str, refused: bool
) -> None:
    alarmed(settings, replace(DRIFT, cause=cause))
    served(settings, replace(SERVED, prompt_ids=None))
    told = gather(settings, LINE, PLAN, "a-1", settings.home / "work", print)
    assert told["prompts"] == ""
    assert ("--capture" in told["refused"]) is refused
    assert taught([], told) == []


def test_the_clock_learns_from_whatever_was_captured(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(monkeypatch, [])
    served(settings, *(replace(SERVED, id=f"{n}") for n in range(FEWEST)), at=1.0)
    told = gather(settings, LINE, PLAN, "refresh-1", settings.home / "work", print)
    assert told["count"] == FEWEST


def test_a_server_that_is_away_is_passed_over(settings: Settings) -> None:
    line = replace(LINE, servers=("http://127.0.0.1:9",))
    assert captured(settings, line, RELEASE, since=0.0) == []


@pytest.mark.slow  # a child that loads transformers
def test_the_child_reads_the_tokens_of_a_real_log_as_questions(settings: Settings) -> None:
    tokenizer = toy_tokenizer()
    tokenizer.save_pretrained(settings.home / "target")

    def ids(text: str) -> tuple[int, ...]:
        asked = [{"role": "user", "content": text}]
        made: Any = tokenizer.apply_chat_template(asked, add_generation_prompt=True)
        return tuple(made["input_ids"])

    questions = [f"does fox {n} jump?" for n in range(FEWEST)]
    served(settings, *(replace(SERVED, prompt_ids=ids(one)) for one in questions))
    plan = {**PLAN, "target": str(settings.home / "target")}
    told = gather(settings, LINE, plan, "refresh-1", settings.home / "work", lambda *_: None)
    assert [one.messages[0]["content"] for one in taught([], told)] == questions
