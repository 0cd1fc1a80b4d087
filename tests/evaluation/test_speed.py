"""Speed at each load, temperatures and adapters, against an endpoint whose truth is known."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.client import Client
from evaluation.gate import judge
from evaluation.measure import measure
from evaluation.page import page
from evaluation.policy import Policy
from evaluation.prediction import end_to_end, expected_tokens, from_half, predict
from evaluation.report import Report, report_of
from evaluation.samples import SpeedBlock
from evaluation.simulation import Arm
from evaluation.simulation import report as drawn
from evaluation.speed import TAIL_REQUESTS, block_table, speed_figures
from evaluation.summary import reference_difference, rows, speed_rows, summarise
from speculation.records import Counts, Phase, Prompt
from tests.evaluation.fake_endpoint import Fake, serving

KNOWS = {"candidate": 0.7, "ngram": 0.1}
ARMS = ("candidate", "ngram", "none")
PROMPTS = [
    Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},), reference="w1 w2 w3")
    for n in range(32)
]


def measured(fake: Fake, folder: Path, prompts: list[Prompt] = PROMPTS, **more: Any) -> Report:
    asked: dict[str, Any] = {
        "arms": ARMS,
        "draft_len": 4,
        "max_tokens": 64,
        "journal": folder / "journal.jsonl",
        "concurrency": 4,
        "speed_prompts": 16,
        "clock": fake.clock,
        "sleep": lambda seconds: None,
    }
    return report_of(measure(fake.url, prompts, **{**asked, **more}))


def test_speed_is_measured_at_every_load_in_blocks_of_one_arm(tmp_path: Path) -> None:
    fake = Fake(KNOWS, delay_seconds=0.01)
    with serving(fake):
        report = measured(fake, tmp_path, speed_concurrencies=(1, 4))
    for concurrency, blocks, requests in ((1, 8, 16), (4, 8, 32)):
        told = speed_figures(report, "candidate", concurrency)
        assert told is not None
        assert (told.blocks, told.requests) == (blocks, requests)
        assert told.first_token["p50"].ratio is not None
        assert told.speedup is not None
    assert fake.most_at_once == 4
    assert speed_figures(report, "candidate", 2) is None
    assert [(row["arm"], row["concurrency"]) for row in speed_rows(report)] == [
        (arm, concurrency) for arm in ARMS for concurrency in (1, 4)
    ]


@pytest.mark.slow
def test_an_arm_that_is_not_to_be_timed_is_asked_for_acceptance_only_and_judged_the_same(
    tmp_path: Path,
) -> None:
    found = {}
    for name, timed in (("all", None), ("some", ("candidate", "none"))):
        fake = Fake(KNOWS, delay_seconds=0.01)
        with serving(fake):
            report = measured(fake, tmp_path / name, timed=timed)
        found[name] = {row["arm"] for row in speed_rows(report)}
        ngram = next(row for row in rows(report) if row["arm"] == "ngram")
        assert ngram["alpha_hat"] is not None
        assert (ngram["speedup"] is None) is (timed is not None)
        facts = replace(report, facts=replace(report.facts, incompatible=()))
        phases = {f.rule: f.phase for f in judge(Policy(), facts).findings}
        assert phases["measured"] is Phase.PASS
        assert "speed_over_plain" in phases
        page(facts, judge(Policy(), facts), [])
    assert found == {"all": set(ARMS), "some": {"candidate", "none"}}


def test_the_first_token_comes_after_prefill_and_the_whole_after_decoding() -> None:
    """Alone on a clock that only decoding moves, the client sees what the server says."""
    with serving(fake := Fake(KNOWS)), closing(Client(fake.url, clock=fake.clock)) as client:
        for prompt in PROMPTS[:4]:
            answer, whole = (
                client.ask(
                    prompt, model="toy", arm="candidate", draft_len=4, max_tokens=64, stream=stream
                )
                for stream in (True, False)
            )
            assert answer.first_token_seconds == pytest.approx(fake.forward_seconds)
            assert answer.seconds == pytest.approx(answer.prefill_seconds + answer.decode_seconds)
            assert (answer.text, answer.counts) == (whole.text, whole.counts)
            assert whole.first_token_seconds is None


@pytest.mark.slow
def test_the_predicted_speed_up_is_the_measured_one_where_the_model_holds(tmp_path: Path) -> None:
    """The fake's rounds cost 1.2 forwards whatever they draft, and its draft knows 0.7."""
    fake = Fake(KNOWS, rounding=False)
    with serving(fake):
        report = measured(fake, tmp_path, speed_prompts=32)
    found = predict(report, "candidate", 1)
    assert found is not None
    assert found.round_cost == pytest.approx(1.2)
    assert found.draft_len == pytest.approx(4, abs=0.4)  # at the end of an answer less is drafted
    truth = (1 - 0.7**5) / (1 - 0.7)
    assert found.tokens_a_round == pytest.approx(truth, rel=0.10)
    assert found.decode_speedup == pytest.approx(found.measured_decode_speedup, rel=0.10)
    forwards = report.of("none", "speed")
    share = len(forwards) / sum(r.counts.forwards for r in forwards)
    assert found.prefill_share == pytest.approx(share)
    assert found.end_to_end_speedup == pytest.approx(end_to_end(found.decode_speedup, share))
    whole = speed_figures(report, "candidate", 1)
    assert whole is not None
    assert whole.speedup is not None
    assert found.end_to_end_speedup == pytest.approx(whole.speedup.estimate, rel=0.10)
    assert predict(report, "none", 1) is None  # nothing drafts


