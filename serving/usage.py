"""What a request cost, as OpenAI counts it and as Paceline does.

Pure. Knows tickets and the counts of their last events. A prompt is paid for once, however many
answers it gets; what speculation did is added up over all of them, and a time is the longest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from serving.tickets import Ticket
from speculation.records import Counts
from speculation.sequence import Event


def usage(tickets: Sequence[Ticket], lasts: Sequence[Event], n: int) -> dict[str, Any]:
    """The `usage` of an answer. `lasts` are the last events, a ticket each; `n` a prompt's."""
    firsts = tickets[::n]  # of each prompt
    counts = _sum([last.counts for last in lasts if last.counts is not None])
    prompt = sum(len(ticket.request.prompt_ids) for ticket in firsts)
    # What of a prompt was known before anybody answered it.
    cached = sum(min(last.cached for last in lasts[at : at + n]) for at in range(0, len(lasts), n))
    ticket = tickets[0]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": counts.emitted,
        "total_tokens": prompt + counts.emitted,
        "prompt_tokens_details": {"cached_tokens": cached},
        "paceline": {
            "pair": ticket.arm.pair,
            "drafter": ticket.arm.name,
            "release": ticket.release,
            "adapter": ticket.request.adapter,
            "draft_len": ticket.draft_len,
            "adaptive": ticket.adaptive,
            "rounds": counts.rounds,
            "plain_forwards": counts.plain_forwards,
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "emitted": counts.emitted,
            "judged_per_position": list(counts.judged_per_position),
            "accepted_per_position": list(counts.accepted_per_position),
            "prompt_tokens_cached": cached,
            "queue_seconds": max(
                ticket.waiting_seconds + last.queue_seconds
                for ticket, last in zip(tickets, lasts, strict=True)
            ),
            "prefill_seconds": max(last.prefill_seconds for last in lasts),
            "decode_seconds": max(last.decode_seconds for last in lasts),
        },
    }


def _sum(counts: Sequence[Counts]) -> Counts:
    return Counts(
        rounds=sum(one.rounds for one in counts),
        plain_forwards=sum(one.plain_forwards for one in counts),
        drafted=sum(one.drafted for one in counts),
        emitted=sum(one.emitted for one in counts),
        judged_per_position=_by_position([one.judged_per_position for one in counts]),
        accepted_per_position=_by_position([one.accepted_per_position for one in counts]),
    )


def _by_position(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))
