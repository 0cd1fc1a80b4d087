"""A trial that measures until it is sure: one server, a batch a look, no more than is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Pairing
from evaluation.gate import judge
from evaluation.looks import mixed, strata_of
from evaluation.measure import measure
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report
from evaluation.samples import Measurement
from evaluation.spending import Looks
from flows import looking
from speculation.records import Phase, Prompt, Verdict
from tests.evaluation.fake_endpoint import Fake, serving

PROMPTS = [  # in file order by task
    Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},), task="b" if n > 15 else "a")
    for n in range(80)
]
POLICY = Policy(prompts=80)
ARMS = {"candidate": "head", "incumbent": "old", "ngram": "ngram", "none": "none"}


@dataclass
class OnFake:
    """A trial server that is a fake one, on the fake's own clock."""

    fake: Fake
    asked: list[tuple[int, int, int]] = field(default_factory=list)  # prompts, timed, first seed

    def __call__(
        self, prompts: Sequence[Prompt], journal: Path, *, speed_prompts: int, seed: int, **_: Any
    ) -> Measurement:
        self.asked.append((len(prompts), speed_prompts, seed))
        return measure(
            self.fake.url,
            prompts,
            draft_len=4,
            max_tokens=32,
            journal=journal,
            speed_prompts=speed_prompts,
            seed=seed,
            clock=self.fake.clock,
            sleep=lambda seconds: None,
        )


@pytest.mark.slow  # hundreds of requests
@pytest.mark.parametrize(("knows", "phase"), [(0.8, Phase.PASS), (0.1, Phase.FAIL)])
def test_a_clear_case_needs_a_part_of_the_budget_and_is_judged_the_same_when_read_again(
    knows: float, phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake({"candidate": knows, "incumbent": 0.4, "ngram": 0.05}, delay_seconds=0.0)
    trial = OnFake(fake)

    @contextmanager
    def server(*_: Any, **__: Any) -> Iterator[OnFake]:
        yield trial

    late = mixed(PROMPTS, {})[-1].id
    facts = PairFacts(incompatible=(), learned=(late,))  # which the first look does not meet
    monkeypatch.setattr(looking, "trial_server", server)
    monkeypatch.setattr(looking, "pair_facts", lambda *_, **__: facts)
    seen: list[int] = []
    with serving(fake):
        outcome = looking.run_until_sure(
            tmp_path,
            ARMS,
            PROMPTS,
            tmp_path,
            line=Pairing(),
            policy=POLICY,
            looks=2,
            seen=lambda report, verdict: seen.append(len(report.prompts)),
            progress=lambda done, total, what: None,
        )
    stored = Report.read(tmp_path / "report.json")
    assert outcome.verdict.phase is phase, outcome.verdict.sentence
    assert judge(POLICY, stored) == outcome.verdict
    assert seen == [40]
    assert trial.asked == [(40, looking.speed_prompts(POLICY, 40), 0)]
    assert stored.facts.learned == ()
    assert [p.id for p in stored.prompts] == [p.id for p in mixed(PROMPTS, {})[:40]]
    assert [p.task for p in stored.prompts].count("a") == 8, (
        "of fewer nobody could tell that it is dead there"
    )
    assert stored.looks == Looks(1, (40, 80), strata_of(PROMPTS, {}))


@pytest.mark.slow
def test_where_a_later_batch_is_slower_speed_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch has four blocks, too few to tell by itself; together they are not of one machine,
    and going on from their journals has to lead somewhere."""
    fake = Fake({"candidate": 0.4, "incumbent": 0.4, "ngram": 0.05}, delay_seconds=0.0)

    @contextmanager
    def server(*_: Any, **__: Any) -> Iterator[OnFake]:
        yield OnFake(fake)

    monkeypatch.setattr(looking, "trial_server", server)
    monkeypatch.setattr(looking, "pair_facts", lambda *_, **__: PairFacts(incompatible=()))
    monkeypatch.setattr(looking, "speed_prompts", lambda policy, prompts: prompts // 3)

    def seen(report: Report, verdict: Verdict) -> None:
        fake.forward_seconds = 0.06

    def run() -> Report:
        with serving(fake):
            return looking.run_until_sure(
                tmp_path,
                ARMS,
                PROMPTS[:48],
                tmp_path,
                line=Pairing(),
                policy=POLICY,
                looks=2,
                seen=seen,
                progress=lambda done, total, what: None,
            ).report

    cut = run()
    assert cut.incomplete is not None
    assert "the endpoint slowed down" in cut.incomplete
    whole = run()
    assert whole.incomplete is None
    assert len(whole.prompts) == 48
    assert len(whole.blocks) == len(cut.blocks)
