"""Speculative decoding of many sequences over one target. A plain loop; token ids only.

The engine's door: requests come in, wait, and are told of; a step reads a chunk of a prompt
(`prompts`) or runs a round of everything that decodes (`rounds`). Knows nothing of text, HTTP or
the registry.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from speculation.breaker import Breaker
from speculation.cache import MOST_DRAFTED
from speculation.commit import Observer
from speculation.drafters import Drafter
from speculation.drafting import Drafting, OnFault, ignore
from speculation.forward import Forward
from speculation.history import Past
from speculation.judging import VERIFICATIONS
from speculation.lengths import Lengths
from speculation.pace import Pace
from speculation.prompts import Prompts
from speculation.read import Read
from speculation.requests import Limits, check
from speculation.rounds import Rounds
from speculation.rows import Rows
from speculation.sequence import Event, Request, Running
from speculation.streams import Key
from speculation.target import Target


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
        observed: Sequence[int] = (),  # layers whose inputs the observer is told; (): what is read
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
        self._token_count = target.vocab_size if token_count is None else token_count
        self._clock, self._entropy = clock, entropy
        read = Read([observed, *(drafter.feature_layers for drafter in self.drafters.values())])
        if observer is not None and observed:
            observer = read.only(observed, observer)
        drafting = self._drafting = Drafting(
            self.drafters, vocab_size=target.vocab_size, read=read, clock=clock, on_fault=on_fault
        )
        kinds = {name: drafter.kind for name, drafter in self.drafters.items()}
        self._lengths = Lengths(kinds, drafting.unread, adaptive=adaptive)
        cache = target.new_cache(rows=slots, max_len=max_len)
        forward = Forward(target, cache, token_count=self._token_count, read=read.layers)
        self._rows = Rows(slots, cache, drafting, self._lengths)
        self._prompts = Prompts(
            self._rows,
            forward,
            cache,
            drafting,
            prefix_tokens=prefix_tokens,
            observer=observer,
            clock=clock,
        )
        self._rounds = Rounds(
            self._rows,
            forward,
            drafting,
            self._lengths,
            verification=VERIFICATIONS[verification],
            observer=observer,
            clock=clock,
        )
        self._waiting: deque[Running] = deque()
        self._cancelled: set[str] = set()
        self._owed = False  # the last step told a first token and left the round to this one

    @property
    def paces(self) -> Mapping[str, Pace]:
        """What decides K, by drafter; empty where K is fixed. To be read."""
        return self._lengths.paces

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """What leaves a faulty drafter alone, by drafter. To be read."""
        return {name: guarded.breaker for name, guarded in self._drafting.guarded.items()}

    @property
    def running(self) -> int:
        return self._rows.owned

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

    def cancel(self, request_id: str) -> None:
        """End a request at the next step, with what it has emitted. Unknown ids are ignored."""
        if any(sequence.request.id == request_id for sequence in self._everyone()):
            self._cancelled.add(request_id)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Let requests name the LoRA adapter in `folder`. Raises ModelFolderError."""
        self.target.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raises ValueError while a request that waits or runs uses it."""
        users = sum(sequence.request.adapter == name for sequence in self._everyone())
        if users:
            raise ValueError(f"adapter {name!r} is used by {users} requests: wait until they end")
        self.target.unload_adapter(name)
        self._prompts.forget(name)

    def _everyone(self) -> list[Running]:
        return [*self._waiting, *self._rows.running, *filter(None, [self._rows.reading])]

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One chunk of a prompt, then one round of everything that is decoding.

        A prompt's first token is told at once, and the round is the next step's: a round in which
        a draft reads that prompt is longer.
        """
        events = self._drop_cancelled()
        if not self._owed:
            begun = self._read_prompt()
            if begun is not None:
                self._owed = True
                return [*events, begun]
        self._owed = False
        if self._rows.running:
            events += self._rounds.run()
        return events

    def _read_prompt(self) -> Event | None:
        if self._rows.reading is None:
            if not self._waiting or self._rows.next == self.slots:
                return None
            self._prompts.begin(self._waiting.popleft())
        return self._prompts.read()

    def _drop_cancelled(self) -> list[Event]:
        cancelled, self._cancelled = self._cancelled, set()
        if not cancelled:
            return []
        ended = [sequence for sequence in self._waiting if sequence.request.id in cancelled]
        for sequence in ended:
            self._waiting.remove(sequence)
            sequence.admitted = sequence.first_token = self._clock()
        # Before any running row ends: that moves the row whose prompt is being read.
        reading = self._rows.reading
        if reading is not None and reading.request.id in cancelled:
            self._rows.abandon(reading)
            reading.first_token = self._clock()
            ended.append(reading)
        for sequence in [s for s in self._rows.running if s.request.id in cancelled]:
            self._rows.leave(sequence)
            ended.append(sequence)
        return [sequence.last_event("cancelled", self._clock()) for sequence in ended]
