"""The monitor's own page of metrics."""

from __future__ import annotations

import httpx
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evaluation.endpoints import free_port
from monitoring.exporting import MOST_PAIRS, MOST_SLICES, Exporter, Figures, Shown, serve
from monitoring.notices import Notice
from speculation.records import Alarm, Interval

ALARM = Alarm(
    *("a-1", "p-1", "d" * 64, "drift", "it fell", 100.0, 118),
    drafter="head",
    slice="adapter=tenor",
)
WHOLE = Figures("p-1", "head", "", Interval(0.58, 0.55, 0.61, 100), 0.70, 39.2, 500, 20)
FULL = Shown(1000.5, [ALARM], [WHOLE], {"http://a:8000": True, "http://b:8000": False})


def samples(exporter: Exporter) -> dict[tuple[str, tuple[str, ...]], float]:
    page = generate_latest(registries[exporter]).decode()
    return {
        (
            sample.name.removeprefix("paceline_"),
            tuple(sample.labels[name] for name in sorted(sample.labels)),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


registries: dict[Exporter, CollectorRegistry] = {}


def made() -> Exporter:
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    registries[exporter] = registry
    return exporter


def test_a_look_is_shown_whole() -> None:
    exporter = made()
    exporter.show(FULL, [Notice.raised(ALARM)])
    found = samples(exporter)
    assert found[("alarm", ("drift", "head", "p-1", "ticket", "adapter=tenor"))] == 1
    assert found[("alarms_total", ("drift",))] == 1
    whose = ("head", "p-1", "")
    assert [found[(f"acceptance{end}", whose)] for end in ("", "_low", "_high", "_baseline")] == [
        *(0.58, 0.55, 0.61, 0.70)
    ]
    assert found[("forwards_per_request", whose)] == 39.2
    assert found[("watched_requests_total", whose)] == 500
    assert found[("below_floor_requests_total", whose)] == 20
    assert found[("source_up", ("http://b:8000",))] == 0
    assert found[("monitor_last_look_timestamp_seconds", ())] == 1000.5


def test_what_is_over_is_gone_and_what_was_raised_stays_counted() -> None:
    exporter = made()
    exporter.show(FULL, [Notice.raised(ALARM)])
    exporter.show(Shown(1001.0))
    found = samples(exporter)
    assert not [key for key in found if key[0] in ("alarm", "acceptance")]
    assert found[("alarms_total", ("drift",))] == 1


def test_what_is_not_known_is_left_out() -> None:
    exporter = made()
    exporter.show(Shown(1.0, figures=[Figures("p-1", "ngram")]))
    found = samples(exporter)
    assert not [name for name, _ in found if name.startswith(("acceptance", "forwards"))]


def test_the_page_is_bounded() -> None:
    many = [
        Figures(f"p-{pair}", "head", "" if part == 0 else f"adapter={part}", baseline=0.7)
        for pair in range(MOST_PAIRS + 5)
        for part in range(MOST_SLICES + 5)
    ]
    exporter = made()
    exporter.show(Shown(1.0, figures=many))
    pairs = [labels for name, labels in samples(exporter) if name == "acceptance_baseline"]
    assert len(pairs) == MOST_PAIRS * (MOST_SLICES + 1)
    assert ("head", "p-0", "") not in pairs  # the pairs served last are kept
    assert ("head", f"p-{MOST_PAIRS + 4}", "") in pairs


def test_it_answers_on_this_machine_until_it_is_ended() -> None:
    exporter = made()
    exporter.show(FULL)
    port = free_port()
    end = serve(registries[exporter], port)
    try:
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    finally:
        end()
    assert 'paceline_alarm{cause="drift"' in page
