"""A head drafts what it would from the states of the whole context, whatever its rows went through;
and what every drafter must do alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from speculation.draft_law import draft_law
from speculation.drafters import (
    Ask,
    Drafter,
    DraftError,
    HeadDrafter,
    NgramDrafter,
    NoDrafter,
    Proposal,
    load_drafter,
)
from speculation.draws import Draws
from speculation.head import Head, HeadConfig, head_config
from speculation.history import Past
from speculation.proposal import spread
from speculation.sampling import Sampling
from speculation.streams import Key, draw, race
from speculation.target import Target, load_target
from tests.speculation.histories import History, Sequence
from tests.toys import toy_draft_folder, toy_target_folder

MAX_LEN = 96
LONG = 600
ATOL = 3e-4  # of a probability: float32 sums in another order, through five steps of a wild head
GAP = 1e-4  # of two logits that count as equal


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(toy_target_folder(tmp_path_factory.mktemp("target")), dtype="float32")


@pytest.fixture(scope="module")
def head(target: Target) -> Head:
    """A random head whose laws are far from uniform, so that a wrong state shows."""
    torch.manual_seed(0)
    head = Head(HeadConfig(**head_config(target, draft_vocab=64).to_dict()))
    for weight in head.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.4)
    head.choose_tokens(torch.randperm(target.vocab_size)[:64].sort().values)
    return head.eval().requires_grad_(False)


def states_of(number: int, width: int) -> Tensor:
    """What a target would show of sequence `number`, [LONG, 3H]."""
    generator = torch.Generator().manual_seed(number)
    return torch.randn(LONG, width, generator=generator, dtype=torch.float32)


@torch.inference_mode()
def from_scratch(
    head: Head, embedding: Tensor, tokens: list[int], states: Tensor, drafted: list[int]
) -> Tensor:
    """Logits [len(drafted), v] of a head that reads everything anew for each drafted token.

    `states` [len(tokens) - 1, 3H] are the target's; where none exist the head's output stands in.
    """
    inputs = head.fc(states)[None]
    found = []
    for step in range(len(drafted)):
        ids = torch.tensor([[*tokens[1:], *drafted[:step]]])
        length = ids.shape[1]
        cache = head.new_cache(rows=1, max_len=length)
        outputs = head.step(embedding[ids], inputs, torch.arange(length)[None], cache, [0])
        found.append(head.logits(outputs[0, -1]))
        inputs = torch.cat([inputs, outputs[:, -1:]], dim=1)
    return torch.stack(found)


def check_against(
    head: Head, embedding: Tensor, ask: Ask, states: Tensor, ids: list[int], law: Tensor | None
) -> None:
    """Each drafted token is what its law over the context before it gives, and that law is told."""
    assert len(ids) == ask.length
    logits = from_scratch(head, embedding, list(ask.context), states, ids)
    wanted = draft_law(logits, [ask] * len(ids))
    key, start, vocab = Key(ask.seed, ask.choice), len(ask.context), len(embedding)
    places = torch.searchsorted(head.token_ids, torch.tensor(ids))
    if ask.sampling.greedy:
        assert law is None
        assert (logits.gather(1, places[:, None])[:, 0] > logits.amax(dim=1) - GAP).all()
    elif ask.sampling.coupled:
        assert law is None
        noise = torch.stack([key.exponentials(start + step, vocab) for step in range(len(ids))])
        assert race(wanted, noise[:, head.token_ids]).tolist() == places.tolist()
    else:
        assert law is not None
        torch.testing.assert_close(law[:, head.token_ids], wanted, rtol=0, atol=ATOL)
        assert float(law.sum(dim=1).sub(1).abs().max()) < 1e-5
        uniforms = [key.uniform(start, step, "draft") for step in range(len(ids))]
        assert draw(law, torch.tensor(uniforms, dtype=torch.float64)).tolist() == ids


@pytest.mark.parametrize("seed", range(2))
@torch.inference_mode()
def test_through_a_long_life_a_head_drafts_what_it_would_from_scratch(
    target: Target, head: Head, seed: int
) -> None:
    drafter = HeadDrafter(head, target.embedding, rows=4, max_len=MAX_LEN)
    width = 3 * target.config.hidden_size

    def observe(sequence: Sequence, row: int, start: int, end: int) -> None:
        drafter.observe(row, start, states_of(sequence.number, width)[start:end])

    def check(asks: list[Ask], sequences: list[Sequence], proposal: Proposal) -> None:
        for place, (ask, sequence) in enumerate(zip(asks, sequences, strict=True)):
            states = states_of(sequence.number, width)[: len(ask.context) - 1]
            law = None if proposal.probs is None else proposal.probs[place]
            check_against(head, target.embedding, ask, states, proposal.ids[place], law)

    history = History(drafter, target.vocab_size, check, observe, seed=seed)
    history.live(60)
    assert history.checked > 80
    assert history.full > 30
    assert history.joined > 5


@torch.inference_mode()
def test_states_that_wait_for_long_are_folded_and_still_right(target: Target, head: Head) -> None:
    drafter = HeadDrafter(head, target.embedding, rows=2, max_len=LONG)
    hidden = target.config.hidden_size
    states = states_of(0, 3 * hidden)
    tokens = [n % 290 for n in range(LONG)]
    batch = torch.stack([states, states])  # observed as a view of a batch, as the engine does
    start = 0
    for step in (300, *[1] * 150, 90):
        drafter.observe(1, start, batch[1, start : start + step])
        start += step
        held = drafter._rows[1]
        stored = [part.untyped_storage().nbytes() for part in (*held.folded, *held.raw)]
        # Never more than one hidden state a position, and one chunk of three.
        assert sum(stored) <= 4 * hidden * (start + 3 * 256)
    ask = Ask(1, tokens[: start + 1], 4, Sampling(), 0)
    proposal = drafter.propose([ask])
    check_against(head, target.embedding, ask, states[:start], proposal.ids[0], None)


@torch.inference_mode()
def test_a_head_whose_first_states_were_never_shown_sees_the_context_from_there_on(
    target: Target, head: Head
) -> None:
    """As after a prompt whose beginning came from a prefix cache."""
    drafter = HeadDrafter(head, target.embedding, rows=1, max_len=MAX_LEN)
    states = states_of(0, 3 * target.config.hidden_size)
    tokens = [n * 7 % 290 for n in range(50)]
    drafter.observe(0, 32, states[32:49])
    ask = Ask(0, tokens, 4, Sampling(temperature=1.0), 0)
    proposal = drafter.propose([ask])
    later = Ask(0, tokens[32:], 4, Sampling(temperature=1.0), 0)
    logits = from_scratch(head, target.embedding, tokens[32:], states[32:49], proposal.ids[0])
    assert proposal.probs is not None
    law = proposal.probs[0]
    assert law is not None
    wanted = draft_law(logits, [later] * 4)
    torch.testing.assert_close(law[:, head.token_ids], wanted, rtol=0, atol=ATOL)


@torch.inference_mode()
def test_asking_a_head_twice_for_the_same_context_gives_the_same(
    target: Target, head: Head
) -> None:
    drafter = HeadDrafter(head, target.embedding, rows=2, max_len=MAX_LEN)
    states = states_of(0, 3 * target.config.hidden_size)
    drafter.observe(0, 0, states[:5])
    drafter.observe(1, 0, states[:3])
    asks = [
        Ask(0, [5, 6, 7, 8, 9, 10], 4, Sampling(temperature=1.0), 3),
        Ask(1, [5, 6, 7, 8], 4, Sampling(), 3),
    ]
    first, second = drafter.propose(asks), drafter.propose(asks)
    assert first.ids == second.ids
    assert second.probs is not None
    check_against(head, target.embedding, asks[0], states[:5], second.ids[0], second.probs[0])
    drafter.observe(0, 5, states[5:7])
    ask = Ask(0, [5, 6, 7, 8, 9, 10, 11, 12], 3, Sampling(), 3)
    third = drafter.propose([ask])
    check_against(head, target.embedding, ask, states[:7], third.ids[0], None)


@torch.inference_mode()
def test_rows_a_head_cannot_serve_get_nothing_and_the_others_theirs(
    target: Target, head: Head
) -> None:
    drafter = HeadDrafter(head, target.embedding, rows=3, max_len=40)
    states = states_of(0, 3 * target.config.hidden_size)
    drafter.observe(0, 0, states[:60])  # beyond what the head was loaded for
    drafter.observe(1, 0, states[:4])
    asks = [
        Ask(0, list(range(5, 66)), 3, Sampling(temperature=1.0), 0),
        Ask(1, [5, 6, 7, 8, 9], 20, Sampling(temperature=1.0), 0),
        Ask(2, [5, 6, 7, 8, 9], 3, Sampling(temperature=1.0), 0),  # no state was ever seen
    ]
    proposal = drafter.propose(asks)
    assert [len(ids) for ids in proposal.ids] == [0, 16, 0]  # 16: the most there is room for
    assert proposal.probs is not None
    assert [law is None for law in proposal.probs] == [True, False, True]


@torch.inference_mode()
def test_states_of_nan_break_their_row_alone_and_leave_nothing_behind(
    target: Target, head: Head
) -> None:
    drafter = HeadDrafter(head, target.embedding, rows=2, max_len=MAX_LEN)
    states = states_of(0, 3 * target.config.hidden_size)
    poisoned = states.clone()
    poisoned[3, 5] = float("nan")
    drafter.observe(0, 0, poisoned[:20])
    drafter.observe(1, 0, states[:4])
    tokens = list(range(5, 26))
    for sampling in (Sampling(temperature=1.0), Sampling()):
        asks = [Ask(0, tokens, 4, sampling, 0), Ask(1, tokens[:5], 4, sampling, 0)]
        proposal = drafter.propose(asks)
        assert len(proposal.ids[1]) == 4
        assert proposal.ids[0] == []
    # The row's next sequence attends over where the poison was, masked.
    drafter.forget(0)
    drafter.observe(0, 0, states[:2])
    asks = [Ask(0, [5, 6, 7], 4, Sampling(), 0), Ask(1, tokens[:5], 4, Sampling(), 0)]
    proposal = drafter.propose(asks)
    assert proposal.broken == ()
    check_against(head, target.embedding, asks[0], states[:2], proposal.ids[0], None)


@torch.inference_mode()
def test_greedy_drafts_of_a_head_are_one_hot_at_any_temperature(target: Target, head: Head) -> None:
    states = states_of(0, 3 * target.config.hidden_size)
    found = []
    for sampling in (Sampling(temperature=2.0), Sampling(temperature=2.0, seed=3), Sampling()):
        drafter = HeadDrafter(head, target.embedding, rows=1, max_len=MAX_LEN, greedy_drafts=True)
        drafter.observe(0, 0, states[:4])
        found.append(drafter.propose([Ask(0, [5, 6, 7, 8, 9], 4, sampling, 3)]))
    assert [proposal.probs for proposal in found] == [None] * 3
    assert found[0].ids == found[1].ids == found[2].ids


def test_drafted_tokens_follow_their_law_and_the_law_is_the_requests() -> None:
    """6,000 draws against temperature and top-k over a vocabulary of 8."""
    from scipy.stats import chisquare

    logits = torch.tensor([[0.3, 1.2, -0.5, 0.9, 2.0, 0.1, -1.0, 0.0]])
    sampling = Sampling(temperature=0.7, top_k=5)
    asks = [Ask(0, [1], 1, sampling, seed) for seed in range(6_000)]
    draws = Draws(asks, vocab_size=8)
    draws.draw(logits.expand(len(asks), -1))
    proposal = draws.proposal()
    assert proposal.probs is not None
    scaled = logits[0] / 0.7
    wanted = scaled.masked_fill(scaled < scaled.topk(5).values[-1], float("-inf")).softmax(dim=-1)
    assert proposal.probs[7] is not None
    torch.testing.assert_close(proposal.probs[7][0], wanted)
    seen = torch.tensor([ids[0] for ids in proposal.ids]).bincount(minlength=8)
    support = wanted > 0
    assert int(seen[~support].sum()) == 0
    expected = wanted[support].double() / wanted[support].double().sum() * len(asks)
    assert chisquare(seen[support].numpy(), expected.numpy()).pvalue > 1e-6


def test_penalties_bias_and_bans_reach_the_draft_with_what_it_drafted_itself() -> None:
    """The logits never change: only the request's past moves the draft on."""
    token_ids = torch.tensor([2, 4, 6, 8])
    sampling = Sampling(presence_penalty=10.0, banned=frozenset({8}))
    past = Past(sampling, [1], vocab_size=10)
    past.extend([6])
    asks = [
        Ask(0, [1, 6], 3, sampling, 0, past=past),
        Ask(1, [1, 6], 3, Sampling(), 0),  # beside it one that asked for nothing
    ]
    draws = Draws(asks, vocab_size=10, token_ids=token_ids)
    for _ in range(3):
        draws.draw(torch.tensor([[1.0, 2.0, 3.0, 9.0]]).repeat(2, 1))
    # 8 is banned; 6 was emitted; then 4 and 2 were drafted, and 6 is the least penalised again.
    assert draws.proposal().ids == [[4, 2, 6], [8, 8, 8]]


