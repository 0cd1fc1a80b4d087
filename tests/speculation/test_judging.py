"""Where the target has no number for a request, that request ends there, whatever was drafted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from speculation.commit import token_logprobs
from speculation.history import Past
from speculation.judging import VERIFICATIONS, Draft, judge
from speculation.sampling import Sampling
from speculation.streams import Key
from tests.speculation.exact import Answers, p_value

INF = float("inf")


def undrafted(sampling: Sampling, prompt: tuple[int, ...] = (1,)) -> Draft:
    return Draft([], None, Past(sampling, prompt, vocab_size=5), Key(7), 3)


@pytest.mark.parametrize("more", [{}, {"temperature": 1.0}, {"temperature": 1.0, "seed": 3}])
@pytest.mark.parametrize(
    ("asked", "row"),
    [
        ({"allowed": frozenset({2})}, [1.0, 2.0, -INF, 0.0, 1.0]),
        ({"banned": frozenset({0, 1})}, [1.0, 2.0, -INF, -INF, -INF]),
        ({"repetition_penalty": 0.01}, [1.0, 3.2e38, 0.0, 0.0, 1.0]),  # runs over to infinity
        ({"logit_bias": ((1, 5.0),)}, [1.0, float("nan"), 0.0, 0.0, 1.0]),
        ({}, [1.0, INF, 0.0, 0.0, 1.0]),
    ],
)
def test_a_request_of_which_the_target_leaves_nothing_gets_no_token_and_the_others_theirs(
    asked: dict[str, object], row: list[float], more: dict[str, float]
) -> None:
    fine = [0.0, 0.0, 0.0, 9e3, 0.0]
    sampling = Sampling(**{**asked, **more})  # type: ignore[arg-type]  # of its own fields
    greedy = Sampling()
    logits = torch.tensor([[row], [fine], [row]])
    other = judge(logits[1:2], [undrafted(greedy)])
    drafts = [undrafted(sampling), undrafted(greedy), undrafted(sampling)]
    kept, added = judge(logits, drafts)
    assert (kept, added) == ([0, 0, 0], [None, 3, None])
    assert other == ([0], [3])


@pytest.mark.parametrize("name", VERIFICATIONS)
def test_what_was_drafted_behind_a_missing_number_is_as_if_it_had_not_been(name: str) -> None:
    """A block is judged as a whole: tokens that cannot be judged must not save the others."""
    rows, sound = 300, 2
    generator = torch.Generator().manual_seed(0)

    def laws(width: int) -> Tensor:
        return torch.randn(1, width, 5, generator=generator).expand(rows, -1, -1).clone()

    logits, law = laws(4), laws(3).softmax(dim=-1)
    logits[:, sound, 4] = float("nan")
    ids = torch.multinomial(law[0], rows, replacement=True, generator=generator).T.tolist()
    past = Past(Sampling(temperature=1.0), [1], vocab_size=5)

    def drafts(length: int) -> list[Draft]:
        return [
            Draft(ids[row][:length], law[row, :length], past, Key(row), 3) for row in range(rows)
        ]

    kept, added = judge(logits, drafts(3), VERIFICATIONS[name])
    assert (kept, added) == judge(logits[:, :3], drafts(2), VERIFICATIONS[name])
    assert {count for count, token in zip(kept, added, strict=True) if token is None} == {sound}
    assert 20 < sum(token is None for token in added) < 280


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equally_likely_tokens_the_lowest_ids_are_named_and_the_first_is_the_greedy_one(
    dtype: torch.dtype,
) -> None:
    flat, three = torch.zeros(1, 3000, dtype=dtype), torch.zeros(1, 3000, dtype=dtype)
    three[0, [2900, 9, 7]] = 1.0
    assert [token for token, _ in token_logprobs(flat, [5], 4)[0].top] == [0, 1, 2, 3]
    assert [token for token, _ in token_logprobs(three, [5], 5)[0].top] == [7, 9, 2900, 0, 1]
    near = torch.tensor([[0.0, 1e-9]])  # two logits, one log-probability
    assert [token for token, _ in token_logprobs(near, [1], 2)[0].top] == [1, 0]


@pytest.mark.parametrize("name", VERIFICATIONS)
def test_the_token_after_a_kept_draft_has_the_very_law_of_its_position(name: str) -> None:
    """Ten thousand draws, since logits that are a tenth too large there are a small fault."""
    rows, row = 10_000, torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    certain = torch.tensor([0.0, 0.0, 0.0, 0.0, 1e4])  # so that all that is drafted is kept
    logits = torch.stack([certain, row]).expand(rows, -1, -1)
    past = Past(Sampling(temperature=1.0), [1], vocab_size=5)
    drafts = [Draft([4], None, past, Key(seed), 1) for seed in range(rows)]
    kept, added = judge(logits, drafts, VERIFICATIONS[name])
    assert set(kept) == {1}
    law: Answers = {(t,): float(prob) for t, prob in enumerate(row.softmax(dim=-1))}
    assert p_value(law, [(token,) for token in added if token is not None]) > 1e-6
