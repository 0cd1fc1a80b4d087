"""An endpoint that fails midway: measuring ends, says why, and keeps what it has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from evaluation.asking import Asking, EndedError
from evaluation.client import Client, MeasurementError
from evaluation.gate import judge
from evaluation.measure import measure
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, report_of
from evaluation.samples import Measurement
from speculation.records import Phase, Prompt
from tests.evaluation.fake_endpoint import Fake, serving

KNOWS = {"candidate": 0.7, "ngram": 0.1}
ARMS = ("candidate", "ngram", "none")
PROMPTS = [Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},)) for n in range(24)]
POLICY = Policy(prompts=24)
ROOT = Path(__file__).parents[2]


def measured(fake: Fake, folder: Path, **more: Any) -> Measurement:
    asked: dict[str, Any] = {
        "arms": ARMS,
        "draft_len": 4,
        "max_tokens": 32,
        "journal": folder / "journal.jsonl",
        "concurrency": 4,
        "speed_prompts": 16,
        "clock": fake.clock,
        "sleep": lambda seconds: None,
    }
    return measure(fake.url, PROMPTS, **{**asked, **more})


def reported(measurement: Measurement) -> Report:
    return report_of(measurement, facts=PairFacts(incompatible=()))


def at(request: int, then: Callable[[], None]) -> Callable[[int, int, str], None]:
    """Progress that does something when so many requests have been answered."""
    answered = 0

    def progress(done: int, total: int, what: str) -> None:
        nonlocal answered
        answered += 1
        if answered == request:
            then()

    return progress


def dies(fake: Fake, server: AbstractContextManager[Fake]) -> dict[str, Any]:
    def die() -> None:
        server.__exit__(None, None, None)

    return {"progress": at(30, die)}


def refuses(fake: Fake, server: AbstractContextManager[Fake]) -> dict[str, Any]:
    return {"progress": at(30, lambda: setattr(fake, "refuse_after", 0))}


def hangs(fake: Fake, server: AbstractContextManager[Fake]) -> dict[str, Any]:
    return {
        "progress": at(30, lambda: setattr(fake, "delay_seconds", 1.5)),
        "timeout_seconds": 0.4,
        "consecutive_errors": 2,
    }


def lies(fake: Fake, server: AbstractContextManager[Fake]) -> dict[str, Any]:
    return {"progress": at(30, lambda: setattr(fake, "lie", True))}


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (dies, "is gone"),
        (refuses, "refused with 503"),
        (hangs, "did not answer in 0.4 s: it hangs"),
        (lies, "reports what cannot be"),
    ],
)
def test_an_endpoint_that_fails_midway_gives_an_inconclusive_report_with_the_reason(
    fails: Callable[[Fake, AbstractContextManager[Fake]], dict[str, Any]],
    reason: str,
    tmp_path: Path,
) -> None:
    fake = Fake(KNOWS)
    server = serving(fake)
    with server:
        cut = measured(fake, tmp_path, **fails(fake, server))
    assert reason in (cut.incomplete or "")
    assert "failures in a row" in (cut.incomplete or "")
    assert 0 < len(cut.samples) < 3 * 24
    report = reported(cut)
    assert sum(report.errors.values()) >= 2
    verdict = judge(POLICY, report)
    assert verdict.phase is Phase.INCONCLUSIVE
    assert reason in verdict.sentence
    assert Report.from_json(report.as_json()) == report


@pytest.mark.slow  # seconds of requests each
def test_another_endpoint_finishes_what_a_failing_one_began(tmp_path: Path) -> None:
    with serving(Fake(KNOWS)) as fake:
        cut = measured(fake, tmp_path, **refuses(fake, serving(fake)))
    with serving(Fake(KNOWS)) as well:
        whole = measured(well, tmp_path)
    assert whole.incomplete is None
    assert set(cut.samples) <= set(whole.samples)
    assert len(whole.samples) == 3 * 24 + 3 * 16


@pytest.mark.slow  # seconds of requests each
@pytest.mark.parametrize(("fails", "concurrency"), [(dies, 1), (dies, 4), (refuses, 4)])
def test_an_endpoint_that_is_gone_is_no_fault_of_the_requests_that_another_answers(
    fails: Callable[[Fake, AbstractContextManager[Fake]], dict[str, Any]],
    concurrency: int,
    tmp_path: Path,
) -> None:
    for _ in range(2):  # it may happen again
        fake = Fake(KNOWS, rounding=False)  # else more prompts may be wanted
        server = serving(fake)
        with server:
            cut = measured(fake, tmp_path, concurrency=concurrency, **fails(fake, server))
        assert cut.errors["candidate"] + cut.errors["ngram"] + cut.errors["none"] >= 4
    with serving(Fake(KNOWS, rounding=False)) as well:
        report = reported(measured(well, tmp_path, concurrency=concurrency))
    assert sum(report.errors.values()) == 0
    verdict = judge(POLICY, report)
    assert verdict.phase is Phase.PASS, verdict.sentence


@pytest.mark.slow  # seconds of requests each
@pytest.mark.parametrize("concurrency", [1, 4])
def test_what_a_living_endpoint_failed_stays_counted_when_it_is_gone_later(
    concurrency: int, tmp_path: Path
) -> None:
    fake = Fake(KNOWS, rounding=False, fail_every=10)
    with serving(fake):
        end = at(120, lambda: setattr(fake, "refuse_after", 0))  # two calls an answer
        cut = measured(fake, tmp_path, concurrency=concurrency, progress=end)
    assert cut.incomplete is not None
    with serving(Fake(KNOWS, rounding=False)) as well:
        report = reported(measured(well, tmp_path, concurrency=concurrency))
    assert 5 <= sum(report.errors.values()) <= 7  # a tenth of what was asked before the end
    verdict = judge(POLICY, report)
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "error_limit" in verdict.sentence


def test_what_is_given_up_while_it_is_in_flight_did_not_fail() -> None:
    told: list[str] = []
    asking = Asking(sleep=lambda seconds: None, failed=lambda arm, why: told.append(arm))

    def aborted() -> int:
        asking.end("given up")
        raise MeasurementError("the connection was closed")

    with pytest.raises(EndedError, match="given up"):
        asking("candidate", aborted)
    assert told == []


def test_a_failure_after_which_a_later_request_was_answered_is_not_of_the_end() -> None:
    """A server that drains answers what it began, which does not show that it still lives."""
    gone: list[Mapping[str, int]] = []
    asking = Asking(sleep=lambda seconds: None, gone=gone.append, most=2)

    def fails() -> int:
        raise MeasurementError("gone")

    def fails_first() -> int:
        once.append(1)
        if len(once) == 1:
            raise MeasurementError("a hiccup")
        return 1

    def outlives_the_end() -> int:
        with pytest.raises(EndedError):
            asking("candidate", fails)
        return 1

    once: list[int] = []
    assert asking("none", fails_first) == 1
    assert asking("ngram", outlives_the_end) == 1
    assert gone == [{"candidate": 2}]


@pytest.mark.slow  # seconds of requests each
def test_a_failure_now_and_then_is_asked_again_and_counted(tmp_path: Path) -> None:
    fake = Fake(KNOWS, fail_every=10)
    with serving(fake):
        report = reported(measured(fake, tmp_path))
    assert report.incomplete is None
    assert 5 <= sum(report.errors.values()) <= 25  # of 120 answers and a few beside
    assert {r.prompt for r in report.of("candidate")} == {prompt.id for prompt in PROMPTS}


@pytest.mark.slow  # seconds of requests each
def test_an_endpoint_that_slows_down_is_told_by_plain_decoding_and_measured_anew(
    tmp_path: Path,
) -> None:
    fake = Fake(KNOWS)

    def slow() -> None:
        fake.forward_seconds *= 3

    # 72 answers for acceptance, and as many more as half of the speed runs; two calls an answer
    with serving(fake):
        cut = measured(fake, tmp_path, progress=at(2 * (72 + 24), slow))
        assert "slowed down: at 1 at once plain decoding made" in (cut.incomplete or "")
        verdict = judge(POLICY, reported(cut))
        assert verdict.phase is Phase.INCONCLUSIVE
        assert "slowed down" in verdict.sentence
        before = fake.answered
        again = measured(fake, tmp_path)  # as slow as it was in the end, but all the while
    assert again.incomplete is None
    assert fake.answered - before == 3 + 3 * 2 + 3 * 16  # greetings, warm-up, the speed runs alone


def test_where_nothing_was_measured_there_is_no_report_but_a_fault(tmp_path: Path) -> None:
    with (
        serving(Fake(KNOWS, refuse_after=3)) as fake,
        pytest.raises(MeasurementError, match="refused with 503"),
    ):
        measured(fake, tmp_path)


def test_failures_are_bounded_in_a_row_not_in_all() -> None:
    slept: list[float] = []
    told: list[str] = []
    asking = Asking(sleep=slept.append, failed=lambda arm, why: told.append(arm), most=3)
    answers = iter([False, False, True, False, False, True])

    def ask() -> int:
        if not next(answers):
            raise MeasurementError("no")
        return 1

    assert [asking("none", ask), asking("none", ask)] == [1, 1]
    assert told == ["none"] * 4
    assert slept == [0.5, 1.0, 0.5, 1.0]

    def never() -> int:
        raise MeasurementError("gone")

    with pytest.raises(EndedError, match=r"gone \(3 failures in a row\)"):
        asking("candidate", never)
    with pytest.raises(EndedError):  # and no more is asked of it afterwards
        asking("candidate", never)
    assert told.count("candidate") == 3


@pytest.mark.slow  # seconds of requests each
def test_one_hiccup_that_fails_everything_in_flight_ends_nothing(tmp_path: Path) -> None:
    fake = Fake(KNOWS)

    def hiccup() -> None:
        fake.fails = 4

    with serving(fake):
        report = reported(measured(fake, tmp_path, progress=at(30, hiccup)))
    assert report.incomplete is None
    assert sum(report.errors.values()) == 4


def test_a_prompt_that_is_refused_each_time_ends_it_though_others_are_answered(
    tmp_path: Path,
) -> None:
    with serving(Fake(KNOWS, refuses="question 7")) as fake:
        cut = measured(fake, tmp_path)
    assert "question 7 is too long" in (cut.incomplete or "")
    assert cut.errors["candidate"] == 4


def test_a_stream_that_drips_for_ever_is_a_hang(tmp_path: Path) -> None:
    fake = Fake(KNOWS, drips=True)
    with serving(fake), closing(Client(fake.url, timeout_seconds=0.3)) as client:
        with pytest.raises(MeasurementError, match="still answering after 0.3 s: it hangs"):
            client.ask(PROMPTS[0], model="toy", arm="none", draft_len=4, max_tokens=32, stream=True)
        client.abort()


CHILD = """
import sys
from pathlib import Path
from tests.evaluation.test_failing import ARMS, PROMPTS
from evaluation.measure import measure

measure(
    sys.argv[1], PROMPTS, arms=ARMS, draft_len=4, max_tokens=32, concurrency=4, speed_prompts=8,
    journal=Path(sys.argv[2]),
    progress=lambda done, total, what: print(what, flush=True),
)
"""


@pytest.mark.slow  # seconds of requests each
@pytest.mark.parametrize("progress", [20, 2 * 72 + 20], ids=["in acceptance", "in speed"])
def test_a_measuring_process_that_is_killed_goes_on_where_it_was(
    progress: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    argv = [sys.executable, "-c", CHILD, "", str(journal)]
    with serving(Fake(KNOWS)) as fake:
        argv[3] = fake.url
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            for _ in range(progress):
                assert child.stdout.readline(), "it ended by itself"
            child.kill()
        kept = journal.read_bytes().count(b'"answer"')
        before = fake.answered
        whole = measured(fake, tmp_path, speed_prompts=8)  # too few to call the clocks' change slow
    assert whole.incomplete is None
    assert len(whole.samples) == 3 * 24 + 3 * 8
    # greetings, warm-up, what is left, and of the speed runs at most one block of all arms again
    left = len(whole.samples) - kept
    assert 3 + 6 + left <= fake.answered - before <= 3 + 6 + left + 3 * 2
