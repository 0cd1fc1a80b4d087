"""Whether counts can be true: what an endpoint says of its rounds, held against itself.

An endpoint that counts wrongly, or says what suits it, gives figures that cannot be. Pure.
"""

from __future__ import annotations

from speculation.records import Counts

MOST_DRAFTED = 64  # tokens a round of any server that adapts K: more is no count but a fault


def inconsistency(counts: Counts, completion_tokens: int, draft_len: int) -> str | None:
    """Why counts cannot be true, or None. What design.md says of counts, as a check."""
    judged, accepted = counts.judged_per_position, counts.accepted_per_position
    numbers = (counts.rounds, counts.plain_forwards, counts.drafted, counts.emitted)
    if min(*numbers, *judged, *accepted) < 0 or len(judged) != len(accepted):
        return f"negative or ragged counts: {counts}"
    if any(kept > seen for kept, seen in zip(accepted, judged, strict=True)):
        return f"more accepted {accepted} than judged {judged}"
    reachable = (counts.rounds, *accepted)  # position j is judged only after j - 1 was accepted
    if any(seen > most for seen, most in zip(judged, reachable, strict=False)):
        return f"judged {judged} tokens after accepting {accepted} in {counts.rounds} rounds"
    if not counts.judged <= counts.drafted <= counts.rounds * max(draft_len, 0):
        return (
            f"{counts.drafted} drafted, {counts.judged} judged in {counts.rounds} rounds "
            f"of {draft_len}"
        )
    # Of every round the first token is judged, and after an accepted one the next, unless the round
    # had no more: fewer would be rejections that were left out.
    if sum(judged[:1]) != counts.rounds:
        return f"{sum(judged[:1])} first tokens judged in {counts.rounds} rounds"
    unjudged = sum(kept - seen for kept, seen in zip(accepted, judged[1:], strict=False))
    if unjudged > counts.rounds * draft_len - counts.drafted:
        return (
            f"{unjudged} tokens not judged after an accepted one, with {counts.drafted} drafted in "
            f"{counts.rounds} rounds of {draft_len}"
        )
    if counts.emitted != completion_tokens:
        return f"{counts.emitted} emitted, {completion_tokens} in the usage"
    if counts.emitted > counts.accepted + counts.forwards:
        return (
            f"{counts.emitted} emitted by {counts.accepted} accepted and {counts.forwards} forwards"
        )
    return None
