from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.client import Client, MeasurementError
from evaluation.gate import judge
from evaluation.journal import JournalError
from evaluation.measure import ARMS, measure
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, ReportError, report_of
from evaluation.rules_drawn import drawn
from evaluation.running import IN_ALL
from evaluation.samples import Measurement
from evaluation.summary import rows
from speculation.records import Phase, Prompt, pool
from tests.evaluation.fake_endpoint import COLD, FAULTS, Fake, serving

KNOWS = {"candidate": 0.7, "incumbent": 0.3, "ngram": 0.1}
PROMPTS = [
    Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},), reference="w1 w2 w3")
    for n in range(24)
]
FEW = PROMPTS[:8]
FIRST_PAIR = ("candidate", "ngram", "none")
POLICY = Policy(prompts=24)
FITS = PairFacts(incompatible=())
GREETINGS, WARM_UP = 4, 4 * 2  # requests that are no samples: one an arm; a block an arm


def measured(
    fake: Fake,
    journal: Path,
    prompts: list[Prompt] = PROMPTS,
    *,
    arms: tuple[str, ...] = ARMS,
    temperatures: tuple[float, ...] = (0.0,),
    speed_prompts: int = 8,
) -> Measurement:
    return measure(
        fake.url,
        prompts,
        arms=arms,
        draft_len=4,
        max_tokens=64,
        journal=journal,
        temperatures=temperatures,
        concurrency=6,
        speed_prompts=speed_prompts,
        clock=fake.clock,
        sleep=lambda seconds: None,
    )


@pytest.mark.slow  # hundreds of requests
def test_every_arm_is_measured_on_the_same_prompts_and_the_truth_comes_out(tmp_path: Path) -> None:
    fake = Fake(KNOWS, delay_seconds=0.02)  # long enough for six to be there at once
    with serving(fake):
        measurement = measured(fake, tmp_path / "journal.jsonl", speed_prompts=24)
    report = report_of(measurement, facts=FITS)
    for arm in ("candidate", "incumbent", "ngram", "none"):
        assert [r.prompt for r in report.of(arm)] == [prompt.id for prompt in PROMPTS]
    assert len(report.of("candidate", "speed")) == len(report.of("none", "speed")) == 24
    assert len(report.of("ngram", "speed")) == 24
    found = pool([request.counts for request in report.of("candidate")])
    assert found.acceptance == pytest.approx(0.7, abs=0.05)  # 1,100 tokens: 3 standard errors
    assert fake.most_at_once == 6
    verdict = judge(POLICY, report)
    assert verdict.phase is Phase.PASS, verdict.sentence
    table = {row["arm"]: row for row in rows(report)}
    assert table["candidate"]["speedup"] > 1.3
    assert table["none"]["speedup"] == pytest.approx(1.0)
    assert table["candidate"]["forwards_per_request"] < table["none"]["forwards_per_request"]
    assert 0.2 < table["candidate"]["exact_match"] < 1.0  # near-ties part some of the texts
    assert report.conditions.engine == "toy 1"


def test_the_order_of_the_arms_is_reversed_from_block_to_block(tmp_path: Path) -> None:
    with serving(Fake(KNOWS)) as fake:
        measured(fake, tmp_path / "journal.jsonl", FEW)
    stored = (tmp_path / "journal.jsonl").read_text()
    lines = [json.loads(line) for line in stored.splitlines()]
    alone = [(line["block"], line["arm"]) for line in lines[1:] if line["run"] == "speed"]
    order = list(dict.fromkeys(alone))
    arms = ["candidate", "incumbent", "ngram", "none"]
    assert order[:8] == [*((0, arm) for arm in arms), *((1, arm) for arm in reversed(arms))]


