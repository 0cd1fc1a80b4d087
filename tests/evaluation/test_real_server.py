"""The measurement against the real server, in a process of its own: toy weights, then real ones."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from evaluation.endpoints import Endpoint, free_port, started
from evaluation.gate import judge
from evaluation.measure import measure, quiet
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, report_of
from evaluation.running import Progress
from evaluation.samples import Measurement
from speculation.records import Finding, Phase, Prompt, pool

pytestmark = pytest.mark.slow

PROMPTS = [
    Prompt(f"q{n}", ({"role": "user", "content": f"the quick brown fox number {n}"},))
    for n in range(24)
]

FITS = PairFacts(incompatible=())  # toys of one tokenizer

SERVER = """
import sys
from pathlib import Path
import speculation.judging as judging
import speculation.rounds as rounds
from serving.main import serve
from serving.settings import ServeSettings

fault, home, target, port = sys.argv[1:5]
arms = dict(arm.split("=") for arm in sys.argv[5:])
right_count, right_judge = judging.matching_accept_count, judging.judge

def one_too_many(chosen, ids, lens):
    return (right_count(chosen, ids, lens) + 1).minimum(lens)

def bonus_of_the_place_before(logits, drafts, *rest):
    accepted, added = right_judge(logits, drafts, *rest)
    best = logits.argmax(dim=-1)
    return accepted, [int(best[row, max(0, count - 1)]) for row, count in enumerate(accepted)]

if fault == "accepts a rejected token":
    judging.matching_accept_count = one_too_many
if fault == "maps the draft's outputs to the next token":
    from speculation.model_drafter import ModelDrafter
    right_start = ModelDrafter._catch_up
    ModelDrafter._catch_up = lambda self, asks: right_start(self, asks).roll(1, dims=-1)
if fault == "is dead beyond 300 tokens":
    import torch
    from speculation.model_drafter import ModelDrafter
    right_start = ModelDrafter._catch_up
    def dead_far_out(self, asks):
        logits = right_start(self, asks)
        far = torch.tensor([len(ask.context) > 300 for ask in asks])[:, None]
        return torch.where(far, logits.roll(1, dims=-1), logits)
    ModelDrafter._catch_up = dead_far_out
if fault == "takes its time where it is asked by several":
    import time
    from speculation.model_drafter import ModelDrafter
    right_start = ModelDrafter._catch_up
    def slow_in_a_batch(self, asks):
        begun = time.perf_counter()
        logits = right_start(self, asks)
        if len(asks) > 1:  # three times as long: slow, and far from what opens the breaker
            time.sleep(2 * (time.perf_counter() - begun))
        return logits
    ModelDrafter._catch_up = slow_in_a_batch
if fault == "takes the bonus from the wrong place":
    rounds.judge = bonus_of_the_place_before
raise SystemExit(serve(ServeSettings(
    home=Path(home), port=int(port), target=Path(target), trial=True, arms=arms, threads=1,
)))
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.toys import toy_target_folder

    return toy_target_folder(tmp_path_factory.mktemp("target"), seed=3)


