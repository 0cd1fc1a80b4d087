"""A target of a few tokens whose joint law can be enumerated, and drafts that are far from it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import torch
from scipy.stats import chi2, power_divergence
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from speculation import reference
from speculation.cache import ROOM
from speculation.drafters import Ask, NoDrafter, Proposal
from speculation.engine import Engine
from speculation.sampling import Sampling, probabilities
from speculation.sequence import Request
from speculation.streams import Key, draw
from speculation.target import Target, load_target

VOCAB = 5
PROMPT = (1, 3, 1)
LENGTH = 4  # tokens of an answer: 625 of them
STOP = 2


def tiny_target(folder: Path, *, seed: int = 0) -> Target:
    """A random Llama of five tokens, float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.8,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return load_target(folder, dtype="float32")


class TableTarget:
    """A target whose logits are looked up by the last three tokens: exact, and of no cost.

    Stands where a Target does. Its cache is the tokens themselves, so that a row's own past, and no
    other row's, decides what it says.
    """

    device, dtype, vocab_size, adapters = torch.device("cpu"), torch.float32, VOCAB, ()

    def __init__(self, *, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn((VOCAB,) * 4, generator=generator) * 1.5

    def new_cache(self, *, rows: int, max_len: int) -> TokenCache:
        return TokenCache(rows, max_len + ROOM)

    def forward(
        self, ids: Tensor, positions: Tensor, cache: TokenCache, rows: Sequence[int], *_: object
    ) -> tuple[Tensor, None]:
        row = torch.tensor(rows)[:, None]
        cache.tokens[row, positions] = ids
        past = [cache.tokens[row, (positions - back).clamp(min=0)] for back in (2, 1, 0)]
        return self.table[past[0], past[1], past[2]], None

    def check_layers(self, layers: Sequence[int]) -> None:
        assert not layers  # a table has none

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.clone()

    def after(self, tokens: Sequence[int]) -> list[float]:
        """The logits after `tokens`, three at least."""
        return [float(each) for each in self.table[tuple(tokens[-3:])]]


class TokenCache:
    def __init__(self, rows: int, max_len: int) -> None:
        self.tokens = torch.zeros(rows, max_len, dtype=torch.long)

    def move(self, source: int, row: int, length: int) -> None:
        self.tokens[row, :length] = self.tokens[source, :length]


def model_logits(folder: Path) -> After:
    """What transformers itself says after PROMPT and fewer than LENGTH tokens more."""
    model = LlamaForCausalLM.from_pretrained(folder)
    said: dict[tuple[int, ...], list[float]] = {}
    for length in range(LENGTH):
        ids = [[*PROMPT, *more] for more in product(range(VOCAB), repeat=length)]
        with torch.no_grad():
            logits = model(torch.tensor(ids)).logits[:, -1].tolist()
        said |= {tuple(each): row for each, row in zip(ids, logits, strict=True)}
    return lambda tokens: said[tuple(tokens)]


After = Callable[[Sequence[int]], Sequence[float]]
Answers = dict[tuple[int, ...], float]


def joint_law(after: After, sampling: Sampling, stop_ids: frozenset[int]) -> Answers:
    """The probability of every answer, by the plain reference."""
    law: Answers = {(): 1.0}
    for _ in range(LENGTH):
        for answer in [a for a in law if not (a and a[-1] in stop_ids)]:
            logits = reference.logits_after(
                after([*PROMPT, *answer]),
                sampling,
                prompt=PROMPT,
                emitted=answer,
                stop_ids=stop_ids,
            )
            mass = law.pop(answer)
            for token, prob in enumerate(reference.law(logits, sampling)):
                if prob > 0:
                    law[(*answer, token)] = mass * prob
    return law


class MarkovDrafter(NoDrafter):
    """Drafts from a law of its own over the last token, nothing like the target's.

    `one_hot` drafts that law's likeliest token. It ignores what the request asked for, so that all
    of it has to come from the target's side.
    """

    def __init__(self, *, seed: int, one_hot: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(VOCAB, VOCAB, generator=generator) * 1.5
        self.laws = probabilities(logits, Sampling(temperature=float(not one_hot)))
        self.one_hot = one_hot

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        ids: list[list[int]] = []
        laws: list[Tensor] = []
        for ask in asks:
            last, drafted, used = ask.context[-1], list[int](), list[Tensor]()
            for place in range(ask.length):
                law = self.laws[last]
                u = Key(ask.seed).uniform(len(ask.context), place, "draft")
                last = int(draw(law[None], torch.tensor([u], dtype=torch.float64))[0])
                drafted.append(last)
                used.append(law)
            ids.append(drafted)
            laws.append(torch.stack(used))
        return Proposal(ids, None if self.one_hot else laws)


def begin_at_once(engine: Engine, requests: Sequence[Request]) -> None:
    """Let all `requests`, whose prompt is PROMPT, decode in one batch from the first round on.

    The engine itself reads one prompt a step, so that hardly three answers of four tokens would
    ever run together. Here one forward reads every row's prompt but its last token, which is what
    a round begins with; the first token is drawn in a round, as all others are.
    """
    for request in requests:
        engine.submit(request)
    rows, prompts = engine._rows, engine._prompts
    rows.running, engine._waiting = list(engine._waiting), deque()
    count = len(rows.running)
    read = [list(PROMPT[:-1])] * count
    with torch.inference_mode():
        _, states = prompts._forward.states(read, [0] * count, range(count), [None] * count)
    for row, sequence in enumerate(rows.running):
        prompts._drafting.observe(sequence, row, 0, None if states is None else states[row])


def decoded(engine: Engine, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Each request's answer, all decoded in one batch."""
    assert len(requests) <= engine.slots
    begin_at_once(engine, requests)
    answers: dict[str, list[int]] = {request.id: [] for request in requests}
    while not engine.idle:
        for event in engine.step():
            answers[event.id].extend(event.token_ids)
    return [tuple(answers[request.id]) for request in requests]


def prefix_law(law: Answers, length: int) -> Answers:
    """The law of the first `length` tokens: few cells, so that a fault of all answers shows."""
    found: Answers = {}
    for answer, mass in law.items():
        found[answer[:length]] = found.get(answer[:length], 0.0) + mass
    return found


def prefixes(answers: Sequence[tuple[int, ...]], length: int) -> list[tuple[int, ...]]:
    return [answer[:length] for answer in answers]


def p_value(law: Answers, answers: Sequence[tuple[int, ...]]) -> float:
    """Of the G-test that `answers` follow `law`; 0 where an answer cannot be at all."""
    return pooled_p_value([(law, answers)])


def pooled_p_value(groups: Sequence[tuple[Answers, Sequence[tuple[int, ...]]]]) -> float:
    """Of the G-test that each group of answers follows its own law."""
    statistics, freedom = 0.0, 0
    for law, answers in groups:
        if not set(answers) <= set(law):
            return 0.0
        statistic, cells = _g(law, answers)
        statistics, freedom = statistics + statistic, freedom + max(cells - 1, 0)
    return float(chi2.sf(statistics, freedom)) if freedom else 1.0


def _g(law: Answers, answers: Sequence[tuple[int, ...]]) -> tuple[float, int]:
    """The statistic of the G-test, and its cells: rare answers share one."""
    seen = Counter(answers)
    expected = {answer: mass * len(answers) for answer, mass in law.items()}
    common = [answer for answer, count in expected.items() if count >= 5]
    cells = [(seen[answer], expected[answer]) for answer in common]
    rare = [answer for answer in expected if answer not in set(common)]
    if rare:
        cells.append((sum(seen[a] for a in rare), sum(expected[a] for a in rare)))
    counts, wanted = zip(*cells, strict=True)
    scale = sum(counts) / sum(wanted)
    found = power_divergence(counts, [w * scale for w in wanted], lambda_="log-likelihood")
    return float(found.statistic), len(cells)
