"""What `paceline bench engine` says of its timings: ratios with intervals, and medians beside."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from scipy import stats

from cli.bench import _shown, over_turns
from cli.output import plain
from speculation.bench import PLAIN, Timing


def timing(name: str, draft_len: int | None, *, concurrency: int = 1, **more: Any) -> Timing:
    given: dict[str, Any] = {
        "tokens_per_second": 61.25,
        "latency_seconds": 1.5,
        "first_token_seconds": 0.125,
        "speedups": (1.6, 1.5, 1.7),
        "latency_ratios": (0.6, 0.5, 0.7),
        "first_token_ratios": (1.1, 1.0, 1.2),
    }
    return Timing(name, draft_len, concurrency, **given | more)


def test_the_interval_is_students_over_the_turns_on_the_log_scale() -> None:
    ratios = (1.6, 1.5, 1.7, 1.9)
    logs = [math.log(one) for one in ratios]
    middle = statistics.fmean(logs)
    reach = float(stats.t.ppf(0.975, 3)) * statistics.stdev(logs) / math.sqrt(4)
    found = over_turns(ratios)
    assert found.n == 4
    assert found.estimate == pytest.approx(statistics.geometric_mean(ratios))
    assert (found.low, found.high) == pytest.approx(
        (math.exp(middle - reach), math.exp(middle + reach))
    )
    # Which of the two is called plain changes nothing but the side.
    other = over_turns([1 / one for one in ratios])
    assert (1 / other.high, 1 / other.low) == pytest.approx((found.low, found.high))


def test_turns_that_agree_leave_no_doubt_and_one_turn_tells_none() -> None:
    same = over_turns((1.25, 1.25))
    assert (same.estimate, same.low, same.high) == pytest.approx((1.25, 1.25, 1.25))
    alone = over_turns((1.25,))
    assert alone.estimate == pytest.approx(1.25)
    assert plain(alone) == {"estimate": alone.estimate, "low": None, "high": None, "n": 1}


def test_each_load_has_its_ratios_to_plain_and_its_medians() -> None:
    ones = {name: (1.0,) * 3 for name in ("speedups", "latency_ratios", "first_token_ratios")}
    found = [
        timing(name, draft_len, concurrency=level, **more)
        for level in (1, 8)
        for name, draft_len, more in (
            (PLAIN, 0, ones),
            ("a-draft-of-some-name", None, {}),
            ("transformers + a-draft-of-some-name", 6, {"latency_ratios": (12.0, 300.0, 1.0)}),
        )
    ]
    lines = _shown(found, 3)
    assert max(map(len, lines)) <= 110  # 100 for shorter names
    text = "\n".join(lines)
    for level in (1, 8):
        assert f"{level} at once: ratios to plain decoding, 95 % intervals over 3 turns" in text
        assert f"{level} at once: medians" in text
    (line, _) = [line for line in lines if line.startswith("a-draft") and "[" in line]
    assert line.split("  ")[0] == "a-draft-of-some-name"
    assert line.count("[") == 3
    assert "1.60 [1.37, 1.87]" in line
    (own, _) = [line for line in lines if line.startswith("plain") and "61.2" not in line]
    assert own.split() == ["plain", "0", "1.00", "1.00", "1.00"]
