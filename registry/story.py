"""What the pages of a pair, a pairing and a release say; MLflow shows them beside its own tables.

Pure text from records. Pictures are shown from the pair's run: MLflow's pages serve them by an
address relative to themselves, so they follow the server wherever it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from registry.fingerprint import PARTS, Release
from registry.manifest import PairManifest
from registry.markdown import amount, figure, flat, plain, table
from registry.versions import CHAMPION, SHOWN_METRICS, PairVersion, ReleaseVersion, target_name
from speculation.records import Finding, Verdict

LIMIT = 90_000  # characters; MLflow refuses descriptions above 100,000
PAIRS_LISTED = 200
PICTURES_SHOWN = 6
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


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The pictures and reports that lie on a pair's run in MLflow."""

    experiment: str
    run_id: str
    names: tuple[str, ...]  # e.g. "report/report.html"

    def shown(self) -> list[str]:
        """Markdown: the pictures, then links to everything."""
        pictures = [name for name in self.names if name.endswith(".png")][:PICTURES_SHOWN]
        images = [
            f"![{name}](get-artifact?{urlencode({'path': name, 'run_uuid': self.run_id})})"
            for name in pictures
        ]
        run = f"#/experiments/{self.experiment}/runs/{self.run_id}/artifacts"
        links = " · ".join(f"[{plain(name)}]({run}/{name})" for name in self.names)
        return [*images, links] if self.names else []


def pair_story(
    manifest: PairManifest,
    *,
    why: str,  # Markdown
    verdict: Verdict | None,
    rows: Sequence[Mapping[str, Any]],  # of the report's table, see COLUMNS
    release: ReleaseVersion,
    incumbent: PairVersion | None,
    files: RunFiles,
) -> str:
    """The page of one pair: the verdict in a sentence, why it was made, what it is, how it did."""
    facts = [[f"**{name}**", said] for name, said in _facts(manifest, release, incumbent) if said]
    parts = [plain(verdict.headline) if verdict else "Not judged.", why.strip()]
    parts += [table(["", ""], facts)]
    if rows:
        columns = [column for column in COLUMNS if any(column in row for row in rows)]
        body = [[figure(row.get(column)) for column in columns] for row in rows]
        parts += ["**Measured**", table([COLUMNS[column] for column in columns], body)]
    if verdict and verdict.findings:
        head = ["rule", "verdict", "finding", "threshold", "estimate"]
        parts += ["**What the gate found**", table(head, [_found(f) for f in verdict.findings])]
    parts += files.shown()
    return "\n\n".join(part for part in parts if part)[:LIMIT]


def pairing_story(pairing: str, pairs: Sequence[PairVersion]) -> str:
    """The page of a pairing: who is champion, and every pair with what became of it."""
    champion = next((pair for pair in pairs if CHAMPION in pair.aliases), None)
    if champion is None:
        heading = "**No champion yet.** Servers decode without a draft until one is promoted."
    else:
        heading = (
            f"**Champion: {version_link(champion)}**, draft `{champion.draft_kind}` on release "
            f"`{champion.release[:12]}`."
        )
    figures = [name.replace("_", " ") for name in SHOWN_METRICS]
    head = ["version", "alias", "verdict", "draft", "release", *figures, "promoted", "note"]
    return "\n\n".join(
        [
            heading,
            f"Each version of `{pairing}` is a pair: one draft bound to the exact release of "
            f"[{target_name(pairing)}](#/models/{target_name(pairing)}) it was measured on.",
            table(head, [_listed(pair) for pair in pairs[:PAIRS_LISTED]]),
        ]
    )[:LIMIT]


def release_story(uri: str, release: Release) -> str:
    """The page of a release: what it is, and the digest of each part."""
    digests = [(part, getattr(release, part)) for part in PARTS]
    body = [[part.replace("_", " "), f"`{digest}`"] for part, digest in digests if digest]
    return "\n\n".join(
        [
            f"{_target_in_words(release)}, context {release.context_configured:,} tokens. "
            f"Lives in `{uri}`; nothing of it is copied here.",
            table(["part", "sha256"], [["**release**", f"`{release.digest}`"], *body]),
        ]
    )[:LIMIT]


def draft_in_words(manifest: PairManifest) -> str:
    """What the draft is, in a phrase."""
    draft, whole = manifest.draft, manifest.release.parameters
    if draft.kind == "none":
        return "none: plain decoding"
    if draft.kind == "ngram":
        return "ngram: retrieval from the context, no weights"
    share = f" ({draft.parameters / whole:.3f} of the target)" if whole else ""
    return (
        f"{draft.kind} `{draft.digest[:12]}`, {plain(draft.architecture)}, "
        f"{amount(draft.parameters)} parameters{share}, {draft.quantization or draft.dtype}"
    )


def version_link(pair: PairVersion) -> str:
    """A link that MLflow's pages follow."""
    return f"[v{pair.version}](#/models/{pair.pairing}/versions/{pair.version})"


def _facts(
    manifest: PairManifest, release: ReleaseVersion, incumbent: PairVersion | None
) -> list[tuple[str, str]]:
    making, target = manifest.making, manifest.release
    model = target_name(release.pairing)
    of_release = f"[{model} v{release.version}](#/models/{model}/versions/{release.version})"
    recipe = ", ".join(f"{key} {value}" for key, value in flat(making.recipe).items())
    trained, validated = len(making.prompts_train), len(making.prompts_validation)
    return [
        ("pair", f"`{manifest.pair_id}`"),
        ("draft", draft_in_words(manifest)),
        ("release", f"{of_release}, `{target.digest[:12]}`, {_target_in_words(target)}"),
        (
            "context",
            f"judged to {manifest.context_measured:,} of {target.context_configured:,} tokens",
        ),
        ("incumbent", "none" if incumbent is None else version_link(incumbent)),
        ("warm start", f"`{making.parent}`" if making.parent else ""),
        ("recipe", plain(recipe)),
        ("prompts", f"{trained:,} to train, {validated:,} to validate" if trained else ""),
        ("engine", plain(f"{manifest.engine} {manifest.engine_version}")),
        ("made by", plain(f"paceline {making.code_version}") if making.code_version else ""),
    ]


def _target_in_words(release: Release) -> str:
    return (
        f"{plain(release.architecture)}, {amount(release.parameters)} parameters, "
        f"{release.quantization or release.dtype}"
    )


def _found(finding: Finding) -> list[str]:
    interval = finding.interval
    estimate = (
        f"{interval.estimate:.3f}, {interval.low:.3f} to {interval.high:.3f}, n {interval.n}"
        if interval
        else ""
    )
    statement = [plain(finding.rule), finding.phase.value, plain(finding.statement)]
    return [*statement, figure(finding.threshold), estimate]


def _listed(pair: PairVersion) -> list[str]:
    note = f"forced: {plain(pair.forced)}" if pair.forced else ""
    return [
        version_link(pair),
        ", ".join(f"`{alias}`" for alias in pair.aliases),
        plain(pair.verdict),
        plain(pair.draft_kind),
        f"`{pair.release[:12]}`",
        *(figure(pair.figure(name)) for name in SHOWN_METRICS),
        pair.promoted[:16].replace("T", " "),
        f"rolled back: {plain(pair.rolled_back)}" if pair.rolled_back else note,
    ]
