from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.report import Report
from evaluation.simulation import Arm, report
from evaluation.slicing import bucket, prompt_tokens, slices

ARMS = {"candidate": Arm(0.6), "ngram": Arm(0.1)}


def drawn() -> Report:
    return report(ARMS, seed=1, prompts=20, tasks=("a", "b"))


def test_one_value_of_a_kind_is_no_slice() -> None:
    assert set(slices(drawn())) == {"task a", "task b"}
    assert slices(report(ARMS, seed=1, prompts=20)) == {}


def test_context_slices_go_by_powers_of_two_of_the_prompts_tokens() -> None:
    assert [bucket(n) for n in (1, 256, 257, 512, 513, 5000)] == [256, 256, 512, 512, 1024, 8192]
    measured = drawn()
    long = {prompt.id for prompt in measured.prompts[:5]}
    measured = replace(
        measured,
        requests=tuple(
            replace(r, prompt_tokens=900 if r.prompt in long else 200) for r in measured.requests
        ),
    )
    found = slices(measured)
    assert {prompt for prompt, _ in found["context up to 1024"]} == long
    assert len(found["context up to 256"]) == 15
    assert prompt_tokens(measured)["p0"] == 900


def test_a_prompt_that_nobody_answered_has_no_known_length() -> None:
    measured = drawn()
    measured = replace(
        measured,
        requests=tuple(
            replace(r, prompt_tokens=900 if r.prompt == "p1" else 200)
            for r in measured.requests
            if r.prompt != "p0"
        ),
    )
    found = slices(measured)
    assert sum(len(found[name]) for name in found if name.startswith("context")) == 19
    assert ("p0", 0.0) in found["task a"]


def test_languages_adapters_and_temperatures_are_slices_of_both_prompt_and_temperature() -> None:
    measured = drawn()
    prompts = tuple(
        replace(p, language="zh" if n % 2 else "en", adapter="law" if n < 4 else None)
        for n, p in enumerate(measured.prompts)
    )
    conditions = replace(measured.conditions, temperatures=(0.0, 0.7))
    hot = tuple(replace(r, temperature=0.7) for r in measured.requests)
    measured = replace(
        measured, prompts=prompts, conditions=conditions, requests=(*measured.requests, *hot)
    )
    found = slices(measured)
    assert len(found["language zh"]) == 10 * 2
    assert len(found["adapter law"]) == 4 * 2
    assert len(found["adapter none"]) == 16 * 2
    assert found["temperature 0.7"] == {(p.id, 0.7) for p in prompts}


@pytest.mark.parametrize("kind", ["task", "language", "context", "adapter", "temperature"])
def test_the_slices_of_a_kind_share_nothing_and_leave_nothing_out(kind: str) -> None:
    measured = drawn()
    prompts = tuple(
        replace(p, language="zh" if n % 3 else "en", adapter="law" if n % 4 else None)
        for n, p in enumerate(measured.prompts)
    )
    requests = tuple(
        replace(r, prompt_tokens=100 * (1 + int(r.prompt[1:]))) for r in measured.requests
    )
    conditions = replace(measured.conditions, temperatures=(0.0, 0.7))
    measured = replace(measured, prompts=prompts, requests=requests, conditions=conditions)
    found = [members for name, members in slices(measured).items() if name.startswith(kind)]
    assert len(found) >= 2
    assert sum(map(len, found)) == len(frozenset().union(*found)) == 40