@pytest.mark.slow
def test_a_round_that_costs_more_than_is_measured_would_be_found_out(tmp_path: Path) -> None:
    """The held-out half is measured, not derived: where it differs, the two do."""
    with serving(fake := Fake(KNOWS, rounding=False)):
        report = measured(fake, tmp_path)
    slower = replace(
        report,
        requests=tuple(
            replace(r, decode_seconds=1.5 * r.decode_seconds)
            if (r.run, r.arm) == ("speed", "candidate") and r.block % 2
            else r
            for r in report.requests
        ),
    )
    honest, other = (from_half(each, "candidate", 1, 0) for each in (report, slower))
    assert honest is not None
    assert other is not None
    assert other.decode_speedup == honest.decode_speedup
    assert other.measured_decode_speedup == pytest.approx(honest.measured_decode_speedup / 1.5)
    whole, back = predict(slower, "candidate", 1), from_half(slower, "candidate", 1, 1)
    assert whole is not None
    assert back is not None
    assert whole.decode_speedup == pytest.approx((other.decode_speedup + back.decode_speedup) / 2)


def test_expected_tokens_follow_the_survivals() -> None:
    counts = Counts(100, 1, 200, 201, (100, 60), (60, 30))
    assert expected_tokens(counts, 0) == 1
    assert expected_tokens(counts, 2) == pytest.approx(1 + 0.6 + 0.3)
    assert expected_tokens(counts, 1.5) == pytest.approx(1 + 0.6 + 0.15)
    assert expected_tokens(counts, 3) == pytest.approx(1 + 0.6 + 0.3 + 0.15)  # hazard 0.5 goes on
    assert expected_tokens(Counts(), 3) == 1


def test_amdahl_in_the_founding_cases_words() -> None:
    """Prefill 20 %, decode 2.5 times as fast: 1.92 times in all."""
    assert end_to_end(2.5, 0.2) == pytest.approx(1.923, abs=5e-4)


