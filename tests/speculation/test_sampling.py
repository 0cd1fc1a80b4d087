"""The fast, batched distributions are the plain reference's, parameter by parameter and mixed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speculation import reference
from speculation.history import Past, shaped
from speculation.sampling import Sampling, batch_probabilities, probabilities

VOCAB = 9
STOPS = frozenset({7, 8})

# Few different values, so that ties are the rule; some far apart, so that masses vanish.
logit = st.sampled_from([-40.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 30.0])
row = st.lists(logit, min_size=VOCAB, max_size=VOCAB)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)


@st.composite
def samplings(draw: Any) -> Sampling:
    def maybe(strategy: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return draw(strategy) if draw(st.booleans()) else otherwise

    banned = frozenset(maybe(st.sets(st.integers(0, 6), max_size=4), ()))
    allowed = maybe(st.sets(st.integers(0, VOCAB - 1), min_size=1), None)
    if allowed is not None:  # something that is neither banned nor a stop token is left
        allowed = frozenset(allowed) | ({0, 1, 2, 3, 4, 5, 6} - banned)
    return Sampling(
        temperature=draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])),
        top_k=maybe(st.integers(1, VOCAB + 2), 0),
        top_p=maybe(st.sampled_from([0.05, 0.4, 0.75, 0.95]), 1.0),
        min_p=maybe(st.sampled_from([0.05, 0.3, 1.0]), 0.0),
        repetition_penalty=maybe(st.sampled_from([0.5, 1.3]), 1.0),
        presence_penalty=maybe(st.sampled_from([-1.0, 0.7]), 0.0),
        frequency_penalty=maybe(st.sampled_from([-0.5, 0.9]), 0.0),
        logit_bias=tuple(maybe(st.dictionaries(st.integers(0, 8), logit, max_size=3), {}).items()),
        banned=banned,
        allowed=allowed,
        min_tokens=maybe(st.integers(0, 5), 0),
    )


@st.composite
def cases(draw: Any) -> tuple[list[list[float]], Sampling, list[int], list[int], list[int]]:
    drafted = draw(tokens)
    logits = [draw(row) for _ in range(len(drafted) + 1)]
    return logits, draw(samplings()), draw(tokens), draw(tokens), drafted


def expected(case: Any, position: int) -> list[float]:
    logits, sampling, prompt, emitted, drafted = case
    after = reference.logits_after(
        logits[position],
        sampling,
        prompt=prompt,
        emitted=[*emitted, *drafted[:position]],
        stop_ids=STOPS,
    )
    # As float32, in which the fast path works: what ties there must tie here.
    return reference.law([float(torch.tensor(each)) for each in after], sampling)


def past_of(case: Any) -> Past:
    _, sampling, prompt, emitted, _ = case
    past = Past(sampling, prompt, vocab_size=VOCAB, stop_ids=STOPS)
    past.extend(emitted)
    return past


def on_an_edge(case: Any, position: int) -> bool:
    """Whether rounding may decide what a cut keeps: then neither side is wrong."""
    logits, sampling, prompt, emitted, drafted = case
    after = reference.logits_after(
        logits[position],
        sampling,
        prompt=prompt,
        emitted=[*emitted, *drafted[:position]],
        stop_ids=STOPS,
    )
    if sampling.greedy:
        # Alike from the start is a tie; made alike by what was added is a matter of rounding.
        top = [n for n, each in enumerate(after) if each > max(after) - 1e-5]
        return len({logits[position][n] for n in top}) > 1
    probs = sorted(reference._softmax([each / sampling.temperature for each in after]))[::-1]
    gaps = [abs(a - b) / max(a, 1e-30) for a, b in zip(probs, probs[1:], strict=False)]
    if any(0 < gap < 1e-5 for gap in gaps):
        return True
    floor = sampling.min_p * probs[0]
    if sampling.min_p and any(0 < abs(p - floor) < 1e-5 * floor for p in probs):
        return True
    kept = [p for p in probs if p >= floor * (1 - 1e-6)]
    if sampling.top_k:
        kept = [p for p in kept if p >= probs[min(sampling.top_k, VOCAB) - 1]]
    total, mass = sum(kept), 0.0
    for p in kept:
        mass += p / total
        if abs(mass - sampling.top_p) < 1e-5:
            return True
    return False


def test_a_tie_that_rounding_makes_is_an_edge_and_one_of_equal_logits_is_none() -> None:
    sampling = Sampling(frequency_penalty=0.9, presence_penalty=0.7)
    made = [-40.0] * 3 + [-0.5, 2.0] + [-40.0] * 4
    assert on_an_edge(([made], sampling, [], [4, 4], []), 0)
    alike = [-40.0] * 3 + [2.0, 2.0] + [-40.0] * 4
    assert not on_an_edge(([alike], sampling, [], [], []), 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(cases(), min_size=1, max_size=4))
def test_every_position_of_a_mixed_batch_has_the_law_of_the_reference(batch: list[Any]) -> None:
    width = max(len(case[4]) for case in batch) + 1
    padded = [[*case[0], *[case[0][0]] * (width - len(case[0]))] for case in batch]
    changed = shaped(
        torch.tensor(padded, dtype=torch.float32),
        [past_of(case) for case in batch],
        [case[4] for case in batch],
    )
    probs = batch_probabilities(changed, [case[1] for case in batch])
    for place, case in enumerate(batch):
        for position in range(len(case[4]) + 1):
            found = probs[place, position].tolist()
            assert all(math.isfinite(each) for each in found)
            assert sum(found) == pytest.approx(1, abs=1e-5)
            if not on_an_edge(case, position):
                assert found == pytest.approx(expected(case, position), abs=2e-6)


@settings(max_examples=60, deadline=None)
@given(cases(), st.permutations(range(VOCAB)), st.integers(3, VOCAB))
def test_a_reduced_vocabulary_sees_the_same_changes_in_its_own_columns(
    case: Any, order: list[int], size: int
) -> None:
    logits, drafted = torch.tensor(case[0], dtype=torch.float32), case[4]
    columns = torch.tensor(order[:size])
    whole = shaped(logits[None], [past_of(case)], [drafted])[0]
    for step in range(len(drafted) + 1):
        narrow = shaped(
            logits[None, step : step + 1, columns],
            [past_of(case)],
            [drafted[:step]],
            first=step,
            columns=columns,
        )
        torch.testing.assert_close(narrow[0, 0], whole[step, columns])


def test_drafted_tokens_leave_nothing_behind() -> None:
    sampling = Sampling(frequency_penalty=1.0, repetition_penalty=2.0)
    past = Past(sampling, [0], vocab_size=3)
    logits = torch.ones(1, 3, 3)
    once = shaped(logits, [past], [[1, 1]])
    assert torch.equal(shaped(logits, [past], [[1, 1]]), once)
    assert once[0, 2].tolist() == [0.5, 0.5 - 2, 1.0]
    assert shaped(logits, [past], [[]])[0, 0].tolist() == [0.5, 1.0, 1.0]
    past.extend([1])
    assert shaped(logits, [past], [[]])[0, 0].tolist() == [0.5, 0.5 - 1, 1.0]


def test_nothing_asked_for_changes_no_logit_and_copies_none() -> None:
    logits = torch.randn(2, 3, VOCAB)
    pasts = [Past(Sampling(temperature=1.0), [1], vocab_size=VOCAB) for _ in range(2)]
    assert shaped(logits, pasts, [[1], [2, 3]]) is logits


def test_each_row_of_a_batch_has_its_own_values() -> None:
    """Several values of each cut side by side, at several positions."""
    logits = torch.randn(1, 3, VOCAB, generator=torch.Generator().manual_seed(0))
    values: dict[str, tuple[Any, ...]] = {
        "temperature": (0.0, 0.4, 2.0),
        "top_k": (1, 3, 5),
        "top_p": (0.3, 0.6, 0.9),
        "min_p": (0.05, 0.3, 0.8),
    }
    samplings = [
        Sampling(**{"temperature": 1.0, name: each})
        for name, some in values.items()
        for each in some
    ]
    together = batch_probabilities(logits.expand(len(samplings), -1, -1), samplings)
    for row, sampling in zip(together, samplings, strict=True):
        wanted = [reference.law(each, sampling) for each in logits[0].tolist()]
        torch.testing.assert_close(row, torch.tensor(wanted), atol=1e-6, rtol=0)


def test_top_p_of_a_flat_law_over_a_wide_vocabulary_sorts_it_all() -> None:
    probs = probabilities(torch.zeros(2000), Sampling(temperature=1.0, top_p=0.5))
    assert int((probs > 0).sum()) == 1000
    assert bool((probs[:1000] > 0).all())  # among equals the lowest ids


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"frequency_penalty": math.inf}, "frequency_penalty"),
        ({"logit_bias": ((3, math.nan),)}, "logit_bias"),
        ({"allowed": frozenset({1}), "banned": frozenset({1})}, "banned"),
        ({"min_tokens": -2}, "min_tokens"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Sampling(**wrong)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1e-39),
        Sampling(temperature=2e-5),
        Sampling(temperature=1e-5, top_p=1e-46),
        Sampling(temperature=1.0, top_p=1e-46),
        Sampling(temperature=1.0, min_p=1.0, top_k=1),
        Sampling(temperature=100.0),
    ],
)
def test_the_ends_of_what_is_taken_still_give_laws(sampling: Sampling) -> None:
    logits = torch.tensor([40.0, -3e38, 3e38, 0.0])
    probs = probabilities(logits, sampling)
    assert torch.isfinite(probs).all()
    assert probs.sum() == pytest.approx(1)
    assert int(probs.argmax()) == 2
