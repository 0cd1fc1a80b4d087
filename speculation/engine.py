"""Speculative decoding of many sequences over one target. A plain loop; token ids only.

Knows nothing of text, HTTP or the registry. Rows of the caches are kept dense: sequence i of
`self._running` owns row i, so that a round's caches are views. One prompt is prefilled at a time, a
chunk a step, so that long prompts do not stall the sequences that are decoding.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED
from speculation.drafters import Ask, Drafter, Proposal
from speculation.sampling import draw, probabilities, stream
from speculation.sequence import Event, Request, Running, TokenLogprobs
from speculation.target import Target
from speculation.verification import accept_count, greedy_accept_count, next_probs

PREFILL_CHUNK = 256  # tokens

# Told of every committed position: request id, the target's states there [T, 3H] (None unless a
# drafter reads them), and the logits [T', V] that the emitted tokens were drawn from.
Observer = Callable[[str, Tensor | None, Tensor], None]


class Engine:
    """Decodes requests with any of `drafters`, chosen per request by name.

    `slots` sequences run at once, each of at most `max_len` tokens with its prompt; others wait.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        *,
        default: str,
        draft_len: int = 4,
        slots: int = 8,
        max_len: int = 1024,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if default not in drafters:
            raise ValueError(f"default drafter {default!r}: wanted one of {sorted(drafters)}")
        if not 0 <= draft_len <= MOST_DRAFTED:
            raise ValueError(f"draft_len {draft_len}: wanted 0 to {MOST_DRAFTED}")
        self.target, self.drafters = target, dict(drafters)
        self.default, self.draft_len = default, draft_len
        self.slots, self.max_len = slots, max_len
        for drafter in self.drafters.values():
            if drafter.feature_layers:
                target.capture(drafter.feature_layers)
        self._observer, self._clock = observer, clock
        self._cache = target.new_cache(rows=slots, max_len=max_len)
        self._running: list[Running] = []
        self._prefilling: Running | None = None  # owns the row after the running ones
        self._waiting: deque[Running] = deque()
        self._cancelled: set[str] = set()

    @property
    def running(self) -> int:
        return len(self._running) + (self._prefilling is not None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting)

    def submit(self, request: Request) -> None:
        """Queue `request`. Raises ValueError for what this engine cannot serve."""
        length = len(request.prompt_ids)
        if not request.prompt_ids or request.max_tokens < 1:
            raise ValueError(
                f"{length} prompt tokens, max_tokens {request.max_tokens}: wanted 1 or more of each"
            )
        if length + request.max_tokens > self.max_len:
            raise ValueError(
                f"{length} prompt tokens and max_tokens {request.max_tokens} exceed the context of "
                f"{self.max_len} tokens: shorten one of them"
            )
        worst = max(request.prompt_ids)
        if worst >= self.target.vocab_size or min(request.prompt_ids) < 0:
            raise ValueError(f"token id {worst}: wanted 0 to {self.target.vocab_size - 1}")
        drafter = self.default if request.drafter is None else request.drafter
        if drafter not in self.drafters:
            raise ValueError(f"drafter {drafter!r}: wanted one of {sorted(self.drafters)}")
        draft_len = self.draft_len if request.draft_len is None else request.draft_len
        if not 0 <= draft_len <= MOST_DRAFTED:
            raise ValueError(f"draft_len {draft_len}: wanted 0 to {MOST_DRAFTED}")
        sequence = Running(request, drafter, draft_len, self._clock())
        sequence.tokens = list(request.prompt_ids)
        if request.sampling.seed is not None:
            sequence.seed = request.sampling.seed
        self._waiting.append(sequence)

    def cancel(self, request_id: str) -> None:
        """End a request at the next step, with what it has emitted. Unknown ids are ignored."""
        self._cancelled.add(request_id)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One prefill chunk, then one round of everything that is decoding."""
        events = self._drop_cancelled()
        events += self._prefill()
        if self._running:
            events += self._round()
        return events

    def _drop_cancelled(self) -> list[Event]:
        cancelled, self._cancelled = self._cancelled, set()
        if not cancelled:
            return []
        events = []
        for sequence in [s for s in self._waiting if s.request.id in cancelled]:
            self._waiting.remove(sequence)
            sequence.admitted = sequence.first_token = self._clock()
            events.append(self._event(sequence, [], (), "cancelled"))
        # Before any running row ends: that moves the row being prefilled.
        if self._prefilling is not None and self._prefilling.request.id in cancelled:
            sequence, self._prefilling = self._prefilling, None
            self.drafters[sequence.drafter].forget(len(self._running))
            sequence.first_token = self._clock()
            events.append(self._event(sequence, [], (), "cancelled"))
        for sequence in [s for s in self._running if s.request.id in cancelled]:
            events.append(self._event(sequence, [], (), "cancelled"))
            self._leave(sequence)
        return events

    def _prefill(self) -> list[Event]:
        if self._prefilling is None:
            if not self._waiting or len(self._running) == self.slots:
                return []
            self._prefilling = self._waiting.popleft()
            self._prefilling.admitted = self._clock()
        sequence, row = self._prefilling, len(self._running)
        chunk = sequence.tokens[sequence.prefilled : sequence.prefilled + PREFILL_CHUNK]
        positions = torch.arange(sequence.prefilled, sequence.prefilled + len(chunk))
        hidden, features = self.target.forward(
            self._tensor([chunk]), positions[None].to(self.target.device), self._cache, [row]
        )
        self._observe(sequence, row, features, 0, len(chunk))
        sequence.prefilled += len(chunk)
        sequence.plain_forwards += 1
        if sequence.prefilled < len(sequence.tokens):
            if self._observer is not None:
                self._observer(
                    sequence.request.id, None if features is None else features[0], hidden[0, :0]
                )
            return []
        logits = self.target.logits(hidden[:, -1])  # [1, V]
        if self._observer is not None:
            self._observer(sequence.request.id, None if features is None else features[0], logits)
        sampling = sequence.request.sampling
        if sampling.greedy:
            token = int(logits[0].argmax())
        else:
            purpose = stream(sequence.seed, len(sequence.tokens), "pick")
            token = int(draw(probabilities(logits, sampling), [purpose])[0])
        self._prefilling = None
        self._running.append(sequence)
        sequence.first_token = self._clock()
        return [self._commit(sequence, [token], logits, drafted=0, accepted=0, prefill=True)]

    def _round(self) -> list[Event]:
        rows = list(range(len(self._running)))
        drafts, laws = self._draft()
        width = max(map(len, drafts))
        feeds = [
            [s.tokens[-1], *draft, *[s.tokens[-1]] * (width - len(draft))]
            for s, draft in zip(self._running, drafts, strict=True)
        ]
        first = self._tensor([len(s.tokens) - 1 for s in self._running])
        positions = first[:, None] + torch.arange(width + 1, device=first.device)
        hidden, features = self.target.forward(self._tensor(feeds), positions, self._cache, rows)
        logits = self.target.logits(hidden)  # [B, K + 1, V]
        ids = self._tensor(feeds)[:, 1:]
        lens = self._tensor([len(draft) for draft in drafts])
        accepted, added = self._verify(logits, ids, lens, laws)
        events, ended = [], []
        for row, sequence in enumerate(self._running):
            block = [*drafts[row][: accepted[row]], added[row]]
            rows_used = logits[row, : len(block)]
            event = self._commit(
                sequence, block, rows_used, drafted=len(drafts[row]), accepted=accepted[row]
            )
            if event.outcome is None:
                self._observe(sequence, row, features, row, len(block))
            if self._observer is not None:
                states = None if features is None else features[row, : len(block)]
                self._observer(sequence.request.id, states, rows_used[: len(event.token_ids)])
            events.append(event)
            if event.outcome is not None:
                ended.append(sequence)
        for sequence in ended:
            self._leave(sequence)
        return events

    def _draft(self) -> tuple[list[list[int]], list[Tensor | None]]:
        """Each running row's drafted tokens and the law they came from (None: one-hot)."""
        drafts: list[list[int]] = [[] for _ in self._running]
        laws: list[Tensor | None] = [None] * len(self._running)
        asks: dict[str, list[Ask]] = {}
        for row, sequence in enumerate(self._running):
            length = sequence.wanted()
            if length > 0:
                sampling = sequence.request.sampling
                ask = Ask(row, sequence.tokens, length, sampling, sequence.seed)
                asks.setdefault(sequence.drafter, []).append(ask)
        for name, wanted in asks.items():
            proposal: Proposal = self.drafters[name].propose(wanted)
            for place, ask in enumerate(wanted):
                drafts[ask.row] = proposal.ids[place]
                laws[ask.row] = None if proposal.probs is None else proposal.probs[place]
        return drafts, laws

    def _verify(
        self, logits: Tensor, ids: Tensor, lens: Tensor, laws: Sequence[Tensor | None]
    ) -> tuple[list[int], list[int]]:
        """Each row's accepted count and the token that the target adds."""
        samplings = [s.request.sampling for s in self._running]
        if all(sampling.greedy for sampling in samplings):
            best = logits.argmax(dim=-1)
            accepted = greedy_accept_count(best, ids, lens)
            return accepted.tolist(), best.gather(1, accepted[:, None])[:, 0].tolist()
        batch, width = ids.shape
        target_probs = torch.stack(
            [probabilities(row, sampling) for row, sampling in zip(logits, samplings, strict=True)]
        )
        draft_probs = torch.zeros_like(target_probs[:, :width]).scatter_(2, ids[..., None], 1.0)
        for row, law in enumerate(laws):
            if law is not None:
                draft_probs[row, : len(law)] = law
        keys = [(s.seed, len(s.tokens)) for s in self._running]
        uniform = torch.stack(
            [
                torch.rand(width, generator=stream(*key, "accept"), dtype=torch.float32)
                for key in keys
            ]
        ).to(logits.device)
        accepted = accept_count(target_probs[:, :width], draft_probs, ids, lens, uniform)
        law = next_probs(target_probs, draft_probs, ids, lens, accepted)
        added = draw(law, [stream(*key, "pick") for key in keys])
        assert batch == len(added)
        return accepted.tolist(), added.tolist()

    def _commit(
        self,
        sequence: Running,
        block: list[int],
        logits: Tensor,  # [len(block), V], what each token of the block was drawn from
        *,
        drafted: int,
        accepted: int,
        prefill: bool = False,
    ) -> Event:
        kept, outcome = sequence.commit(block)
        if not prefill:
            sequence.count_round(drafted, accepted, len(kept))
        asked = sequence.request.logprobs
        found = token_logprobs(logits[: len(kept)], kept, asked) if asked else ()
        event = self._event(sequence, kept, found, outcome)
        if prefill and outcome is not None:
            self._leave(sequence)
        return event

    def _event(
        self,
        sequence: Running,
        kept: Sequence[int],
        found: tuple[TokenLogprobs, ...],
        outcome: str | None,
    ) -> Event:
        if outcome is None:
            return Event(sequence.request.id, tuple(kept), found)
        return Event(
            sequence.request.id,
            tuple(kept),
            found,
            outcome,
            sequence.counts(),
            queue_seconds=sequence.admitted - sequence.submitted,
            prefill_seconds=max(sequence.first_token - sequence.admitted, 0.0),
            decode_seconds=self._clock() - sequence.first_token if sequence.first_token else 0.0,
        )

    def _observe(
        self, sequence: Running, row: int, features: Tensor | None, place: int, count: int
    ) -> None:
        """Tell the drafter of `count` committed positions, the last block's fed tokens."""
        drafter = self.drafters[sequence.drafter]
        if not drafter.feature_layers or features is None:
            return
        if self._prefilling is sequence:
            start = sequence.prefilled
        else:
            start = len(sequence.tokens) - 1 - count
        drafter.observe(row, start, features[place, :count])

    def _leave(self, sequence: Running) -> None:
        """Free a row: the last one takes its place, and the one being prefilled follows."""
        row = self._running.index(sequence)
        self.drafters[sequence.drafter].forget(row)
        last = self._running.pop()
        if last is not sequence:
            self._running[row] = last
            self._move(last, len(self._running), row, len(last.tokens))
        if self._prefilling is not None:
            prefilling = self._prefilling
            self._move(prefilling, len(self._running) + 1, len(self._running), prefilling.prefilled)

    def _move(self, sequence: Running, source: int, row: int, length: int) -> None:
        self._cache.move(source, row, length)
        self.drafters[sequence.drafter].move(source, row)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.target.device)


def token_logprobs(logits: Tensor, ids: Sequence[int], top: int) -> tuple[TokenLogprobs, ...]:
    """Log-probabilities of `ids` and of the `top` likeliest tokens under each row of `logits`."""
    logprobs = logits.float().log_softmax(dim=-1)
    values, places = logprobs.topk(min(top, logprobs.shape[-1]), dim=-1)
    return tuple(
        TokenLogprobs(float(row[token]), tuple(zip(place.tolist(), value.tolist(), strict=True)))
        for row, token, value, place in zip(logprobs, ids, values, places, strict=True)
    )
