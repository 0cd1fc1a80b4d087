"""Block verification is the reference's, exact in law, and never keeps fewer on average."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speculation import reference
from speculation.judging import VERIFICATIONS

WIDTH, VOCAB = 3, 4
mass = st.sampled_from([0.0, 1e-30, 0.05, 0.3, 1.0, 4.0])


@st.composite
def laws(draw: Any) -> list[float]:
    """A distribution with zeros, ties, one-hots and masses that all but vanish."""
    masses = draw(st.lists(mass, min_size=VOCAB, max_size=VOCAB).filter(lambda m: sum(m) > 1e-3))
    return [float(torch.tensor(each / sum(masses))) for each in masses]


@st.composite
def rounds(draw: Any) -> tuple[list[list[float]], list[list[float]], list[int], list[float]]:
    target = [draw(laws()) for _ in range(WIDTH + 1)]
    # Equal laws and one-hot drafts are met often, not by luck.
    draft = [draw(st.one_of(laws(), st.just(target[place]))) for place in range(WIDTH)]
    drafted = [
        draw(st.sampled_from([t for t, prob in enumerate(law) if prob > 0])) for law in draft
    ]
    length = draw(st.integers(0, WIDTH))
    uniform = st.floats(0, 1, exclude_max=True, width=32)
    return target, draft, drafted[:length], [draw(uniform) for _ in range(length)]


@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("name", VERIFICATIONS)
@given(st.lists(rounds(), min_size=1, max_size=4))
def test_a_ragged_batch_is_verified_as_the_reference_says(name: str, batch: list[Any]) -> None:
    plain = {"rejection": reference.verify, "block": reference.verify_block}[name]
    drafts = [round_[1] for round_ in batch]
    ids = [[*round_[2], *[0] * (WIDTH - len(round_[2]))] for round_ in batch]
    uniform = [[*round_[3], *[0.5] * (WIDTH - len(round_[3]))] for round_ in batch]
    kept, law = VERIFICATIONS[name](
        torch.tensor([round_[0] for round_ in batch]),
        torch.tensor(drafts),
        torch.tensor(ids),
        torch.tensor([len(round_[2]) for round_ in batch]),
        torch.tensor(uniform, dtype=torch.float64),
    )
    assert torch.isfinite(law).all()
    for place, (target, draft, drafted, uniforms) in enumerate(batch):
        count, after = plain(target, draft, drafted, uniforms)
        assert law[place].sum().item() == pytest.approx(1, abs=1e-5)
        if int(kept[place]) == count:
            assert law[place].tolist() == pytest.approx(after, abs=1e-4)
            continue
        # Only where the draw met the chance to within rounding may they part.
        nudged = {
            plain(target, draft, drafted, [u + d for u in uniforms])[0] for d in (-1e-5, 1e-5)
        }
        assert len(nudged) == 2


def test_block_verification_keeps_more_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (1, WIDTH + 1, VOCAB)
    target = torch.rand(shape, generator=generator).pow(3)
    draft = torch.rand(shape, generator=generator)[:, :WIDTH].pow(3)
    target, draft = target / target.sum(-1, keepdim=True), draft / draft.sum(-1, keepdim=True)
    count = 20_000
    ids = torch.stack(
        [
            torch.multinomial(draft[0, place], count, replacement=True, generator=generator)
            for place in range(WIDTH)
        ],
        dim=1,
    )
    given_all = (
        target.expand(count, -1, -1),
        draft.expand(count, -1, -1),
        ids,
        torch.full((count,), WIDTH),
        torch.rand(count, WIDTH, generator=generator),
    )
    means = {n: float(verify(*given_all)[0].float().mean()) for n, verify in VERIFICATIONS.items()}
    assert means["block"] > means["rejection"] + 0.02
