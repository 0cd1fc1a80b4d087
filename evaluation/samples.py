"""What a measurement consists of: the conditions, and one sample per finished request.

Plain records with their way to JSON and back. Texts are in here; a report keeps figures only.
"""

from __future__ import annotations

import hashlib
import json
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from evaluation.client import Answer, Token
from speculation.records import Counts, Prompt

ACCEPTANCE, SPEED = "acceptance", "speed"  # the runs
AGAIN, SEEDED = "again", "seeded"  # where tokens are drawn: an arm once more; with plain's seeds
Key = tuple[str, str, str, float, int, int]
# Nobody sees them, and their category is not that of format characters (Cf): fillers, the braille
# blank, variation selectors.
UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One finished request of a measurement."""

    run: str  # "acceptance", "again", "seeded" or "speed"
    arm: str
    prompt: str  # its id
    temperature: float
    concurrency: int  # requests at once
    block: int  # of the speed runs; 0 elsewhere
    answer: Answer

    @property
    def key(self) -> Key:
        return self.run, self.arm, self.prompt, self.temperature, self.concurrency, self.block


@dataclass(frozen=True, slots=True)
class SpeedBlock:
    """One block of the speed runs: a few requests of one arm, `concurrency` of them at once."""

    arm: str
    temperature: float
    concurrency: int
    block: int
    seconds: float  # by the wall clock, from the first request to the last answer

    @property
    def key(self) -> tuple[str, float, int, int]:
        return self.arm, self.temperature, self.concurrency, self.block


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement must be repeated with to be comparable."""

    release: str  # digest, as the server reports it
    pairs: Mapping[str, str]  # arm to the pair it serves, as the server reports it
    prompts_digest: str
    prompts: int
    speed_prompts: int  # of the speed runs of one request at a time
    draft_len: int  # K of the acceptance runs, the same for every arm
    speed_draft_len: int | None  # None: the serving policy, K adapts as it will where it serves
    max_tokens: int
    temperatures: tuple[float, ...]
    seed: int  # the first of plain decoding's; a draft's requests have none
    concurrency: int  # of the acceptance runs
    speed_concurrencies: tuple[int, ...]
    block_prompts: int  # requests of one arm in a row in a block, for each that is asked at once
    engine: str
    machine: str
    code_version: str
    # What the server was started with, as it tells; None: it does not, or an earlier version did
    # not ask.
    max_slots: int | None = None  # requests decoded at once
    max_context: int | None = None  # prompt and answer together, in tokens
    adapters: Mapping[str, str] | None = None  # of the target; their digests by name
    dtype: str | None = None
    device: str | None = None
    threads: int | None = None  # of the CPU


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything measured, texts included. A report is what is kept of it."""

    conditions: Conditions
    prompts: tuple[Prompt, ...]
    samples: tuple[Sample, ...]
    blocks: tuple[SpeedBlock, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)  # arm to requests that failed
    incomplete: str | None = None  # why measuring ended before it was done


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of the prompts in their order, everything in them."""
    return digest_of(map(prompt_digest, prompts))


def digest_of(digests: Iterable[str]) -> str:
    """sha256 of prompts in their order, by the sha256 of each."""
    whole = hashlib.sha256()
    for digest in digests:
        whole.update(digest.encode())
    return whole.hexdigest()


def prompt_digest(prompt: Prompt) -> str:
    """sha256 of one prompt: what is asked and what it is compared with, not its id."""
    content = [prompt.messages, prompt.reference, prompt.task, prompt.language]
    if prompt.adapter is not None:
        content.append(prompt.adapter)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def question_digest(prompt: Prompt) -> str:
    """sha256 of what is asked alone, whatever its answer is compared with: one question has one,
    however its spaces, line breaks, accents and widths are written, and whatever in it nobody sees.

    By it a draft's lineage tells whether a question was learned from.
    """
    return _asked(prompt, _normal)


def is_known(prompt: Prompt, known: Set[str]) -> bool:
    """Whether what is asked is one of the questions with these hashes.

    A lineage of an earlier version holds hashes of questions with what nobody sees in them, or as
    they were written: such a one is known as it is, and with space put around it.
    """
    forms = (_normal, _composed, str, str.strip)
    return not known.isdisjoint(_asked(prompt, form) for form in forms)


def asked_once(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Without those that ask the same adapter a question again: asked twice it is no second one."""
    first: dict[tuple[str, str | None], Prompt] = {}
    for prompt in prompts:
        first.setdefault((question_digest(prompt), prompt.adapter), prompt)
    return list(first.values())


def _asked(prompt: Prompt, form: Callable[[str], str]) -> str:
    content = [{**message, "content": form(message["content"])} for message in prompt.messages]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _normal(text: str) -> str:
    """As people see it: two widths of a letter are one, what is invisible is nothing."""
    seen = "".join(
        char
        for char in unicodedata.normalize("NFKC", text)
        if unicodedata.category(char) != "Cf" and char not in UNSEEN
    )
    return _composed(seen)


def _composed(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def to_line(sample: Sample) -> dict[str, Any]:
    """A sample as the journal stores it, with when it was taken (seconds since the epoch)."""
    return {**asdict(sample), "at": time.time()}


def from_line(stored: Mapping[str, Any]) -> Sample:
    """A sample from what the journal stored."""
    told = dict(stored["answer"])
    told["counts"] = Counts.from_json(told["counts"])
    told["tokens"] = tuple(
        Token(token["token"], tuple((name, logprob) for name, logprob in token["top"]))
        for token in told["tokens"]
    )
    return Sample(
        stored["run"],
        stored["arm"],
        stored["prompt"],
        stored["temperature"],
        stored["concurrency"],
        stored["block"],
        Answer(**told),
    )