def test_throughput_of_several_at_once_is_tokens_over_the_wall_not_over_latencies() -> None:
    report = drawn({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1)
    blocks = tuple(
        SpeedBlock(b.arm, b.temperature, b.concurrency, b.block, b.seconds / 2)
        for b in report.blocks
    )
    twice = replace(report, blocks=blocks)
    before, after = speed_figures(report, "candidate", 1), speed_figures(twice, "candidate", 1)
    assert before is not None
    assert after is not None
    assert before.tokens_per_second is not None
    assert after.tokens_per_second == pytest.approx(2 * before.tokens_per_second)
    assert after.latency == before.latency
    assert block_table(report, "none").shape[1] == 5


def test_the_slowest_hundredth_is_told_of_more_than_a_thousand_requests_only() -> None:
    few = drawn({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1)
    many = drawn({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1, prompts=4 * TAIL_REQUESTS + 8)
    for report, quantiles in ((few, ["p50", "p95"]), (many, ["p50", "p95", "p99"])):
        told = speed_figures(report, "candidate", 1)
        assert told is not None
        assert list(told.latency) == quantiles


def test_two_temperatures_of_one_prompt_are_one_cluster(tmp_path: Path) -> None:
    with serving(fake := Fake(KNOWS)):
        report = measured(fake, tmp_path, temperatures=(0.0, 0.7), speed_prompts=4)
    assert len(report.of("candidate")) == 64
    assert len(report.of("candidate", temperature=0.7)) == 32
    assert len(report.of("none", "again")) == 32
    told = summarise(report, "candidate")
    assert told.requests == 64
    assert told.acceptance is not None
    assert told.acceptance.n == 32
    assert told.forwards_per_request is not None
    forwards = sum(r.counts.forwards for r in report.of("candidate"))
    assert told.forwards_per_request.estimate == pytest.approx(forwards / 64)
    # An answer is compared with plain decoding's at its own temperature.
    for request in report.of("candidate"):
        assert request.parity is not None
    assert {(b.temperature, b.concurrency) for b in report.blocks} == {(0.0, 1), (0.7, 1)}


def test_rouge_l_to_references_is_compared_with_plain_decodings_prompt_by_prompt(
    tmp_path: Path,
) -> None:
    with serving(fake := Fake(KNOWS, rounding=False)):
        report = measured(fake, tmp_path, speed_prompts=0)
    same = reference_difference(report, "candidate", alpha=0.05)
    assert same is not None
    assert (same.estimate, same.low, same.high, same.n) == (0, 0, 0, 32)
    worse = replace(
        report,
        requests=tuple(
            replace(r, rouge_l_reference=(r.rouge_l_reference or 0.0) - 0.1 * (n % 2))
            if r.arm == "candidate"
            else r
            for n, r in enumerate(report.requests)
        ),
    )
    found = reference_difference(worse, "candidate", alpha=0.05)
    assert found is not None
    assert found.estimate == pytest.approx(-0.05)
    assert found.high < 0
    row = next(row for row in rows(worse) if row["arm"] == "candidate")
    assert row["rouge_l_difference"] == pytest.approx(-0.05)
    assert reference_difference(drawn({"ngram": Arm(0.1)}, seed=1), "ngram", alpha=0.05) is None


def test_a_prompt_for_an_adapter_is_asked_of_it_and_of_nothing_else(tmp_path: Path) -> None:
    law = [replace(prompt, adapter="law") for prompt in PROMPTS[:4]]
    prompts = [*law, *PROMPTS[4:8]]
    with serving(fake := Fake(KNOWS, models=("toy", "law"))):
        report = measured(fake, tmp_path, prompts)
    assert [prompt.adapter for prompt in report.prompts] == ["law"] * 4 + [None] * 4
    with (
        serving(fake := Fake(KNOWS)) as alone,
        pytest.raises(ValueError, match="'q0' is for the adapter 'law'.*offers none"),
    ):
        measured(alone, tmp_path, prompts)


def test_an_endpoint_that_answers_by_another_adapter_than_was_asked_is_found_out(
    tmp_path: Path,
) -> None:
    law = [replace(prompt, adapter="law") for prompt in PROMPTS[4:]]
    fake = Fake(KNOWS, models=("toy", "law"), deaf=True)
    with serving(fake):
        report = measured(fake, tmp_path, [*PROMPTS[:4], *law])
    assert "by the adapter None, asked was law" in (report.incomplete or "")