@pytest.fixture(scope="module")
def head(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.toys import toy_draft_folder

    return toy_draft_folder(target, tmp_path_factory.mktemp("head"), seed=3)


@contextmanager
def trial(
    target: Path, arms: Mapping[str, str], home: Path, *, fault: str = "none"
) -> Iterator[Endpoint]:
    port = free_port()
    argv = [sys.executable, "-c", SERVER, fault, str(home), str(target), str(port)]
    argv += [f"{arm}={draft}" for arm, draft in arms.items()]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with started(
        argv,
        ready_url=f"http://127.0.0.1:{port}/health/ready",
        log=home / "server.log",
        environ=environ,
    ) as server:
        yield server


def measured(
    url: str,
    home: Path,
    *arms: str,
    prompts: Sequence[Prompt] = PROMPTS,
    progress: Progress = quiet,
    **more: Any,
) -> Measurement:
    asked: dict[str, Any] = {
        **{"arms": arms, "draft_len": 3, "max_tokens": 24, "journal": home / "journal.jsonl"},
        **{"speed_prompts": 8, "speed_concurrencies": (1, 4), "progress": progress},
    }
    return measure(url, prompts, **{**asked, **more})


def parity(report: Report) -> Finding:
    findings = judge(Policy(prompts=24), report).findings
    return next(found for found in findings if found.rule == "parity")


def test_in_float32_every_answer_is_plain_decodings_whatever_drafts(
    target: Path, head: Path, tmp_path: Path
) -> None:
    arms = {"candidate": str(head), "incumbent": "ngram", "ngram": "ngram", "none": "none"}
    with trial(target, arms, tmp_path) as server:
        report = report_of(measured(server.url, tmp_path, *arms), facts=FITS)
    assert parity(report).statement == "all 24 answers are plain decoding's, token by token"
    assert all(r.parity is not None and r.parity.equal for r in report.of("ngram"))
    # A head that was never trained: right texts, and served acceptance finds it out.
    assert judge(Policy(prompts=24), report).phase is Phase.FAIL
    assert report.conditions.pairs["incumbent"] == report.conditions.pairs["ngram"]


@pytest.mark.parametrize(
    "fault", ["accepts a rejected token", "takes the bonus from the wrong place"]
)
def test_a_fault_in_the_real_engine_is_called_a_serving_bug(
    fault: str, target: Path, head: Path, tmp_path: Path
) -> None:
    arms = {"candidate": str(head), "ngram": "ngram", "none": "none"}
    with trial(target, arms, tmp_path, fault=fault) as server:
        report = report_of(measured(server.url, tmp_path, *arms), facts=FITS)
    found = parity(report)
    assert found.phase is not Phase.PASS
    assert "serving bug" in found.statement


def test_a_draft_of_perfect_accuracy_that_is_wired_wrongly_fails_by_served_acceptance_alone(
    target: Path, tmp_path: Path
) -> None:
    """The draft is the target itself: no figure of its training could be better."""
    arms = {"candidate": str(target), "ngram": "ngram", "none": "none"}
    served = {}
    for fault in ("none", "maps the draft's outputs to the next token"):
        (home := tmp_path / fault.replace(" ", "-")).mkdir()
        with trial(target, arms, home, fault=fault) as server:
            report = report_of(measured(server.url, home, *arms), facts=FITS)
        assert parity(report).phase is Phase.PASS  # the texts are right either way
        served[fault] = judge(Policy(prompts=24), report)
    right, wrong = (
        next(f for f in verdict.findings if f.rule == "acceptance_floor")
        for verdict in served.values()
    )
    assert (right.phase, wrong.phase) == (Phase.PASS, Phase.FAIL)
    assert right.interval is not None
    assert right.interval.estimate == 1.0
    assert wrong.interval is not None
    assert wrong.interval.estimate < 0.1
    assert [*served.values()][1].phase is Phase.FAIL


def test_two_copies_of_one_draft_are_not_told_apart(
    target: Path, head: Path, tmp_path: Path
) -> None:
    shutil.copytree(head, copy := tmp_path / "copy")
    arms = {"candidate": str(head), "incumbent": str(copy), "ngram": "ngram", "none": "none"}
    with trial(target, arms, tmp_path) as server:
        report = report_of(measured(server.url, tmp_path, *arms), facts=FITS)
    told = {finding.rule: finding for finding in judge(Policy(prompts=24), report).findings}
    found = told["acceptance_over_incumbent"]
    assert found.phase is Phase.PASS, found.statement
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0.0, 0.0), "float32: the same, each time"
    assert not [f for f in told.values() if f.rule.startswith("slice") and f.phase is Phase.FAIL]


def test_a_draft_that_is_dead_at_long_contexts_is_capped_there_though_its_average_is_good(
    target: Path, tmp_path: Path
) -> None:
    arms = {"candidate": str(target), "ngram": "ngram", "none": "none"}
    words = "the quick brown fox jumps over a lazy dog "
    prompts = [
        Prompt(f"{name}{n}", ({"role": "user", "content": f"number {n} {words * many}"},))
        for n in range(32)
        for name, many in (("short", 1), ("long", 20))
    ]
    with trial(target, arms, tmp_path, fault="is dead beyond 300 tokens") as server:
        alone = {"prompts": prompts, "speed_concurrencies": (1,)}
        report = report_of(measured(server.url, tmp_path, *arms, **alone), facts=FITS)  # type: ignore[arg-type]
    lengths = sorted(request.prompt_tokens for request in report.of("candidate"))
    assert lengths[31] < 256 < 300 < lengths[32] < 512
    # What a toy's seconds are is of no interest here.
    policy = Policy(
        prompts=64,
        speed_over_plain=0.01,
        speed_elsewhere=0.01,
        first_token_over_plain=100.0,
        p95_over_plain=100.0,
        inconclusive_limit=9,
    )
    verdict = judge(policy, report)
    told = {finding.rule: finding for finding in verdict.findings}
    assert verdict.phase is Phase.PASS, verdict.sentence
    assert verdict.context_measured is not None
    assert lengths[31] <= verdict.context_measured <= 256 + 24
    assert "context up to 512" in told["context_cap"].statement
    # Each half by itself, and the whole, which hides it.
    by_half = {
        name: pool([r.counts for r in report.of("candidate") if r.prompt.startswith(name)])
        for name in ("short", "long", "")
    }
    assert by_half["short"].acceptance == 1.0
    assert (by_half["long"].acceptance or 0) < 0.1
    assert (by_half[""].acceptance or 0) > policy.acceptance_floor


