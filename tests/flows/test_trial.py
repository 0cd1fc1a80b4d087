"""What a trial adds to a measurement: how its server ended, and what is known of its drafts."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import registry.compatibility
from configuration.settings import Measuring, Pairing
from evaluation import endpoints
from evaluation.client import MeasurementError
from evaluation.endpoints import Endpoint
from evaluation.report import PairFacts
from evaluation.samples import question_digest
from evaluation.simulation import Arm, report
from flows.lineage import PROMPTS
from flows.trial import complete, pair_facts, trial_server
from registry.fingerprint import fingerprint_draft
from speculation.records import Prompt
from tests.evaluation.fake_endpoint import Fake, serving
from tests.registry import tiny

ASKED = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},)) for n in range(6)]
ARMS = ("candidate", "ngram", "none")


def test_a_server_that_died_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Pairing(measurement=Measuring(max_tokens=16, consecutive_errors=1))
    with serving(Fake({"candidate": 0.7, "ngram": 0.1}, refuse_after=10)) as fake:
        dead = Endpoint(fake.url, 1, tmp_path / "server.log", lambda: -9)
        monkeypatch.setattr(endpoints, "started", lambda *_, **__: nullcontext(dead))
        with trial_server(tmp_path, dict.fromkeys(ARMS, "none"), tmp_path, line=line) as measure:
            found = measure(
                ASKED, tmp_path / "journal.jsonl", speed_prompts=0, progress=lambda *_: None
            )
    assert "refused with 503" in (found.incomplete or "")
    assert "the server ended by signal 9, its log is" in (found.incomplete or "")


def test_samples_of_a_server_that_was_started_otherwise_are_not_taken_for_this_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = Pairing(measurement=Measuring(max_tokens=16))
    with serving(Fake({"candidate": 0.7, "ngram": 0.1}, told={"max_slots": 8})) as fake:
        there = Endpoint(fake.url, 1, tmp_path / "server.log", lambda: None)
        monkeypatch.setattr(endpoints, "started", lambda *_, **__: nullcontext(there))
        with trial_server(tmp_path, dict.fromkeys(ARMS, "none"), tmp_path, line=line) as measure:

            def measured() -> int:
                before = fake.answered
                at = tmp_path / "journal.jsonl"
                measure(ASKED[:2], at, speed_prompts=0, progress=lambda *_: None)
                return fake.answered - before

            whole = measured()
            assert measured() == len(ARMS), "all is there, and each arm is greeted"
            assert not caplog.messages
            fake.told["max_slots"] = 4
            assert measured() == whole
    (told,) = caplog.messages
    assert "(max_slots 8 and now 4): it is put aside as journal.jsonl.of-" in told


def test_half_a_measurement_is_tried_again_not_taken_for_done() -> None:
    whole = report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1, prompts=20)
    assert complete(whole) is whole
    with pytest.raises(MeasurementError, match="ended early: it hangs"):
        complete(replace(whole, incomplete="it hangs"))


def test_what_does_not_fit_and_what_was_learned_is_kept_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "ngram": SimpleNamespace(ok=True, reasons=()),
        "draft": SimpleNamespace(ok=False, reasons=("token 7 differs",)),
    }
    monkeypatch.setattr(
        registry.compatibility, "compare", lambda target, draft: answers[Path(draft).name]
    )
    draft = tiny.head(tmp_path / "draft")
    told = {"draft": fingerprint_draft(draft).digest, "data": "", "validation": []}
    taught = [question_digest(ASKED[4])]
    (tmp_path / PROMPTS).write_text(json.dumps({**told, "train": taught}))
    arms = {"candidate": "ngram", "incumbent": str(draft), "ngram": "ngram", "none": "none"}
    facts = pair_facts(tmp_path, arms, ASKED, passed_over=3)
    assert facts == PairFacts(("incumbent: token 7 differs",), ("4",), 3)
    fits = pair_facts(tmp_path, {"candidate": "ngram", "none": "none"}, ASKED)
    assert fits == PairFacts((), (), 0)
    (tmp_path / PROMPTS).unlink()
    assert pair_facts(tmp_path, arms, ASKED).unknown == ("incumbent",)
