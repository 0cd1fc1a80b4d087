"""Speculative decoding of many sequences over one target. A plain loop; token ids only.

Knows nothing of text, HTTP or the registry. Rows of the caches are kept dense: sequence i of
`self._running` owns row i, so that a round's caches are views. One prompt is prefilled at a time, a
chunk a step, so that long prompts do not stall the sequences that are decoding.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED
from speculation.drafters import Drafter
from speculation.drafting import Drafting, OnFault, ignore
from speculation.history import Past
from speculation.judging import VERIFICATIONS, Draft, judge
from speculation.lengths import Lengths, RoundTimes
from speculation.pace import Pace
from speculation.prefixes import BLOCK, Prefixes
from speculation.requests import Limits, check
from speculation.sequence import Event, Request, Running, TokenLogprobs
from speculation.streams import Key
from speculation.target import Target

PREFILL_CHUNK = 256  # tokens

# Told of every committed position: request id, the target's states there [T, 3H] (None unless a
# drafter reads them), and the logits [T', V] that the emitted tokens were drawn from.
Observer = Callable[[str, Tensor | None, Tensor], None]


def _entropy() -> int:
    return secrets.randbits(62)


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
        adaptive: bool = False,  # K by what it pays, for requests that say none; draft_len else
        slots: int = 8,
        max_len: int = 1024,
        token_count: int | None = None,  # ids from here on name no token; None: all do
        prefix_tokens: int = 0,  # of prompt beginnings kept for other prompts
        verification: str = "rejection",  # or "block"
        observer: Observer | None = None,
        on_fault: OnFault = ignore,
        clock: Callable[[], float] = time.monotonic,
        entropy: Callable[[], int] = _entropy,  # seeds of requests that bring none
    ) -> None:
        if default not in drafters:
            raise ValueError(f"default drafter {default!r}: wanted one of {sorted(drafters)}")
        if not 0 <= draft_len <= MOST_DRAFTED:
            raise ValueError(f"draft_len {draft_len}: wanted 0 to {MOST_DRAFTED}")
        if verification not in VERIFICATIONS:
            raise ValueError(f"verification {verification!r}: wanted one of {list(VERIFICATIONS)}")
        self.target, self.drafters = target, dict(drafters)
        self.default, self.draft_len = default, draft_len
        self.slots, self.max_len = slots, max_len
        for drafter in self.drafters.values():
            if drafter.feature_layers:
                target.capture(drafter.feature_layers)
        self._drafting = Drafting(
            self.drafters, vocab_size=target.vocab_size, clock=clock, on_fault=on_fault
        )
        kinds = {name: drafter.kind for name, drafter in self.drafters.items()}
        self._lengths = Lengths(kinds, self._drafting.unread, adaptive=adaptive)
        self._verification = VERIFICATIONS[verification]
        self._observer, self._clock, self._entropy = observer, clock, entropy
        self._token_count = target.vocab_size if token_count is None else token_count
        self._cache = target.new_cache(rows=slots, max_len=max_len)
        self._prefixes = Prefixes(0 if observer is not None else prefix_tokens)
        self._running: list[Running] = []
        self._prefilling: Running | None = None  # owns the row after the running ones
        self._waiting: deque[Running] = deque()
        self._cancelled: set[str] = set()
        self._owed = False  # the last step told a first token and left the round to this one

    @property
    def paces(self) -> Mapping[str, Pace]:
        """What decides K, by drafter; empty where K is fixed. To be read."""
        return self._lengths.paces

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
        drafter = self.default if request.drafter is None else request.drafter
        draft_len = self.draft_len if request.draft_len is None else request.draft_len
        check(
            request,
            Limits(
                max_len=self.max_len,
                token_count=self._token_count,
                drafters=tuple(self.drafters),
                adapters=tuple(self.target.adapters),
            ),
        )
        sampling = request.sampling
        seed = self._entropy() if sampling.seed is None else sampling.seed
        sequence = Running(
            request,
            drafter,
            draft_len,
            self._clock(),
            Key(seed, request.choice),
            Past(
                sampling,
                request.prompt_ids,
                vocab_size=self.target.vocab_size,
                stop_ids=request.stop_ids,
                device=self.target.device,
            ),
            tokens=list(request.prompt_ids),
        )
        self._lengths.admit(sequence)
        self._waiting.append(sequence)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Let requests name the LoRA adapter in `folder`. Raises ModelFolderError."""
        self.target.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raises ValueError while a request that waits or runs uses it."""
        users = sum(sequence.request.adapter == name for sequence in self._everyone())
        if users:
            raise ValueError(f"adapter {name!r} is used by {users} requests: wait until they end")
        self.target.unload_adapter(name)
        self._prefixes.forget(name)  # another of the same name would not be the same

    def cancel(self, request_id: str) -> None:
        """End a request at the next step, with what it has emitted. Unknown ids are ignored."""
        if any(sequence.request.id == request_id for sequence in self._everyone()):
            self._cancelled.add(request_id)

    def _everyone(self) -> list[Running]:
        return [*self._waiting, *self._running, *filter(None, [self._prefilling])]

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One chunk of a prompt, then one round of everything that is decoding.

        A prompt's first token is told at once, and the round is the next step's: a round in which
        a draft reads that prompt is longer.
        """
        events = self._drop_cancelled()
        if not self._owed:
            begun = self._prefill()
            events += begun
            self._owed = bool(begun)
            if begun:
                return events
        self._owed = False
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
            self._drafting.forget(sequence, len(self._running))
            sequence.first_token = self._clock()
            events.append(self._event(sequence, [], (), "cancelled"))
        for sequence in [s for s in self._running if s.request.id in cancelled]:
            events.append(self._event(sequence, [], (), "cancelled"))
            self._leave(sequence)
        return events

    def _prefill(self) -> list[Event]:
        row = len(self._running)
        if self._prefilling is None:
            if not self._waiting or row == self.slots:
                return []
            self._prefilling = self._waiting.popleft()
            self._prefilling.admitted = self._clock()
            self._reuse(self._prefilling, row)
        sequence = self._prefilling
        chunk = sequence.tokens[sequence.prefilled : sequence.prefilled + PREFILL_CHUNK]
        positions = torch.arange(sequence.prefilled, sequence.prefilled + len(chunk))
        hidden, features = self.target.forward(
            self._tensor([chunk]),
            positions[None].to(self.target.device),
            self._cache,
            [row],
            [sequence.request.adapter],
        )
        if not bool(torch.isfinite(hidden).all()):
            return [self._failed(sequence)]
        states = None if features is None else features[0]
        self._drafting.observe(sequence, row, sequence.prefilled, states)
        if states is not None and self._prefixes.capacity:
            sequence.states.append(states)
        sequence.prefilled += len(chunk)
        sequence.plain_forwards += 1
        if sequence.prefilled < len(sequence.tokens):
            if self._observer is not None:
                self._observer(sequence.request.id, states, hidden[0, :0])
            return []
        logits = self._logits(hidden[:, -1:])  # [1, 1, V]
        if _sound(logits)[0] == 0:
            return [self._failed(sequence)]
        self._keep(sequence, row)
        if self._observer is not None:
            self._observer(sequence.request.id, states, logits[0])
        _, added = judge(logits, [self._draft(sequence, [], None)])
        self._prefilling = None
        self._running.append(sequence)
        sequence.first_token = self._clock()
        return [self._commit(sequence, added, logits[0], drafted=0, accepted=0, prefill=True)]

    def _failed(self, sequence: Running) -> Event:
        """The target gave no number while it read this prompt."""
        self._prefilling = None
        self._running.append(sequence)
        sequence.first_token = self._clock()
        self._leave(sequence)
        return self._event(sequence, [], (), "error")

    def _reuse(self, sequence: Running, row: int) -> None:
        """Begin with the keys, values and states of an earlier prompt, while it was the same."""
        blocks = self._prefixes.match(sequence.request.adapter, sequence.tokens)
        for place, (keys, values, *states) in enumerate(blocks):
            self._cache.write(row, place * BLOCK, keys, values)
            sequence.states.extend(states)
        sequence.prefilled = sequence.cached = len(blocks) * BLOCK
        if sequence.states:
            self._drafting.observe(sequence, row, 0, torch.cat(sequence.states))

    def _keep(self, sequence: Running, row: int) -> None:
        """Let other prompts begin as this one did."""
        if not self._prefixes.capacity:
            return
        states = torch.cat(sequence.states) if sequence.states else None

        def save(start: int, end: int) -> tuple[Tensor, ...]:
            keys, values = self._cache.read(row, start, end)
            return (keys, values) if states is None else (keys, values, states[start:end].clone())

        self._prefixes.add(sequence.request.adapter, sequence.request.prompt_ids, save)
        sequence.states = []

    def _round(self) -> list[Event]:
        rows = list(range(len(self._running)))
        times = RoundTimes(began=self._clock())
        lens = self._lengths.choose(self._running)
        proposed = self._drafting.propose(self._running, lens)
        drafts = [
            self._draft(sequence, ids, law)
            for sequence, (ids, law) in zip(self._running, proposed, strict=True)
        ]
        times.drafted = self._clock()
        width = max(len(draft.ids) for draft in drafts)
        feeds = [
            [s.tokens[-1], *draft.ids, *[s.tokens[-1]] * (width - len(draft.ids))]
            for s, draft in zip(self._running, drafts, strict=True)
        ]
        first = self._tensor([len(s.tokens) - 1 for s in self._running])
        positions = first[:, None] + torch.arange(width + 1, device=first.device)
        hidden, features = self.target.forward(
            self._tensor(feeds),
            positions,
            self._cache,
            rows,
            [s.request.adapter for s in self._running],
        )
        logits = self._logits(hidden)  # [B, K + 1, V]
        # A position without a number ends its row only if the row gets there.
        sound = _sound(logits)
        judged = [draft.upto(place) for draft, place in zip(drafts, sound, strict=True)]
        accepted, added = judge(logits, judged, self._verification)
        times.judged = self._clock()
        self._drafting.timed_step(times.judged - times.drafted)
        events, ended = [], []
        for row, sequence in enumerate(self._running):
            if accepted[row] >= sound[row]:
                events.append(self._event(sequence, [], (), "error"))
                ended.append(sequence)
                continue
            block = [*drafts[row].ids[: accepted[row]], added[row]]
            states = None if features is None else features[row, : len(block)]
            rows_used = logits[row, : len(block)]
            event = self._commit(
                sequence, block, rows_used, drafted=len(drafts[row].ids), accepted=accepted[row]
            )
            if event.outcome is None:
                # The fed tokens' states: those of the block but its last, and of the one before.
                self._drafting.observe(sequence, row, len(sequence.tokens) - 1 - len(block), states)
            else:
                ended.append(sequence)
            if self._observer is not None:
                self._observer(sequence.request.id, states, rows_used[: len(event.token_ids)])
            events.append(event)
        times.done = self._clock()
        self._lengths.learn(
            self._running,
            [len(draft.ids) for draft in drafts],
            accepted,
            [len(event.token_ids) for event in events],
            times,
        )
        for sequence in ended:
            self._leave(sequence)
        return events

    def _draft(self, sequence: Running, ids: Sequence[int], law: Tensor | None) -> Draft:
        return Draft(ids, law, sequence.past, sequence.key, len(sequence.tokens))

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = self.target.logits(hidden)
        if self._token_count < logits.shape[-1]:  # rows of the output layer that are no tokens
            logits[..., self._token_count :] = float("-inf")
        return logits

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
            sequence.count_round(drafted, accepted, len(kept), ended=outcome is not None)
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
            cached=sequence.cached,
            queue_seconds=sequence.admitted - sequence.submitted,
            prefill_seconds=max(sequence.first_token - sequence.admitted, 0.0),
            decode_seconds=self._clock() - sequence.first_token if sequence.first_token else 0.0,
        )

    def _leave(self, sequence: Running) -> None:
        """Free a row: the last one takes its place, and the one being prefilled follows."""
        row = self._running.index(sequence)
        self._drafting.forget(sequence, row)
        self._lengths.finish(sequence)
        last = self._running.pop()
        if last is not sequence:
            self._running[row] = last
            self._move(last, len(self._running), row, len(last.tokens))
        if self._prefilling is not None:
            prefilling = self._prefilling
            self._move(prefilling, len(self._running) + 1, len(self._running), prefilling.prefilled)

    def _move(self, sequence: Running, source: int, row: int, length: int) -> None:
        self._cache.move(source, row, length)
        self._drafting.move(sequence, source, row)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.target.device)


def _sound(logits: Tensor) -> list[int]:
    """How many first positions of each row of `logits` [B, T, V] a token can be drawn from; those
    behind become harmless.

    A target whose numbers run over, or whose weights are broken, ends the requests that it does
    this to. That is no draft's fault, and nothing that could be decoded plainly instead.
    """
    sound = torch.isfinite(logits.amax(dim=-1))  # [B, T]
    if not bool(sound.all()):
        logits[~sound] = 0.0
    found: list[int] = sound.long().cumprod(dim=1).sum(dim=1).tolist()
    return found


def token_logprobs(logits: Tensor, ids: Sequence[int], top: int) -> tuple[TokenLogprobs, ...]:
    """Log-probabilities of `ids` and of the `top` likeliest tokens under each row of `logits`."""
    logprobs = logits.float().log_softmax(dim=-1)
    values, places = logprobs.topk(min(top, logprobs.shape[-1]), dim=-1)
    return tuple(
        TokenLogprobs(float(row[token]), tuple(zip(place.tolist(), value.tolist(), strict=True)))
        for row, token, value, place in zip(logprobs, ids, values, places, strict=True)
    )