def test_a_draft_that_is_accepted_and_does_not_pay_at_a_load_is_told_so(
    target: Path, tmp_path: Path
) -> None:
    arms = {"candidate": str(target), "ngram": "ngram", "none": "none"}
    slow = "takes its time where it is asked by several"
    with trial(target, arms, tmp_path, fault=slow) as server:
        # At a fixed K: a K that adapts would leave this draft alone, and be as fast as plain.
        taken = measured(server.url, tmp_path, *arms, speed_draft_len=3)
    verdict = judge(Policy(prompts=24, must_gain=(4,)), report_of(taken, facts=FITS))
    told = {finding.rule: finding for finding in verdict.findings}
    assert told["acceptance_floor"].phase is Phase.PASS
    found = told["speed_over_plain at 4"]
    assert found.interval is not None
    assert found.interval.estimate < 0.9, found.statement
    assert found.phase is not Phase.PASS  # FAIL where the machine is quiet enough to tell
    assert verdict.phase is not Phase.PASS


def test_a_server_killed_midway_leaves_an_incomplete_report_that_another_one_finishes(
    target: Path, head: Path, tmp_path: Path
) -> None:
    arms = {"candidate": str(head), "ngram": "ngram", "none": "none"}
    answered = 0
    with trial(target, arms, tmp_path) as server:

        def kill(done: int, total: int, what: str) -> None:
            nonlocal answered
            answered += what == "acceptance"
            if answered == 20:
                os.kill(server.pid, signal.SIGKILL)

        cut = measured(server.url, tmp_path, *arms, progress=kill)
    assert "is gone" in (cut.incomplete or "")
    assert 19 <= len(cut.samples) < 3 * 24
    assert judge(Policy(prompts=24), report_of(cut)).phase is Phase.INCONCLUSIVE
    before = (tmp_path / "journal.jsonl").read_bytes()
    # Its port and its log are new; its release and its pairs are the same.
    with trial(target, arms, tmp_path) as server:
        report = report_of(measured(server.url, tmp_path, *arms))
    assert report.incomplete is None
    assert (tmp_path / "journal.jsonl").read_bytes().startswith(before)
    assert len(report.of("candidate")) == len(report.of("none")) == 24


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from training.smollm2 import gguf_file, unpack

    try:
        gguf_file()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    return unpack(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.fixture(scope="module")
def docstring_prompts() -> list[Prompt]:
    from training.corpus import documented, standard_library

    short = (d for d in documented(standard_library()) if d.held_out and len(d.source) < 400)
    found = islice(short, 24)
    return [
        Prompt(d.name, ({"role": "user", "content": d.prompt},), reference=d.docstring)
        for d in found
    ]


def test_in_bfloat16_real_texts_part_only_where_rounding_decides(
    small_model: Path, docstring_prompts: list[Prompt], tmp_path: Path
) -> None:
    arms = {"candidate": "ngram", "ngram": "ngram", "none": "none"}
    with trial(small_model, arms, tmp_path) as server:
        report = report_of(
            measured(server.url, tmp_path, *arms, prompts=docstring_prompts), facts=FITS
        )
    found = parity(report)
    assert found.phase is Phase.PASS, found.statement
    parities = [r.parity for r in report.of("candidate") if r.parity is not None]
    assert sum(p.equal for p in parities) >= 12  # 1 % of positions flip, of 24 a text: 19 expected


def test_a_fault_in_the_engine_is_not_taken_for_rounding_on_real_weights(
    small_model: Path, docstring_prompts: list[Prompt], tmp_path: Path
) -> None:
    arms = {"candidate": "ngram", "ngram": "ngram", "none": "none"}
    with trial(small_model, arms, tmp_path, fault="accepts a rejected token") as server:
        report = report_of(
            measured(server.url, tmp_path, *arms, prompts=docstring_prompts), facts=FITS
        )
    found = parity(report)
    assert found.phase is not Phase.PASS
    assert "serving bug" in found.statement
