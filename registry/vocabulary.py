"""Whether a draft has its target's tokens: by content, with what ends a text, and by rows.

An output layer is often wider than the token table, padded to a round number. That is fine: rows
that name no token are masked on both sides. Fewer rows than tokens are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.answers import Compatibility
from registry.configs import generation_of
from registry.folders import config_of
from registry.tokens import chat_templates, special_tokens


def different_tokens(theirs: Mapping[int, str], ours: Mapping[int, str]) -> list[str]:
    """The first token of the target and the draft that differs, and how many do; empty: none."""
    differing = [i for i in sorted(theirs.keys() | ours.keys()) if ours.get(i) != theirs.get(i)]
    if not differing:
        return []
    first = differing[0]
    return [
        f"token {first} is {_shown(ours.get(first))} in the draft and {_shown(theirs.get(first))} "
        f"in the target; {len(differing)} tokens differ. A draft must share its target's tokens"
    ]


def different_special_tokens(target: Path, draft: Path) -> list[str]:
    """Roles that both name and fill with different tokens."""
    ours, theirs = special_tokens(draft), special_tokens(target)
    return [
        f"{role} is {ours[role]!r} in the draft and {theirs[role]!r} in the target"
        for role in sorted(ours.keys() & theirs.keys())
        if ours[role] != theirs[role]
    ]


def different_stops(target: Path, draft: Path) -> list[str]:
    """Ids that end a text, where both say which."""
    ours, theirs = (
        generation_of(folder, config_of(folder)).get("eos_token_id") for folder in (draft, target)
    )
    if None in (ours, theirs) or ours == theirs:
        return []
    return [f"the draft stops at the ids {ours}, the target at {theirs}"]


def different_templates(target: Path, draft: Path) -> list[str]:
    """Chat templates that both have and write differently: no reason, prompts are the target's."""
    ours, theirs = chat_templates(draft), chat_templates(target)
    if differing := [
        name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]
    ]:
        return [
            f"the chat template {differing[0]!r} differs: the draft reads prompts as the target's "
            "template writes them, which it may not have learnt"
        ]
    return []


def unnamed_rows(tokens: int, *, target_rows: int, draft_rows: int) -> Compatibility:
    """What is to be said of rows that name no token, and of tokens that have no row.

    `tokens` is how many ids the token table reaches over, the rows are those of the output layers.
    """
    reasons, notes = [], []
    for what, rows in (("target", target_rows), ("draft", draft_rows)):
        if rows < tokens:
            reasons.append(
                f"the {what} has {rows} rows of output for {tokens} tokens: token {rows} has none"
            )
    if not reasons and draft_rows != target_rows:
        notes.append(
            f"the draft's output has {draft_rows} rows, the target's {target_rows}: those from "
            f"{tokens} on name no token and are masked on both sides"
        )
    return Compatibility.of(reasons, notes)


def _shown(token: str | None) -> str:
    return "absent" if token is None else repr(token)
