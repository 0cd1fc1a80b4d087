"""Pages of metrics: what is read of them, and what is not believed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from monitoring.adapters import ADAPTERS, counts_of, requests_of
from monitoring.pages import PageError, Sample, read_page
from monitoring.settings import Source
from speculation.records import Counts

VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 180.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 185.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 45.0
vllm:generation_tokens_total{engine="0",model_name="m"} 285.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
vllm:e2e_request_latency_seconds_bucket{le="0.3",model_name="m"} NaN
process_start_time_seconds 1.764e+09
a broken line of another exporter { {{
"""
SGLANG = """\
sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.5
sglang:spec_accept_length{model_name="m",tp_rank="1"} 2.7
sglang:spec_accept_rate{model_name="m",tp_rank="0"} NaN
sglang:num_running_reqs{model_name="m"} 3
"""


def read(text: str | bytes) -> list[Sample]:
    return read_page(text, prefixes=("paceline_rounds",), family="paceline_")


def test_a_page_of_the_library_is_read() -> None:
    registry = CollectorRegistry()
    Counter("paceline_rounds", "r", ("pair",), registry=registry).labels('p"\\\n').inc(3)
    found = [one for one in read(generate_latest(registry)) if one.name.endswith("_total")]
    assert found == [Sample("paceline_rounds_total", {"pair": 'p"\\\n'}, 3.0)]


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
        '{"error": "not found"}',
        "node_load1 0.3\n",
        'paceline_rounds_total{pair="p" 3\n',
        'paceline_rounds_total{pair="p"} NaN\n',
        'paceline_rounds_total{pair="p"} -1\n',
        'paceline_rounds_total{pair="p"} +Inf\n',
        f'paceline_rounds_total{{pair="{"p" * 600}"}} 1\n',
        f'paceline_rounds_total{{pair="{"p" * 5_000_000}"}} 1\n',
        "paceline_rounds_total 1\n" * 20_001,
        b"paceline_rounds_total{pair=\xff\xfe} 1\n",
    ],
    ids=[
        *("html", "json", "another's", "broken", "nan", "negative", "infinite"),
        *("label", "line", "lines", "binary"),
    ],
)
def test_a_page_that_cannot_be_believed_is_named(text: str | bytes) -> None:
    with pytest.raises(PageError, match="got"):
        read(text)


def test_what_is_not_asked_for_is_not_parsed() -> None:
    assert read("paceline_rounds_total 2\npaceline_other{{{ nonsense\nrubbish") == [
        Sample("paceline_rounds_total", {}, 2.0)
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "# HELP paceline_rounds_total r\n"])
def test_a_server_without_traffic_has_an_empty_page(text: str) -> None:
    assert read(text) == []


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        found = read("paceline_rounds_total" + text)
    except PageError:
        return
    assert all(math.isfinite(one.value) and one.value >= 0 for one in found)


def test_vllms_counters_are_added_up_over_its_engines() -> None:
    source = Source("vllm", pair="p-1", drafter="eagle3")
    found = ADAPTERS["vllm"].page(VLLM, source)
    (one,) = found.readings
    assert one.key == ("p-1", "eagle3", "", "vllm")
    assert not one.judged_known
    assert counts_of(one.figures) == Counts(100, 0, 300, 285, (0, 0, 0), (80, 60, 45))
    assert requests_of(one.figures) == {"stop": 7}
    assert found.started == 1.764e9


def test_vllms_older_names_are_the_same_counters() -> None:
    old = VLLM.replace("_total", "")
    source = Source("vllm", pair="p-1")
    assert (
        ADAPTERS["vllm"].page(old, source).readings == ADAPTERS["vllm"].page(VLLM, source).readings
    )


def test_each_of_several_models_of_vllm_is_a_slice() -> None:
    both = VLLM + VLLM.replace('"m"', '"tenor"').replace("process_start", "other")
    found = ADAPTERS["vllm"].page(both, Source("vllm", pair="p-1"))
    assert {one.slice for one in found.readings} == {"adapter=m", "adapter=tenor"}


def test_a_vllm_that_does_not_speculate_has_nothing_to_read() -> None:
    text = "vllm:num_requests_running 1\nvllm:generation_tokens_total 5\n"
    assert ADAPTERS["vllm"].page(text, Source("vllm")).readings == ()


def test_sglangs_gauges_are_shown_and_never_counted() -> None:
    found = ADAPTERS["sglang"].page(SGLANG, Source("sglang"), "http://a")
    assert found.readings == ()
    (gauges,) = found.gauges
    assert (gauges.source, gauges.acceptance_rate) == ("http://a", None)
    assert gauges.acceptance_length == pytest.approx(2.6)
    assert "no alarm" in gauges.told


def test_the_built_in_servers_pages_are_read_by_pair_drafter_and_adapter() -> None:
    lines = ['paceline_build_info{version="0.1.0"} 1', "process_start_time_seconds 5"]
    for pair, adapter, count in (("p-1", "", 2), ("p-1", "tenor", 3), ("retired", "", 9)):
        labels = f'pair="{pair}",drafter="head",adapter="{adapter}"'
        lines.append(f"paceline_rounds_total{{{labels}}} {count}")
        lines.append(f'paceline_judged_tokens_total{{{labels},position="0"}} {count}')
        lines.append(f'paceline_accepted_tokens_total{{{labels},position="0"}} 1')
        lines.append(f'paceline_requests_total{{{labels},outcome="stop"}} {count}')
    lines.append('paceline_requests_total{pair="",drafter="",outcome="unavailable"} 4')
    found = ADAPTERS["builtin"].page("\n".join(lines) + "\n", Source())
    assert [one.key for one in found.readings] == [
        ("p-1", "head", "", "builtin 0.1.0"),
        ("p-1", "head", "adapter=tenor", "builtin 0.1.0"),
    ]
    assert counts_of(found.readings[1].figures) == Counts(3, 0, 0, 0, (3,), (1,))
    assert found.started == 5.0


@pytest.mark.parametrize("position", ["first", "", "-1", "1000", "1" * 3000])
@pytest.mark.parametrize("kind", ["builtin", "vllm"])
def test_a_position_that_is_no_position_is_named(kind: str, position: str) -> None:
    name = {
        "builtin": "paceline_judged_tokens_total",
        "vllm": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    }[kind]
    text = f'{name}{{pair="p",drafter="d",position="{position}"}} 1\n'
    with pytest.raises(PageError, match="wanted"):
        ADAPTERS[kind].page(text, Source())
