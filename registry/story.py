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
from registry.versions import (
    CHAMPION,
    PREVIOUS,
    SHOWN_METRICS,
    PairVersion,
    ReleaseVersion,
    target_name,
)
from speculation.records import Finding, Verdict

# Characters of a description: what MLflow's PostgreSQL and MySQL columns hold, and SQLite's would
# not mind. The whole page of a pair is a file of its run.
LIMIT = 5_000
STANDING_LIMIT = 500  # of them, for what became of a pair
WHY_LIMIT = 900
RECIPE_LIMIT = 400
FIT_LIMIT = 400
RELEASES = (  # the page of a pairing's releases
    "The releases of the target of [{pairing}](#/models/{pairing}), one a version: what each is, "
    "by digest, and where its weights live; nothing of them is copied here. The alias `pinned`, "
    "where there is one, says which users stay on."
)
NOTE_LIMIT = 100  # of a line of the list of pairs
PAGE_FILE = "story.md"
PICTURES_SHOWN = 6
FIRST = ("acceptance", "slices", "speed")  # stems of the most telling pictures
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
    curves: str = ""  # the run that has the curves of a draft that was kept; empty where it is this

    def shown(self) -> list[str]:
        """Markdown: the pictures, then links to everything."""
        drawn = [name for name in self.names if name.endswith(".png")]
        pictures = sorted(drawn, key=_telling)[:PICTURES_SHOWN]
        images = [
            f"![{name}](get-artifact?{urlencode({'path': name, 'run_uuid': self.run_id})})"
            for name in pictures
        ]
        run = f"#/experiments/{self.experiment}/runs/{self.run_id}/artifacts"
        rest = [name for name in self.names if name not in pictures]
        links = " · ".join(f"[{plain(name)}]({run}/{name})" for name in rest)
        return [*images, *filter(None, [links])]


def _telling(name: str) -> int:
    """Where a picture stands on the page: acceptance by position and by slice, then speed."""
    stem = name.rsplit("/", 1)[-1].removesuffix(".png")
    return FIRST.index(stem) if stem in FIRST else len(FIRST)


@dataclass(frozen=True, slots=True)
class Relatives:
    """The pairs that a new one is told in relation to, as far as they are registered."""

    incumbent: PairVersion | None = None  # champion when it was registered
    parent: PairVersion | None = None  # whose draft its own started from


def pair_story(
    manifest: PairManifest,
    *,
    why: str,  # Markdown
    verdict: Verdict | None,
    rows: Sequence[Mapping[str, Any]],  # of the report's table, see COLUMNS
    release: ReleaseVersion,
    relatives: Relatives,
    files: RunFiles,
    notes: Sequence[str] = (),  # of how the draft fits the target
) -> list[str]:
    """The page of one pair, in parts, the most telling first: the verdict in a sentence, why it was
    made, what it is, pictures, how it did, what the gate found."""
    told = [
        *_facts(manifest, release, relatives),
        ("fit", _cut(plain("; ".join(notes)), FIT_LIMIT)),
    ]
    if files.curves:
        run = f"#/experiments/{files.experiment}/runs/{files.curves}"
        told.append(("curves", f"none of its own: [of the run that trained its draft]({run})"))
    facts = [[f"**{name}**", said] for name, said in told if said]
    parts = [plain(verdict.headline) if verdict else "Not judged.", _cut(why.strip(), WHY_LIMIT)]
    parts += [table(["", ""], facts), *files.shown()]
    if rows:
        columns = [column for column in COLUMNS if any(column in row for row in rows)]
        body = [[figure(row.get(column)) for column in columns] for row in rows]
        parts += ["**Measured**\n\n" + table([COLUMNS[column] for column in columns], body)]
    if verdict and verdict.findings:
        head = ["rule", "verdict", "finding", "threshold", "estimate"]
        found = table(head, [_found(f) for f in verdict.findings])
        parts += ["**What the gate found**\n\n" + found]
    return [part for part in parts if part]


def fitting(parts: Sequence[str], limit: int, *, more: str) -> str:
    """As many whole parts as `limit` characters hold; where some are left out, `more` says where
    they are. A part that is too long does not keep out a shorter one after it."""
    whole = "\n\n".join(parts)
    if len(whole) <= limit:
        return whole
    kept: list[str] = []
    for part in parts:
        if len("\n\n".join([*kept, part, more])) <= limit:
            kept.append(part)
    return "\n\n".join([*kept, more])


def with_standing(page: str, pair: PairVersion) -> str:
    """The pair's page, begun with what became of it: the only part that changes later."""
    first, _, rest = page.partition("\n\n")
    body = rest if first.startswith("> ") else page
    said = _cut(_standing(pair), STANDING_LIMIT - 4)
    return (f"> {said}\n\n{body}" if said else body)[:LIMIT]


