"""What a server was started with is part of what was measured: samples of another start are none of
this one, and a report says what it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.journal import Journal
from evaluation.measure import measure
from evaluation.report import Report, report_of
from evaluation.samples import Measurement
from evaluation.started_with import TOLD
from flows.looking import void
from speculation.records import Prompt
from tests.evaluation.fake_endpoint import Fake, serving

ARMS = ("candidate", "none")
PROMPTS = [Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},)) for n in range(2)]
STARTED: dict[str, Any] = {
    **{"max_slots": 8, "max_context": 1024, "adapters": {"law": "a" * 64}},
    **{"dtype": "float32", "device": "cpu", "threads": 2},
}


def measured(fake: Fake, journal: Path, said: list[str] | None = None) -> Measurement:
    return measure(
        fake.url,
        PROMPTS,
        arms=ARMS,
        draft_len=4,
        max_tokens=16,
        journal=journal,
        speed_prompts=0,
        notice=([] if said is None else said).append,
    )


def test_samples_of_a_server_that_was_started_otherwise_are_put_aside_by_name(
    tmp_path: Path,
) -> None:
    journal, said = tmp_path / "journal.jsonl", list[str]()
    law, other = "a" * 16, "b" * 16
    changes: list[tuple[str, object, str]] = [
        ("max_slots", 2, "(max_slots 8 and now 2)"),
        ("max_context", 4096, "(max_context 1024 and now 4096)"),
        ("adapters", {"law": "b" * 64}, f'(adapters.law "{law}" and now "{other}")'),
        ("adapters", {}, f'(adapters.law "{other}" and now none)'),
        ("dtype", "bfloat16", '(dtype "float32" and now "bfloat16")'),
        ("device", "cuda", '(device "cpu" and now "cuda")'),
        ("threads", 16, "(threads 2 and now 16)"),
    ]
    with serving(Fake({"candidate": 0.7}, told=STARTED.copy())) as fake:
        measured(fake, journal, said)
        whole, before = fake.answered, fake.answered
        measured(fake, journal, said)
        assert (fake.answered - before, said) == (len(ARMS), []), "started alike it goes on"
        for number, (name, now, named) in enumerate(changes, start=1):
            fake.told[name] = now
            before = fake.answered
            found = measured(fake, journal, said)
            assert fake.answered - before == whole, f"nothing is reused with another {name}"
            assert getattr(found.conditions, name) == now
            assert len(said) == number
            assert named in said[-1]
            aside = said[-1].partition("put aside as ")[2].partition(",")[0]
            assert (tmp_path / aside).exists()
    assert len(list(tmp_path.glob("journal.jsonl.of-*"))) == len(changes)


def test_what_an_endpoint_does_not_tell_or_tells_in_another_form_is_unknown(tmp_path: Path) -> None:
    odd = {"max_slots": "8", "max_context": 2**60, "adapters": [1], "dtype": None, "threads": True}
    with serving(Fake({"candidate": 0.7}, told=odd)) as fake:
        report = report_of(measured(fake, tmp_path / "journal.jsonl"))
    assert [getattr(report.conditions, name) for name in TOLD] == [None] * len(TOLD)
    report.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == report


def test_a_report_keeps_it_and_one_from_before_it_was_told_reads_with_its_digest(
    tmp_path: Path,
) -> None:
    with serving(Fake({"candidate": 0.7}, told=STARTED.copy())) as fake:
        report = report_of(measured(fake, tmp_path / "journal.jsonl"))
    file = tmp_path / "report.json"
    report.write(file)
    assert Report.read(file) == report
    assert {name: getattr(report.conditions, name) for name in TOLD} == STARTED
    earlier = json.loads(file.read_text())
    for name in TOLD:
        del earlier["conditions"][name]
    del earlier["digest"], earlier["facts"]["unknown"]
    canonical = json.dumps(earlier, sort_keys=True, separators=(",", ":")).encode()
    earlier["digest"] = hashlib.sha256(canonical).hexdigest()
    file.write_text(json.dumps(earlier))
    assert Report.read(file).digest == earlier["digest"] != report.digest


def test_speed_that_is_void_is_said_in_the_journal_that_is_gone_on_from(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serving(Fake({"candidate": 0.7}, told=STARTED.copy())) as fake:
        part = measured(fake, journal)
        void((0.0, 1), [journal], [part])
        said: list[str] = []
        assert measured(fake, journal, said).samples == part.samples
    assert said == []
    assert '"run": "void"' in journal.read_text()


@pytest.mark.parametrize("first", [{"format": "paceline measurement journal 4", "seed": 0}, [1]])
def test_a_journal_of_another_format_is_put_aside_and_said_to_be_one(
    first: object, tmp_path: Path
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(first) + "\n")
    with Journal(path, {"seed": 1}) as journal:
        assert "of an earlier version or another program" in (journal.put_aside or "")
    assert len(list(tmp_path.glob("journal.jsonl.of-*"))) == 1
