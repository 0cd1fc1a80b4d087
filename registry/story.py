"""What a pair's page says, in GitHub Markdown: MLflow shows it on the version, the model, the run.

Pure text from records. Tables and links only: MLflow's pages render neither mermaid nor pictures
stored beside the text, so pictures are linked where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry.manifest import PairManifest
from registry.versions import SHOWN_METRICS, PairVersion, target_name
from speculation.records import Verdict

LIMIT = 90_000  # characters; MLflow refuses descriptions above 100,000
COLUMNS = {  # of a report's rows, in the words of the glossary
    "pair": "pair",
    "alpha_hat": "alpha-hat",
    "acceptance_length": "acceptance length",
    "forwards_per_request": "forwards per request",
    "tokens_per_second": "tokens/s",
    "plain_tokens_per_second": "plain tokens/s",
    "speedup": "speed-up",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match",
    "requests": "requests",
}


def pair_story(
    manifest: PairManifest,
    *,
    pairing: str,
    why: str,
    verdict: Verdict | None,
    rows: Sequence[Mapping[str, Any]],
    release_version: int,
    replaces: PairVersion | None,
    pictures: Mapping[str, str],  # name -> link
) -> str:
    """The page of one pair: the verdict in a sentence, what it is, what was measured, why."""
    release, making = manifest.release, manifest.making
    of_release = f"[{target_name(pairing)} v{release_version}]" + (
        f"(#/models/{target_name(pairing)}/versions/{release_version})"
    )
    facts = {
        "pair": f"`{manifest.pair_id}`",
        "draft": draft_in_words(manifest),
        "release": f"{of_release}, `{release.digest[:12]}`, {release.architecture}, "
        f"{_amount(release.parameters)} parameters, {release.quantization or release.dtype}",
        "context": f"judged to {manifest.context_measured:,} of "
        f"{release.context_configured:,} tokens",
        "replaces": "nothing: the first pair" if replaces is None else version_link(replaces),
        "warm start": f"`{making.parent}`" if making.parent else "",
        "recipe": ", ".join(f"{k} {v}" for k, v in flat(making.recipe).items()),
        "prompts": f"{len(making.prompts_train):,} for training, "
        f"{len(making.prompts_validation):,} for validation"
        if making.prompts_train
        else "",
        "engine": f"{manifest.engine} {manifest.engine_version}".strip(),
        "made by": making.code_version,
    }
    parts = [
        f"**{_line(verdict.sentence)}**" if verdict else "**Not judged.**",
        why.strip(),
        table(["", ""], [[f"**{name}**", said] for name, said in facts.items() if said]),
    ]
    if rows:
        columns = [column for column in COLUMNS if any(column in row for row in rows)]
        body = [[_figure(row.get(column)) for column in columns] for row in rows]
        parts += ["### Measured", table([COLUMNS[column] for column in columns], body)]
    if verdict and verdict.findings:
        body = [
            [f.rule, f.phase, f.statement, _figure(f.threshold), str(f.interval or "")]
            for f in verdict.findings
        ]
        head = ["rule", "verdict", "finding", "threshold", "estimate"]
        parts += ["### What the gate found", table(head, body)]
    if pictures:
        linked = " · ".join(f"[{name}]({link})" for name, link in pictures.items())
        parts += ["### Pictures and reports", linked]
    return "\n\n".join(part for part in parts if part)[:LIMIT]


def pairing_story(pairing: str, pairs: Sequence[PairVersion]) -> str:
    """The page of a pairing: who is champion, and every pair with what became of it."""
    champion = next((pair for pair in pairs if "champion" in pair.aliases), None)
    if champion is None:
        heading = "**No champion yet.** Servers decode without a draft until one is promoted."
    else:
        heading = (
            f"**Champion: {version_link(champion)}**, a `{champion.draft_kind}` draft on release "
            f"`{champion.release[:12]}`."
        )
    head = ["version", "alias", "verdict", "draft", "release", *SHOWN_METRICS, "promoted", "note"]
    body = [
        [
            version_link(pair),
            ", ".join(f"`{alias}`" for alias in pair.aliases),
            pair.verdict,
            pair.draft_kind,
            f"`{pair.release[:12]}`",
            *(_figure(pair.figure(name)) for name in SHOWN_METRICS),
            pair.promoted[:16].replace("T", " "),
            f"rolled back: {pair.rolled_back}"
            if pair.rolled_back
            else (f"forced: {pair.forced}" if pair.forced else ""),
        ]
        for pair in pairs[:200]
    ]
    return "\n\n".join(
        [
            heading,
            f"Each version of `{pairing}` is a pair: one draft bound to the exact release of "
            f"[{target_name(pairing)}](#/models/{target_name(pairing)}) it was measured on.",
            table(head, body),
        ]
    )[:LIMIT]


def draft_in_words(manifest: PairManifest) -> str:
    """What the draft is, in a phrase."""
    draft = manifest.draft
    if draft.kind == "none":
        return "none: plain decoding"
    if draft.kind == "ngram":
        return "ngram: retrieval from the context, no weights"
    share = draft.parameters / manifest.release.parameters if manifest.release.parameters else 0.0
    return (
        f"{draft.kind} `{draft.digest[:12]}`, {draft.architecture}, {_amount(draft.parameters)} "
        f"parameters ({share:.3f} of the target), {draft.quantization or draft.dtype}"
    )


def version_link(pair: PairVersion) -> str:
    """A link that MLflow's pages follow."""
    return f"[v{pair.version}](#/models/{pair.pairing}/versions/{pair.version})"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what would end a cell early is escaped."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(_line(str(cell)) for cell in row) + " |" for row in rows)


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _line(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return "–" if value is None else str(value)


def _amount(count: int) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)
