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
GUARD = ("test_guard.py",)
JUDGING = ("test_judging.py",)
HALF = ("test_half_drafts.py",)
MIXED = ("test_everything_at_once.py",)

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
        "*([] if token is None else [token])]",
        "*([] if token is None else [token])][: max(1, len(drafts[row].ids))]",
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
        "judged = min(accepted + 1, drafted)",
        "judged = accepted + 1",
        ENGINE,
    ),
    Fault(
        "tokens behind the end are drafted",
        "sequence.py",
        "            drafted = min(drafted, kept)\n",
        "            drafted = min(drafted, kept) and drafted\n",
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
        "tokens that a draft drew are taken back when a later step is not finite",
        "draws.py",
        "row[: min(ask.length, fine)]",
        "row[: ask.length if fine == steps else 0]",
        HALF,
    ),
    Fault(
        "tokens that a draft drew are taken back when a later step raises",
        "draws.py",
        "self._fault = named(error)",
        "raise",
        HALF,
    ),
    Fault(
        "tokens before a row's first wrong law are dropped with it",
        "guard.py",
        "ids[wrong.row] = ids[wrong.row][: wrong.sound]",
        "ids[wrong.row] = []",
        GUARD,
    ),
    Fault(
        "a token that its own law cannot give is believed",
        "guard.py",
        "if drawn <= 0:",
        "if drawn < 0:",
        GUARD,
    ),
    Fault(
        "a row that met a fault is asked again",
        "guard.py",
        "            self._plain.add(row)\n            self.breaker.release(row)",
        "            self.breaker.release(row)",
        GUARD,
    ),
    Fault(
        "every draft's law is forgotten",
        "judging.py",
        "if draft.law is not None:",
        "if False:",
        MODEL,
    ),
    Fault(
        "the laws of all rows but the first are forgotten",
        "judging.py",
        "if draft.law is not None:",
        "if draft.law is not None and row == 0:",
        MODEL,
    ),
    Fault(
        "the draft meets the noise of the first choice",
        "drafting.py",
        "sequence.key.choice,",
        "0,",
        MODEL,
    ),
    Fault(
        "the target's logits grow by a tenth where a draft was",
        "judging.py",
        "    chosen = logits.max(dim=-1).indices\n",
        "    logits = torch.cat([logits[:, :1], logits[:, 1:] * 1.1], dim=1)\n"
        "    chosen = logits.max(dim=-1).indices\n",
        JUDGING,
    ),
    Fault(
        "what cannot be judged saves what was drafted before it",
        "judging.py",
        "drafts = [draft.upto(place) for draft, place in zip(drafts, sound, strict=True)]",
        "drafts = list(drafts)",
        JUDGING,
    ),
    Fault(
        "numbers of which a request's own wishes leave nothing are drawn from",
        "judging.py",
        "        sound &= torch.isfinite(wanted.amax(dim=-1))\n",
        "        pass\n",
        JUDGING,
    ),
    Fault(
        "equally likely tokens are named in any order",
        "commit.py",
        "return ids[order[:top]]",
        "return ids[order.flip(0)[:top]]",
        JUDGING,
    ),
    Fault(
        "log-probabilities go on behind the end",
        "commit.py",
        "token_logprobs(logits[: len(kept)], kept, asked)",
        "token_logprobs(logits, [*kept, *[0] * (len(logits) - len(kept))], asked)",
        ENGINE,
    ),
    Fault(
        "a round without a number is no forward",
        "commit.py",
        "    sequence.count_round(",
        "    if not failed:\n        sequence.count_round(",
        ENGINE,
    ),
    Fault(
        "a drafter is handed the request's own past",
        "drafting.py",
        "sequence.past.copied()",
        "sequence.past",
        HALF,
    ),
    Fault(
        "the row whose prompt is being read stays where it was",
        "rows.py",
        "self._move(self.reading, self.next + 1, self.next, self.reading.prefilled)",
        "pass",
        MIXED,
    ),
    Fault(
        "a row whose prompt is being read moves without its draft",
        "rows.py",
        "        self._drafting.move(sequence, source, row)",
        "        if sequence in self.running:\n"
        "            self._drafting.move(sequence, source, row)",
        (*MIXED, *DRAFTERS),
    ),
    Fault(
        "a window sees one position too many",
        "cache.py",
        "> self._positions[:, :, None] - window",
        ">= self._positions[:, :, None] - window",
        ("test_architectures.py",),
    ),
    Fault(
        "another prompt's beginning comes with states that are shifted",
        "prompts.py",
        "states[start:end].clone()",
        "states[: end - start].clone()",
        ("test_prefix_reuse.py",),
    ),
    Fault(
        "a head's row that moves loses its last state",
        "head_drafter.py",
        "self.cache.move(source, row, known.start - known.origin)",
        "self.cache.move(source, row, known.start - known.origin - 1)",
        DRAFTERS,
    ),
    Fault(
        "a head reads a state beside the token at its position",
        "head_drafter.py",
        "ask.context[row.start + 1 : row.start + 1 + len(state)]",
        "ask.context[row.start : row.start + len(state)]",
        DRAFTERS,
    ),
    Fault(
        "a head's row of NaN leaves it in the cache",
        "head_drafter.py",
        "            stored[row] = 0",
        "            pass",
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