def _standing(pair: PairVersion) -> str:
    since = pair.promoted[:16].replace("T", " ")
    place = f", in place of {version_link(pair, pair.replaced)}" if pair.replaced else ""
    why = ""
    if pair.forced:
        why = f" Forced: {plain(pair.forced)}."
    if pair.stands_in:
        why = f" It stands in until the release has a draft of its own: {plain(pair.stands_in)}."
    if CHAMPION in pair.aliases:
        return f"Champion since {since} UTC{place}.{why}"
    if pair.rolled_back:
        return f"Rolled back: {plain(pair.rolled_back)}. Champion from {since} UTC{place}."
    if PREVIOUS in pair.aliases:
        return f"Previous champion, from {since} UTC{place}: what a rollback goes back to."
    return f"Was champion from {since} UTC{place}." if since else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def pairing_story(
    pairing: str,
    pairs: Sequence[PairVersion],
    *,
    lineage: str = "",  # Markdown of the picture
    journal: str = "",  # the registered model that holds the journal, where there is one
    pinned: ReleaseVersion | None = None,
) -> str:
    """The page of a pairing: who is champion, where the pairs come from, and the newest of them
    with what became of each, as many as fit."""
    champion = next((pair for pair in pairs if CHAMPION in pair.aliases), None)
    if champion is None:
        heading = "**No champion yet.** Servers decode without a draft until one is promoted."
    else:
        heading = (
            f"**Champion: {version_link(champion)}**, draft `{champion.draft_kind}` on release "
            f"`{champion.release[:12]}`."
        )
    figures = [name.replace("_", " ") for name in SHOWN_METRICS]
    # The note comes early: MLflow cuts a wide table off at the right.
    head = ["version", "alias", "verdict", "note", "draft", "release", *figures, "from", "promoted"]
    order = f" [{journal}](#/models/{journal}) holds the order of promotions." if journal else ""
    if pinned is not None:
        place = f"[release {pinned.version}](#/models/{target_name(pairing)}/versions/"
        why = f": {plain(_cut(pinned.pinned_why, NOTE_LIMIT))}" if pinned.pinned_why else ""
        heading += f" **Pinned to {place}{pinned.version})**, whatever is released{why}."
    parts = [
        heading,
        f"Each version of `{pairing}` is a pair: one draft bound to the exact release of "
        f"[{target_name(pairing)}](#/models/{target_name(pairing)}) it was measured on.{order}",
        *filter(None, [lineage]),
    ]
    numbers = {pair.pair_id: pair for pair in reversed(pairs)}  # the oldest of one pair's versions
    body = [_listed(pair, numbers.get(pair.parent)) for pair in pairs]
    left = LIMIT - len("\n\n".join(parts)) - 100
    while body and len(table(head, body)) > left:
        body.pop()
    if len(body) < len(pairs):
        parts.append(f"The newest {len(body)} of them; the list below has all.")
    return "\n\n".join([*parts, table(head, body)])


def release_story(uri: str, release: Release, source: str = "") -> str:
    """The page of a release: what it is, and the digest of each part."""
    digests = [(part, getattr(release, part)) for part in PARTS]
    body = [[part.replace("_", " "), f"`{digest}`"] for part, digest in digests if digest]
    place = f"Lives in `{uri}`; nothing of it is copied here."
    if source:
        place += f" It is {_source_link(source)} of this MLflow."
    return "\n\n".join(
        [
            f"{_target_in_words(release)}, context {release.context_configured:,} tokens. {place}",
            table(["part", "sha256"], [["**release**", f"`{release.digest}`"], *body]),
        ]
    )[:LIMIT]


def _source_link(source: str) -> str:
    name, version = source.removeprefix("models:/").rsplit("/", 1)
    return f"[{name} v{version}](#/models/{name}/versions/{version})"


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


def version_link(pair: PairVersion, version: int | None = None) -> str:
    """A link to the pair, or to another version of its pairing, that MLflow's pages follow."""
    number = pair.version if version is None else version
    return f"[v{number}](#/models/{pair.pairing}/versions/{number})"


def _facts(
    manifest: PairManifest, release: ReleaseVersion, relatives: Relatives
) -> list[tuple[str, str]]:
    making, target = manifest.making, manifest.release
    model = target_name(release.pairing)
    of_release = f"[{model} v{release.version}](#/models/{model}/versions/{release.version})"
    of_release += f", which is {_source_link(release.source)}" if release.source else ""
    recipe = ", ".join(f"{key} {value}" for key, value in flat(making.recipe).items())
    incumbent, warm = relatives.incumbent, relatives.parent
    parent = "" if warm is None else version_link(warm) + ", "
    parent = f"{parent}`{making.parent}`" if making.parent else ""
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
        ("warm start", parent),
        ("recipe", _cut(plain(recipe), RECIPE_LIMIT)),
        ("data", f"`{making.data[:12]}`" if making.data else ""),
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


def _listed(pair: PairVersion, parent: PairVersion | None) -> list[str]:
    note = f"forced: {pair.forced}" if pair.forced else ""
    if pair.rolled_back and CHAMPION not in pair.aliases:
        note = f"rolled back: {pair.rolled_back}"
    return [
        version_link(pair),
        ", ".join(f"`{alias}`" for alias in pair.aliases),
        plain(pair.verdict),
        plain(_cut(note, NOTE_LIMIT)),
        plain(pair.draft_kind),
        f"`{pair.release[:12]}`",
        *(figure(pair.figure(name)) for name in SHOWN_METRICS),
        "" if parent is None else version_link(parent),
        pair.promoted[:16].replace("T", " "),
    ]