def test_a_killed_measurement_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serving(Fake(KNOWS, refuse_after=30)) as dying:
        cut = measured(dying, journal, FEW)
    assert cut.incomplete is not None
    assert "refused with 503" in cut.incomplete
    assert "shutting down" in cut.incomplete
    with journal.open("ab") as stored:
        stored.write(b'{"run": "acceptan')  # killed while writing
    kept = sum('"run": "acceptance"' in line for line in journal.read_text().splitlines())
    assert kept >= 20
    with serving(Fake(KNOWS)) as fake:
        again = report_of(measured(fake, journal, FEW))
        total = 4 * 8 + 4 * 8
        assert fake.answered == total - kept + GREETINGS + WARM_UP
        assert report_of(measured(fake, journal, FEW)) == again
        assert fake.answered == total - kept + GREETINGS + WARM_UP + GREETINGS
    assert again.incomplete is None
    assert sum(again.errors.values()) == 0  # that the endpoint was gone is no fault of requests


def test_what_a_draft_says_in_the_speed_runs_is_compared_too(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serving(Fake(KNOWS)) as fake:
        good = report_of(measured(fake, journal, arms=FIRST_PAIR), facts=FITS)
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        for line in lines:
            if (line.get("run"), line.get("arm")) == ("speed", "candidate"):
                line["answer"]["text"] = "GARBAGE"
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        bad = report_of(measured(fake, journal, arms=FIRST_PAIR), facts=FITS)
    found = [
        next(f for f in judge(POLICY, each).findings if f.rule == "parity_as_served")
        for each in (good, bad)
    ]
    assert [f.phase for f in found] == [Phase.PASS, Phase.FAIL], found
    assert "serving bug" in found[1].statement
    assert Report.from_json(bad.as_json()) == bad


def test_a_block_of_the_speed_runs_that_was_cut_in_two_is_measured_as_a_whole(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal.jsonl"
    fake = Fake(KNOWS)
    with serving(fake):
        measured(fake, journal, FEW)
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(lines[:-3]))  # half of the last block is gone
        before = fake.answered
        report = report_of(measured(fake, journal, FEW))
    assert fake.answered - before == GREETINGS + WARM_UP + 4 * 2
    assert len(report.of("none", "speed")) == 8


@pytest.mark.slow  # hundreds of requests
def test_samples_of_another_candidate_are_put_aside_not_mixed(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    fake = Fake(KNOWS)
    with serving(fake):
        measured(fake, journal, FEW)
        fake.pairs["candidate"] = "p-another"
        before = fake.answered
        report = report_of(measured(fake, journal, FEW))
    assert fake.answered - before == GREETINGS + WARM_UP + 4 * 8 + 4 * 8
    assert report.conditions.pairs["candidate"] == "p-another"
    assert len(list(tmp_path.glob("journal.jsonl.of-*"))) == 1


def test_a_broken_line_inside_the_journal_is_named(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serving(Fake(KNOWS)) as fake:
        measured(fake, journal, PROMPTS[:2])
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join([*lines[:3], "not a sample\n", *lines[4:]]))
        with pytest.raises(JournalError, match="line 4 is not JSON"):
            measured(fake, journal, PROMPTS[:2])


def test_a_server_that_is_gone_is_a_fault_with_the_reason(tmp_path: Path) -> None:
    with serving(Fake(KNOWS)) as fake:
        pass
    with pytest.raises(MeasurementError, match="is gone"):
        measured(fake, tmp_path / "journal.jsonl")


def test_an_arm_that_the_server_does_not_have_is_a_fault_that_names_it(tmp_path: Path) -> None:
    with (
        serving(Fake({"candidate": 0.7})) as fake,
        pytest.raises(MeasurementError, match="unknown arm 'incumbent'"),
    ):
        measured(fake, tmp_path / "journal.jsonl")


def test_a_server_that_lies_about_its_counts_is_a_fault(tmp_path: Path) -> None:
    with (
        serving(Fake(KNOWS, lie=True)) as fake,
        pytest.raises(MeasurementError, match="reports what cannot be"),
    ):
        measured(fake, tmp_path / "journal.jsonl")


def test_a_pair_swapped_midway_ends_the_measurement_with_the_reason(tmp_path: Path) -> None:
    fake = Fake(KNOWS)

    def swap(done: int, total: int, what: str) -> None:
        if done == 30:
            fake.pairs["candidate"] = fake.pairs["none"] = "p-another"

    with serving(fake):
        cut = measure(
            fake.url,
            PROMPTS,
            draft_len=4,
            max_tokens=64,
            journal=tmp_path / "journal.jsonl",
            progress=swap,
        )
    assert "swapped during the measurement" in (cut.incomplete or "")
    assert len(cut.samples) >= 30
    verdict = judge(POLICY, report_of(cut, facts=FITS))
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "swapped during the measurement" in verdict.sentence


def test_a_hanging_server_is_a_fault_with_the_reason() -> None:
    with serving(Fake(KNOWS, delay_seconds=0.5)) as fake:
        client = Client(fake.url, timeout_seconds=0.1)
        with pytest.raises(MeasurementError, match="did not answer in 0.1 s"):
            client.ask(PROMPTS[0], model="toy", arm="none", draft_len=4, max_tokens=64)
        client.close()


def test_a_busy_server_is_asked_again_when_it_says_and_the_wait_is_not_counted() -> None:
    slept: list[float] = []
    with serving(Fake(KNOWS, busy=2, key="k" * 20)) as fake:

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            fake.now += seconds

        client = Client(fake.url, key="k" * 20, clock=fake.clock, sleep=sleep)
        answer = client.ask(PROMPTS[0], model="toy", arm="none", draft_len=4, max_tokens=8)
        client.close()
    assert slept == [7, 7]
    assert answer.seconds < 7


def test_a_server_that_stays_busy_is_a_fault_in_the_time_of_one_request() -> None:
    slept: list[float] = []
    with serving(Fake(KNOWS, busy=100)) as fake:
        client = Client(fake.url, timeout_seconds=20, sleep=slept.append)
        with pytest.raises(MeasurementError, match="refused with 429"):
            client.ask(PROMPTS[0], model="toy", arm="none", draft_len=4, max_tokens=8)
        client.close()
    assert slept == [7, 7]


@pytest.mark.parametrize(
    ("arms", "prompts"),
    [
        (("candidate",), PROMPTS),
        (("candidate", "candidate", "none"), PROMPTS),
        (("candidate", "wild", "none"), PROMPTS),
        (("candidate", "none"), []),
        (("candidate", "none"), [PROMPTS[0], PROMPTS[0]]),
        (("candidate", "none"), [PROMPTS[0], replace(PROMPTS[0], id="again")]),
    ],
    ids=["no plain", "twice", "unknown", "no prompts", "same id", "same question"],
)
def test_what_cannot_be_measured_is_refused_before_a_request(
    arms: tuple[str, ...], prompts: list[Prompt], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="wanted|nothing can be measured"):
        measure(
            "http://127.0.0.1:9",
            prompts,
            arms=arms,
            draft_len=4,
            max_tokens=8,
            journal=tmp_path / "journal.jsonl",
        )


def test_each_kind_of_run_ends_at_its_total_and_time_left_at_nothing(tmp_path: Path) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    fake = Fake(KNOWS)
    with serving(fake):
        measure(
            fake.url,
            PROMPTS[:4],
            draft_len=4,
            max_tokens=64,
            speed_concurrencies=(1, 2),
            journal=tmp_path / "journal.jsonl",
            clock=fake.clock,
            progress=lambda done, total, what: seen.setdefault(what, []).append((done, total)),
        )
    for what in ("acceptance", "speed, 1 at once", "speed, 2 at once"):
        assert seen.pop(what) == [(done, 16) for done in range(17)]
    ((what, times),) = seen.items()
    assert what == IN_ALL
    assert times[-1][0] == times[-1][1] > 0
    assert [done for done, _ in times] == sorted(done for done, _ in times)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_speculative_path_never_passes_parity(fault: str, tmp_path: Path) -> None:
    with serving(Fake(KNOWS, fault=fault)) as fake:
        try:
            measurement = measured(fake, tmp_path / "journal.jsonl", arms=FIRST_PAIR)
        except MeasurementError:  # its own counts gave it away in the first answer
            assert fault in ("says_a_word_twice", "ends")
            return
    verdict = judge(POLICY, report_of(measurement, facts=FITS))
    assert verdict.phase is not Phase.PASS
    if measurement.incomplete is not None:  # its own counts did later
        assert fault in ("says_a_word_twice", "ends"), measurement.incomplete
        assert "reports what cannot be" in measurement.incomplete
        return
    found = [f for f in verdict.findings if f.rule == "parity"]
    assert found, verdict.sentence
    assert found[0].phase is not Phase.PASS
    assert "serving bug" in found[0].statement


def drawn_few(fake: Fake, journal: Path) -> Measurement:
    return measured(fake, journal, FEW, arms=FIRST_PAIR, temperatures=(0.7,), speed_prompts=0)


@pytest.mark.parametrize(("fault", "phase"), [(None, Phase.PASS), (COLD, Phase.FAIL)])
def test_at_a_temperature_what_is_judged_is_drawn_without_a_seed(
    fault: str | None, phase: Phase, tmp_path: Path
) -> None:
    """With seeds all answers were plain decoding's, whatever users without one get."""
    with serving(Fake(KNOWS, fault=fault, rounding=False)) as fake:
        report = report_of(drawn_few(fake, tmp_path / "journal.jsonl"))
    assert len(report.of("none", "again")) == len(report.of("candidate", "again")) == len(FEW)
    found = {f.rule: f for f in drawn(report, POLICY, 0.7)}
    assert found["parity_drawn_spread"].phase is phase, found["parity_drawn_spread"].statement
    # A draft and plain decoding that have the same seed say the same.
    seeded = found["parity_drawn_seeded"]
    assert seeded.phase is Phase.PASS
    assert seeded.interval is not None
    assert seeded.interval.low == seeded.interval.high == 0


def test_a_measurement_that_was_killed_goes_on_with_what_was_drawn(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serving(Fake(KNOWS, refuse_after=30)) as fake:
        cut = drawn_few(fake, journal)
        fake.refuse_after = None
        whole = drawn_few(fake, journal)
    assert cut.incomplete is not None
    assert whole.incomplete is None
    first = {sample.key: sample.answer.text for sample in cut.samples}
    assert 8 < len(first) < len(whole.samples)
    assert first.items() <= {s.key: s.answer.text for s in whole.samples}.items()


def test_without_rounding_every_answer_is_plain_decodings(tmp_path: Path) -> None:
    with serving(Fake(KNOWS, rounding=False)) as fake:
        report = report_of(measured(fake, tmp_path / "journal.jsonl", arms=FIRST_PAIR), facts=FITS)
    parity = next(f for f in judge(POLICY, report).findings if f.rule == "parity")
    assert parity.statement == "all 24 answers are plain decoding's, token by token"


def test_a_report_holds_no_text_and_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    with serving(Fake(KNOWS)) as fake:
        measurement = measured(fake, tmp_path / "journal.jsonl", PROMPTS[:4])
    report = report_of(measurement)
    report.write(tmp_path / "report.json")
    stored = (tmp_path / "report.json").read_text()
    assert "w1" not in stored
    assert "question 0" not in stored
    assert Report.read(tmp_path / "report.json") == report
    assert Report.read(tmp_path / "report.json").digest == report.digest


def test_a_report_that_was_changed_after_measuring_is_refused(tmp_path: Path) -> None:
    with serving(Fake(KNOWS)) as fake:
        report = report_of(measured(fake, tmp_path / "journal.jsonl", PROMPTS[:4]))
    report.write(tmp_path / "report.json")
    stored = json.loads((tmp_path / "report.json").read_text())
    stored["conditions"]["draft_len"] = 5
    (tmp_path / "report.json").write_text(json.dumps(stored))
    with pytest.raises(ReportError, match="changed since it was measured"):
        Report.read(tmp_path / "report.json")
    other = replace(report, tokenizer="code")
    assert other.digest != report.digest


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": "other"}', '{"format": "paceline report 1"}']
)
def test_a_file_that_is_no_report_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(ReportError):
        Report.read(tmp_path / "report.json")
