"""Block verification is the reference's, exact in law, and never keeps fewer on average."""

from __future__ import annotations

from random import Random

import numpy
import pytest
import torch

from speculation import reference
from speculation.judging import VERIFICATIONS

WIDTH, VOCAB = 3, 4
MASSES = (0.0, 1e-30, 0.05, 0.3, 1.0, 4.0)
Round = tuple[list[list[float]], list[list[float]], list[int], list[float]]


def some_law(rng: Random) -> list[float]:
    """A distribution with zeros, ties, one-hots and masses that all but vanish."""
    masses = [rng.choice(MASSES) for _ in range(VOCAB)]
    if sum(masses) < 1e-3:
        masses[rng.randrange(VOCAB)] = 1.0
    return [float(numpy.float32(each / sum(masses))) for each in masses]


def some_round(rng: Random) -> Round:
    target = [some_law(rng) for _ in range(WIDTH + 1)]
    # Equal laws and one-hot drafts are met often, not by luck.
    draft = [rng.choice([some_law(rng), target[place]]) for place in range(WIDTH)]
    drafted = [rng.choice([t for t, prob in enumerate(law) if prob > 0]) for law in draft]
    length = rng.randint(0, WIDTH)
    uniform = [rng.choice([0.0, rng.random(), 1 - 2**-24]) for _ in range(length)]
    return target, draft, drafted[:length], uniform


@pytest.mark.parametrize("rows", [1, 3, 3000])
@pytest.mark.parametrize("name", VERIFICATIONS)
def test_a_ragged_batch_is_verified_as_the_reference_says(name: str, rows: int) -> None:
    rng = Random(rows)
    batch = [some_round(rng) for _ in range(rows)]
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
    laws = law.tolist()
    for place, (target, draft, drafted, uniforms) in enumerate(batch):
        count, after = plain(target, draft, drafted, uniforms)
        assert abs(sum(laws[place]) - 1) < 1e-5
        if int(kept[place]) == count:
            assert max(abs(a - b) for a, b in zip(laws[place], after, strict=True)) < 1e-4
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
