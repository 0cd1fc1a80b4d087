"""What is odd about a pairing, in sentences for people: aliases moved and versions deleted by hand,
promotions that were interrupted. Pure; `docs/registry.md` says how to repair each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from registry.journal import Entry
from registry.versions import CHAMPION, PairVersion, ReleaseVersion

FOREIGN_MODEL = "a registered model that Paceline did not make: name another pairing"


def oddities(
    aliases: Mapping[str, int],
    pairs: Sequence[PairVersion],  # with at least those that carry an alias
    foreign: Sequence[int],  # versions among them that are no pairs
    journal: Sequence[Entry],  # the entries that count, oldest first
    releases: Sequence[ReleaseVersion],
    pinned: ReleaseVersion | None = None,
) -> Iterator[str]:
    """One sentence for each thing that is not as Paceline leaves it."""
    last = journal[-1] if journal else None
    number = aliases.get(CHAMPION)
    champion = next((pair for pair in pairs if pair.version == number), None)
    if last is not None and not last.finished:
        yield (
            f"the promotion of v{last.version} was interrupted, or is under way (entry "
            f"{last.number}, {last.by}): the next promotion or look of the watch flow ends it"
        )
    elif last is not None and number is None:
        yield (
            f"v{last.version} was champion, and no version carries the alias now: the version or "
            "the alias was deleted by hand. Servers go on with what they have; promote a pair"
        )
    elif last is not None and number != last.version and last.deleted:
        yield (
            f"v{last.version} was deleted while it was to become champion, and v{number} still "
            f"is: `paceline promote {number}` notes it"
        )
    elif last is not None and number != last.version:
        yield (
            f"the alias {CHAMPION} was moved by hand from v{last.version} to v{number}: "
            f"`paceline promote {number}` takes it over, `paceline promote {last.version}` undoes "
            "it"
        )
    if number is not None and number in foreign:
        yield f"v{number} carries the alias {CHAMPION} and is no pair: no server will serve it"
    leaving = last is not None and not last.finished and last.instead_of == number
    if champion is not None and champion.unfit and not leaving:
        since = " since" if champion.rolled_back else ""
        yield (
            f"the champion v{number} {champion.unfit} and was not forced{since}: servers do not "
            f"follow it. Promote another, or `paceline promote {number} --force REASON`"
        )
    known = {release.digest for release in releases}
    if champion is not None and releases and champion.release not in known:
        yield (
            f"the champion v{number} is bound to release {champion.release[:12]}, which is none of "
            "this pairing's: it was copied from another"
        )
    if champion is not None and pinned is not None and champion.release != pinned.digest:
        yield (
            f"the pairing is pinned to release {pinned.version}, and the champion v{number} is of "
            "another: promote a pair of that release, or lift the pin with `paceline pin --lift`"
        )
    if foreign:
        named = ", ".join(f"v{version}" for version in sorted(foreign))
        yield f"not registered by Paceline, and passed over: {named}"
