"""The demo's traffic: every prompt costs both servers one request, and figures are pooled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import httpx
import pytest

from cli import demo_traffic
from cli.demo import _live, _traffic_text
from cli.demo_traffic import Asked, ask, compare, summary
from speculation.records import Counts, Prompt

PROMPTS = [Prompt(f"p{n}", ({"role": "user", "content": f"question {n}"},)) for n in range(3)]
LONG = Counts(4, 1, 16, 10, judged_per_position=(4, 3), accepted_per_position=(3, 2))
SHORT = Counts(1, 1, 4, 2, judged_per_position=(1, 0), accepted_per_position=(0, 0))
OURS = [Asked(0.0, 1.0, "p-old", LONG), Asked(0.0, 3.0, "p-new", SHORT)]
PLAIN = [
    Asked(0.0, 4.0, "none", Counts(plain_forwards=10, emitted=10)),
    Asked(0.0, 2.0, "none", Counts(plain_forwards=2, emitted=2)),
]
FIGURES = {
    "pair": "p-new",  # as of the last answer
    "alpha_hat": 0.625,  # 5 of 8 judged, and not the mean of 5/7 and 0
    "acceptance_length": 2.0,  # 1 + 5 accepted in 5 rounds
    "forwards_per_request": 3.5,
    "plain_forwards_per_request": 6.0,
    "tokens_per_second": 3.0,  # 12 tokens in 4 s, and not the mean of 10 and 2/3
    "plain_tokens_per_second": 2.0,  # 12 in 6 s, and not the mean of 2.5 and 1
    "speedup": 1.5,
}


def test_figures_are_pooled_over_requests() -> None:
    assert summary(OURS, PLAIN) == pytest.approx(FIGURES)


def test_the_line_for_people_says_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    said = (
        "2 requests: acceptance 0.625, 3.5 forwards a request against 6.0 plain, "
        "3.0 tokens/s against 2.0 plain (1.50 x)"
    )
    assert _traffic_text({"requests": 2, **FIGURES}) == said
    with _live() as show:
        show({"requests": 2, **FIGURES})
        show({"requests": 1, **FIGURES, "alpha_hat": None})
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert (out, first) == ("", said)
    assert second.startswith("1 request: acceptance -, ")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Which server was asked what, in order; the one named "plain" decodes without a draft."""
    found: list[tuple[str, Any]] = []

    @contextmanager
    def endpoint(url: str) -> Iterator[tuple[httpx.Client, str]]:
        def answer(request: httpx.Request) -> httpx.Response:
            found.append((url, json.loads(request.content)))
            counts = PLAIN[0].counts if "plain" in url else LONG
            usage = {"paceline": {**asdict(counts), "pair": url}}
            return httpx.Response(200, json={"usage": usage})

        with httpx.Client(base_url=url, transport=httpx.MockTransport(answer)) as client:
            yield client, f"of {url}"

    monkeypatch.setattr(demo_traffic, "endpoint", endpoint)
    return found


def test_each_prompt_is_asked_of_both_in_turn_and_shown_at_once(
    asked: list[tuple[str, Any]],
) -> None:
    shown: list[Any] = []
    checked: list[int] = []
    figures = compare(
        "http://served",
        "http://plain",
        PROMPTS,
        max_tokens=7,
        show=shown.append,
        check=lambda: checked.append(len(asked)),
    )
    assert [url for url, _ in asked] == ["http://plain", "http://served"] * 3
    assert checked == [0, 2, 4], "a server that is gone is seen before the next prompt"
    for place, (url, body) in enumerate(asked):
        assert body["messages"] == [dict(PROMPTS[place // 2].messages[0])]
        assert (body["model"], body["max_tokens"], body["temperature"]) == (f"of {url}", 7, 0.0)
    assert [each["requests"] for each in shown] == [1, 2, 3]
    assert shown[-1] == figures
    assert figures["alpha_hat"] == pytest.approx(5 / 7)
    assert figures["plain_forwards_per_request"] == 10.0


def test_an_answer_that_is_none_is_raised() -> None:
    broken = httpx.MockTransport(lambda request: httpx.Response(503))
    with (
        httpx.Client(base_url="http://served", transport=broken) as client,
        pytest.raises(httpx.HTTPStatusError, match="503"),
    ):
        ask(client, PROMPTS[0], model="m", max_tokens=7)
