"""Faults of speculative decoding that really happen, each as one edit, and the tests to catch it.

What an edit replaces has to stand in its file exactly once: code that moves takes its faults along.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` in `path` becomes `new`; some test of `tests` (under tests/speculation) has to fail."""

    name: str
    path: str  # under speculation/
    old: str
    new: str
    tests: tuple[str, ...]


LAWS = ("test_laws.py",)
RULES = ("test_verification.py", "test_block.py")
SAMPLING = ("test_sampling.py",)
STREAMS = ("test_streams.py",)
ENGINE = ("test_engine.py",)
MODEL = ("test_model_drafter.py",)
DRAFTERS = ("test_drafters.py",)

FAULTS = (
    Fault(
        "the residual is the target",
        "verification.py",
        "return torch.where(peak > 0, scaled, otherwise)",
        "return otherwise",
        LAWS,
    ),
    Fault(
        "the residual is the draft",
        "verification.py",
        "return torch.where(peak > 0, scaled, otherwise)",
        "return draft",
        LAWS,
    ),
    Fault(
        "the residual's likeliest token instead of a drawn one",
        "verification.py",
        "return torch.where(peak > 0, scaled, otherwise)",
        "return torch.nn.functional.one_hot(scaled.argmax(-1), scaled.shape[-1]).float()",
        LAWS,
    ),
    Fault(
        "the ratio is flipped",
        "verification.py",
        "kept = uniform * draft < target",
        "kept = uniform * target < draft",
        LAWS,
    ),
    Fault(
        "kept at equality, so that a token of target probability 0 can pass",
        "verification.py",
        "kept = uniform * draft < target",
        "kept = uniform * draft <= target",
        RULES,
    ),
    Fault(
        "every drafted token is judged, not only those before a rejection",
        "verification.py",
        "    kept = uniform * draft < target\n"
        "    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]\n"
        "    return kept.long().cumprod(dim=1).sum(dim=1)",
        "    kept = uniform * draft < target\n"
        "    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]\n"
        "    return kept.long().sum(dim=1)",
        LAWS,
    ),
    Fault(
        "a row's padding is kept",
        "verification.py",
        "    kept = chosen[:, :width] == draft_ids\n"
        "    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]\n",
        "    kept = chosen[:, :width] == draft_ids\n",
        RULES,
    ),
    Fault(
        "a block's residual forgets how much of the prefix was due",
        "verification.py",
        "part = weights[rows, accepted][:, None] * target",
        "part = target",
        (*RULES, *LAWS),
    ),
    Fault(
        "a block's weight is not held at 1",
        "verification.py",
        "/ draft[:, place]).clamp(max=1.0))",
        "/ draft[:, place]))",
        (*RULES, *LAWS),
    ),
    Fault(
        "a block ends at its first failed draw",
        "verification.py",
        "success = (uniform[:, place - 1] < chance) & (place <= draft_lens)",
        "success = (uniform[:, place - 1] < chance) & (place <= draft_lens) & (kept == place - 1)",
        (*RULES, *LAWS),
    ),
    Fault(
        "the bonus is dropped",
        "rounds.py",
        "block = [*drafts[row].ids[: accepted[row]], added[row]]",
        "block = [*drafts[row].ids[: accepted[row]], added[row]][: max(1, len(drafts[row].ids))]",
        ENGINE,
    ),
    Fault(
        "the bonus is taken from the place before",
        "judging.py",
        "added = chosen.gather(1, kept[:, None])[:, 0]",
        "added = chosen.gather(1, (kept - 1).clamp(min=0)[:, None])[:, 0]",
        ENGINE,
    ),
    Fault(
        "positions are shared by the rows of a batch",
        "forward.py",
        "positions = first[:, None] + torch.arange(ids.shape[1], device=first.device)",
        "positions = first[:1, None].expand(len(rows), 1) + torch.arange(ids.shape[1])",
        ENGINE,
    ),
    Fault(
        "a stop token inside a block is passed over",
        "sequence.py",
        "if token in self.request.stop_ids:",
        "if token in self.request.stop_ids and place + 1 == len(block):",
        (*ENGINE, *LAWS),
    ),
    Fault(
        "one token more than max_tokens",
        "sequence.py",
        "if place + 1 == self.budget:",
        "if place == self.budget:",
        ENGINE,
    ),
    Fault(
        "tokens behind the end are judged",
        "sequence.py",
        "judged = min(accepted + 1, drafted, kept)",
        "judged = min(accepted + 1, drafted)",
        ENGINE,
    ),
    Fault(
        "tokens behind the end are drafted",
        "sequence.py",
        "self.drafted += min(drafted, kept) if ended else drafted",
        "self.drafted += drafted",
        ENGINE,
    ),
    Fault(
        "a row that moves loses its last token",
        "rows.py",
        "self._cache.move(source, row, length)",
        "self._cache.move(source, row, length - 2)",
        ENGINE,
    ),
    Fault(
        "penalties do not see drafted tokens",
        "history.py",
        "for place, token in enumerate(drafted[: first + length - 1]):",
        "for place, token in enumerate(drafted[:0]):",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "penalties see a drafted token at its own position",
        "history.py",
        "counts[max(place + 1 - first, 0) :, token] += 1",
        "counts[max(place - first, 0) :, token] += 1",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "emitted tokens are counted twice",
        "history.py",
        "self.emitted += len(ids)\n",
        "self.emitted += len(ids)\n        ids = [*ids, *ids]\n",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "min_tokens forgets the position in the block",
        "history.py",
        "self.emitted + first + t < sampling.min_tokens",
        "self.emitted < sampling.min_tokens",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "the temperature is applied to the first position only",
        "sampling.py",
        "scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / heat",
        "scaled = scaled.clone()\n    scaled[:, :1] /= heat",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "top-k is the batch's largest",
        "sampling.py",
        "max(k, 1) - 1 for k in ks",
        "max(ks) - 1 for k in ks",
        SAMPLING,
    ),
    Fault(
        "top-p drops the token that reaches the mass",
        "sampling.py",
        "count = (before < mass).sum(dim=-1, keepdim=True).clamp(min=1)",
        "count = (ordered.cumsum(dim=-1) < mass).sum(dim=-1, keepdim=True).clamp(min=1)",
        SAMPLING,
    ),
    Fault(
        "draws are keyed by position alone",
        "streams.py",
        "self._digest(committed, position, purpose)",
        "self._digest(position, purpose)",
        (*STREAMS, *LAWS),
    ),
    Fault(
        "two choices draw alike",
        "streams.py",
        "(self.seed, self.choice, *place)",
        "(self.seed, *place)",
        STREAMS,
    ),
    Fault(
        "the noise is the same at every position",
        "streams.py",
        'self._digest(position, "exponential")',
        'self._digest("exponential")',
        (*STREAMS, *LAWS),
    ),
    Fault(
        "a drafted token's law is not the one it was drawn from",
        "draws.py",
        "self._laws.append(free)",
        "self._laws.append(free.flip(-1))",
        DRAFTERS,
    ),
    Fault(
        "a rejected token stays in the draft's cache",
        "model_drafter.py",
        "            if committed != drafted:\n                break\n",
        "",
        MODEL,
    ),
    Fault(
        "the draft does not catch up when all was accepted",
        "model_drafter.py",
        "drafted[: steps - 1])",
        "drafted[:steps])",
        MODEL,
    ),
    Fault(
        "the seconds of a look in vain are lost",
        "lengths.py",
        "draft_seconds=drafted.seconds[name] if asked else 0.0",
        "draft_seconds=drafted.seconds[name] if any(lens) else 0.0",
        ("test_lengths.py",),
    ),
    Fault(
        "two drafters of one round are each told the seconds of both",
        "lengths.py",
        "draft_seconds=drafted.seconds[name] if asked else 0.0",
        "draft_seconds=sum(drafted.seconds.values()) if asked else 0.0",
        ("test_lengths.py",),
    ),
    Fault(
        "top-p is applied to the first position only",
        "sampling.py",
        "probs[nucleus] = _nucleus(probs[nucleus], mass)",
        "probs[nucleus, :1] = _nucleus(probs[nucleus, :1], mass)",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "bias, bans and what is allowed are left out where a draft was",
        "history.py",
        "logits = logits + these(self._added)",
        "logits = torch.cat([logits[:1] + these(self._added), logits[1:]])",
        (*SAMPLING, *LAWS),
    ),
    Fault(
        "ids that name no token can be emitted",
        "forward.py",
        "if self._token_count < logits.shape[-1]:",
        "if self._token_count < 0:",
        ENGINE,
    ),
    Fault(
        "a prompt's beginning is taken from another adapter's",
        "prefixes.py",
        "key = (kind, parent, tuple(tokens[place * BLOCK : (place + 1) * BLOCK]))",
        "key = (None, parent, tuple(tokens[place * BLOCK : (place + 1) * BLOCK]))",
        ("test_prefixes.py",),
    ),
    Fault(
        "a prompt's beginning is found without what stood before it",
        "prefixes.py",
        "            parent = block.number\n        return found",
        "        return found",
        ("test_prefixes.py",),
    ),
)
