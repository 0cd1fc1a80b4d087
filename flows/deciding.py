"""A question about a pair that a person answers: what is asked, which answers fit, and whether it
is answered already. The pausing is `flows/approve.py`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configuration.settings import Settings
from flows.line import work_folder
from flows.runs import cancel, paused
from flows.steps import finished
from registry.leaving import LEFT

if TYPE_CHECKING:
    from registry.store import PairVersion, Store


def answered(registry: Store, pairing: str, pair: PairVersion | None) -> str:
    """Why nobody needs to decide about the pair any more; empty while somebody does."""
    if pair is None:
        return "the pair is no longer registered"
    champion = registry.champion(pairing)
    name = f"v{pair.version}"
    if champion is not None and champion.version == pair.version:
        return f"{name} is champion"
    if LEFT in pair.tags:
        return f"{name} was left by a person: {pair.tags[LEFT]}"
    if pair.rolled_back:
        return f"{name} was rolled back: {pair.rolled_back}"
    newest = max(registry.releases(pairing), key=lambda one: one.version, default=None)
    pinned = registry.pinned(pairing)
    wanted = {one.digest for one in (newest, pinned) if one is not None}
    if wanted and pair.release not in wanted:
        return f"{name} is of a release that another one came after"
    return ""


def close_answered(registry: Store, found: Settings) -> list[str]:
    """End the questions that are answered elsewhere, by `paceline promote` or a newer release;
    why, each. Raises RegistryError."""
    closed = []
    for run in paused("approve"):
        pairing, version = run.parameters["pairing"], run.parameters["version"]
        if pairing not in found.pairings:
            continue
        why = answered(registry, pairing, registry.pair(pairing, version))
        if why:
            cancel(run, why)
            closed.append(f"{pairing}: {why}")
    return closed


def unfit(promote: Any, reason: Any, pair: PairVersion) -> str:
    """What is wrong with an answer; empty for one that can be acted on."""
    if not isinstance(promote, bool) or not isinstance(reason, str):
        return "wanted promote to be true or false, and reason to be words"
    if promote and not pair.passed and not reason.strip():
        return f"v{pair.version} has the verdict {pair.verdict}: promoting it needs a reason"
    return ""


def question(settings: Settings, pairing: str, pair: PairVersion, why: str, refused: str) -> str:
    """What the person reads, as Markdown: what to decide, and the report's page."""
    told = [
        f"**{pairing}**: {why}.",
        f"Resume this run with `promote` set to make v{pair.version} the champion, or without it "
        "to leave it as it is. Without a PASS a `reason` is needed, and is kept with the pair. "
        f"The same by command: `paceline promote {pair.version} --pairing {pairing}`.",
    ]
    if refused:
        told.insert(0, f"**The last answer could not be acted on: {refused}.**")
    return "\n\n".join([*told, _page(settings, pairing, pair)])


def _page(settings: Settings, pairing: str, pair: PairVersion) -> str:
    """The verdict's page where it was made in this home, or else where to find it."""
    folder = work_folder(settings.home, pairing, pair.release)
    for work in (folder, *sorted(folder.glob("*/"))):
        if (finished(work, "register") or {}).get("version") == pair.version:
            judged = finished(work, "gate")
            if judged is not None:
                return str(judged["page"])
    return f"Its report is on the page of v{pair.version} of `{pairing}` in MLflow."