def test_a_draft_whose_every_token_is_banned_is_only_a_bad_guess() -> None:
    sampling = Sampling(temperature=1.0, allowed=frozenset({3}))
    past = Past(sampling, [1], vocab_size=10)
    draws = Draws(
        [Ask(0, [1], 1, sampling, 0, past=past)], vocab_size=10, token_ids=torch.tensor([2, 4])
    )
    draws.draw(torch.tensor([[1.0, 2.0]]))
    proposal = draws.proposal()
    assert proposal.broken == ()
    assert proposal.ids[0][0] in (2, 4)


def test_a_proposal_for_some_asks_is_one_for_all() -> None:
    law = torch.ones(1, 1)
    some = Proposal([[1], []], [law, None], broken=(1,))
    assert spread(some, [2, 0], 4) == Proposal([[], [], [1], []], [None, None, law, None], (0,))
    assert spread(Proposal([[1]], None), [1], 2) == Proposal([[], [1]], None)


@pytest.mark.parametrize("kind", ["none", "ngram", "head", "model"])
@torch.inference_mode()
def test_every_drafter_lets_rows_it_never_saw_move_and_go(
    target: Target, tmp_path: Path, kind: str
) -> None:
    folder = toy_target_folder(tmp_path / "target")
    draft = {"head": tmp_path / "head", "model": folder}.get(kind, kind)
    if kind == "head":
        toy_draft_folder(folder, tmp_path / "head")
    drafter: Drafter = load_drafter(draft, target, rows=2, max_len=MAX_LEN)
    assert drafter.kind == kind
    drafter.forget(0)
    drafter.move(1, 0)
    assert drafter.propose([]).ids == []
    # What stood in a row before another moves onto it is gone, also if that one has nothing.
    if drafter.feature_layers:
        drafter.observe(0, 0, torch.zeros(4, 3 * target.config.hidden_size))
    drafter.propose([Ask(0, [5, 6, 5, 6, 5], 2, Sampling(), 0)])
    drafter.move(1, 0)
    fresh = drafter.propose([Ask(0, [6, 5, 9, 8, 6, 5], 2, Sampling(), 0)]).ids
    assert (
        fresh
        == load_drafter(draft, target, rows=2, max_len=MAX_LEN)
        .propose([Ask(0, [6, 5, 9, 8, 6, 5], 2, Sampling(), 0)])
        .ids
    )


def test_a_folder_that_holds_no_draft_is_refused_with_its_reason(
    target: Target, tmp_path: Path
) -> None:
    with pytest.raises(DraftError, match=r"holds no config.json"):
        load_drafter(tmp_path, target, rows=1, max_len=MAX_LEN)
    (tmp_path / "config.json").write_text('{"architectures": ["Nothing"], "model_type": "nil"}')
    with pytest.raises(DraftError, match=r"nil|Nothing|safetensors"):
        load_drafter(tmp_path, target, rows=1, max_len=MAX_LEN)


def test_names_load_what_they_name(target: Target) -> None:
    assert isinstance(load_drafter("none", target, rows=1, max_len=8), NoDrafter)
    ngram = load_drafter("ngram", target, rows=1, max_len=8)
    assert isinstance(ngram, NgramDrafter)
    assert ngram.shared is None  # others' outputs only where they are asked for
