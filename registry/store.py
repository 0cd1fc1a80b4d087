"""The store of releases and pairs, kept in MLflow: the only door to it.

A pairing is two registered models: `<pairing>.target`, whose versions are releases (external: the
weights stay where they are), and `<pairing>`, whose versions are pairs. A version is the last thing
that registering writes, complete with its tags, so whoever is killed before leaves nothing that
anyone can see as a pair, and the same call goes on with what was already uploaded. Knows records
and folders; decides nothing about drafts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry import asking, journal, upload
from registry.door import open_client, speaking
from registry.errors import ForeignModelError, ForeignVersionError, StoreError
from registry.fingerprint import Release, holds
from registry.journal import journal_name
from registry.locks import lock_folder, locked
from registry.manifest import PairManifest
from registry.oddities import FOREIGN_MODEL, oddities
from registry.pictures import draw_lineage, lineage_markdown
from registry.rows import pair_of, release_of
from registry.stored_files import stored_manifest
from registry.story import RELEASES, Relatives, pairing_story, release_story
from registry.versions import (
    CANDIDATE,
    CHAMPION,
    OURS,
    PAIR_ID,
    PINNED,
    PREVIOUS,
    RELEASE,
    REPORT,
    SOURCE,
    URI,
    PairingState,
    check_name,
    target_name,
)
from registry.versions import PairVersion as PairVersion  # callers know it as the store's
from registry.versions import ReleaseVersion as ReleaseVersion
from speculation.records import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

SOURCE_FORM = re.compile(r"models:/(?P<name>[^/:]+)/(?P<version>[1-9][0-9]{0,8})")
ASKABLE = re.compile(r"[A-Za-z0-9-]+")  # what a filter may hold of whoever asks
LISTED = 50  # of a pairing's newest pairs: on its page, and in `paceline status`


class Store:
    """The registry at `url`: an MLflow server, or `sqlite:///file` without one (for tests).

    Connects when first asked. Every method raises `StoreError` when MLflow is away or refuses, and
    `ValueError` for a pairing's name that cannot be one.
    """

    def __init__(self, url: str, *, locks: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._locks = locks or lock_folder(self.url)
        self._opened: MlflowClient | None = None

    @property
    def client(self) -> MlflowClient:
        """MLflow's client, for the registry's own modules."""
        if self._opened is None:
            self._opened = open_client(self.url)
        return self._opened

    @contextmanager
    def writing(self, pairing: str) -> Iterator[None]:
        """Be the only writer of the pairing on this host (see `locks`)."""
        assert self.client is not None  # a mistyped address is told before a lock makes its folder
        with locked(self._locks / f"{check_name(pairing)}.lock"):
            yield

    def register_release(
        self, pairing: str, folder: Path, release: Release, *, source: str = ""
    ) -> ReleaseVersion:
        """Make the target in `folder` known as a release of the pairing. Idempotent by digest.

        `source` is models:/name/version where the folder was downloaded from that version of this
        MLflow: the release's page then links it. ValueError where there is no such version.
        """
        if source:
            self._check_source(source)
        uri = self._place(pairing, str(folder), release)
        with self.writing(pairing):
            return self._register_release(pairing, uri, release, source)

    def register_pair(
        self,
        pairing: str,
        manifest: PairManifest,
        files: Path,
        *,
        report: Mapping[str, Any],
        verdict: Verdict | None,
        description: str = "",
        metrics: Mapping[str, float] | None = None,
        judged_against: int | None = None,
    ) -> PairVersion:
        """Store a judged pair as a new version of the pairing.

        `files` holds what belongs to it: `draft/` (not for ngram and none), `report/`, `training/`;
        its pair.json is written here. `report` is the JSON of report/report.json, whose `rows`
        become the table of the version's page and whose `incomplete` a tag; `description` says in
        Markdown why the pair was made; `metrics` are logged, and those named in SHOWN_METRICS
        become tags; `judged_against` is the version that was champion when it was judged, 0 where
        none was.

        Idempotent by pair and report: the same pair with the same report is the version that
        exists; measured again, it is a new version. `IncompatibleError` when the draft in `files`
        is not the manifest's, or cannot draft for the target at the manifest's `release_uri`; where
        that is no folder of this host nobody can tell, and the version's page says so.
        """
        notes = upload.check(manifest, files)
        uri = self._place(pairing, manifest.release_uri, manifest.release)
        with self.writing(pairing):
            release = self._register_release(pairing, uri, manifest.release)
            found = self._judged_before(pairing, manifest)
            if found is None:
                material = upload.Material(
                    pairing=pairing,
                    manifest=manifest,
                    files=files,
                    rows=upload.rows_of(report),
                    verdict=verdict,
                    why=description,
                    metrics=dict(metrics or {}),
                    release=release,
                    relatives=self._relatives(pairing, manifest),
                    judged_against=judged_against,
                    ended_early=str(report.get("incomplete") or ""),
                    lineage=lineage_markdown(self, pairing),
                    notes=notes,
                )
                with speaking(self.url, f"registering {manifest.pair_id}"):
                    self.create_model(pairing)
                    number = upload.store_pair(self.client, self.url, material)
                found = self.pair(pairing, number)
            if found is None:
                raise StoreError(f"{pairing} v{number} was made and is gone: was it deleted?")
            with speaking(self.url, f"finishing {manifest.pair_id}"):
                upload.finish(self.client, found)
            pairs = self.describe_pairing(pairing)
        return next((pair for pair in pairs if pair.version == found.version), found)

    def releases(self, pairing: str) -> list[ReleaseVersion]:
        """The pairing's releases, oldest first."""
        versions = self.versions(target_name(check_name(pairing)))
        return sorted(
            (release_of(pairing, version) for version in versions if RELEASE in version.tags),
            key=lambda release: release.version,
        )

    def pairs(
        self, pairing: str, *, limit: int | None = None, having: Mapping[str, str] | None = None
    ) -> list[PairVersion]:
        """The pairing's pairs, newest first, with our aliases (and anyone's, where all are asked).

        With `limit`, those among the newest so many versions, by two queries however many there
        are; `having` asks MLflow for those with these tags. Versions that Paceline did not register
        (no tag of ours) are passed over.
        """
        if having and not all(ASKABLE.fullmatch(value) for value in having.values()):
            return []  # no digest and no pair_id, so no tag has it; and MLflow's filter has quotes
        aliases = self._aliases(pairing, whole=limit is None and not having)
        where = "".join(f" and tags.`{tag}` = '{value}'" for tag, value in (having or {}).items())
        pairs = [
            pair_of(pairing, version, aliases)
            for version in self.versions(pairing, where=where, limit=limit)
            if PAIR_ID in version.tags
        ]
        return sorted(pairs, key=lambda pair: -pair.version)

    def pair(self, pairing: str, which: str | int) -> PairVersion | None:
        """The pair of that alias or version number; None where there is none.

        `ForeignVersionError` where the alias was moved by hand to a version that is no pair.
        """
        version = (
            asking.version(self.client, self.url, check_name(pairing), which)
            if isinstance(which, int)
            else asking.aliased(self.client, self.url, check_name(pairing), which)
        )
        if version is None:
            return None
        if PAIR_ID not in version.tags:
            raise ForeignVersionError(
                f"{pairing} v{version.version} is no pair: it has no tag {PAIR_ID}. It was "
                "registered by hand: move or delete its aliases on MLflow's page, or leave it with "
                "`paceline rollback --to ngram`"
            )
        return pair_of(pairing, version, dict.fromkeys(version.aliases, int(version.version)))

    def alias(self, pairing: str, alias: str) -> int | None:
        """The version number that the alias names, a pair's or not."""
        version = asking.aliased(self.client, self.url, check_name(pairing), alias)
        return None if version is None else int(version.version)

    def champion(self, pairing: str) -> PairVersion | None:
        """The pair that the alias `champion` names."""
        return self.pair(pairing, CHAMPION)

    def pinned(self, pairing: str) -> ReleaseVersion | None:
        """The release that the pairing is pinned to (see `pinning`); None where it is to none."""
        version = asking.aliased(self.client, self.url, target_name(check_name(pairing)), PINNED)
        if version is None or RELEASE not in version.tags:
            return None
        return release_of(pairing, version)

    def manifest(self, pair: PairVersion) -> PairManifest:
        """The pair's pair.json. `NotFoundError` when its files are gone from MLflow."""
        return stored_manifest(self.client, self.url, pair)

    def describe(self, pairing: str, *, limit: int | None = LISTED) -> PairingState:
        """What is known of the pairing, for `paceline status`: its releases, the newest `limit`
        pairs (None: all) and those with an alias, and what is odd about it. With a limit, the
        queries do not grow with the pairing."""
        releases = tuple(reversed(self.releases(pairing)))
        newest = self.versions(check_name(pairing), limit=limit)
        aliases = self._aliases(pairing, whole=limit is None) if newest else {}
        seen = {int(version.version) for version in newest}
        for number in set(aliases.values()) - seen:
            if (version := asking.version(self.client, self.url, pairing, number)) is not None:
                newest.append(version)
        pairs = [
            pair_of(pairing, version, aliases) for version in newest if PAIR_ID in version.tags
        ]
        pairs.sort(key=lambda pair: -pair.version)
        foreign = [int(v.version) for v in newest if PAIR_ID not in v.tags]
        if foreign and not pairs and self._is_foreign(pairing):
            said = (f"{pairing} is {FOREIGN_MODEL}",)  # and how its aliases stand is not ours
            return PairingState(pairing, releases, (), said)
        pinned = self.pinned(pairing) if releases else None
        told = oddities(aliases, pairs, foreign, journal.read(self, pairing), releases, pinned)
        return PairingState(pairing, releases, tuple(pairs), tuple(told), pinned)

    def describe_pairing(self, pairing: str) -> list[PairVersion]:
        """Write the pairing's page in MLflow anew from what is stored; give its newest pairs."""
        state = self.describe(pairing)
        with speaking(self.url, f"describing {pairing}"):
            picture = draw_lineage(self, state)
            name = journal_name(pairing)
            kept = name if asking.registered_model(self.client, self.url, name) else ""
            story = pairing_story(
                pairing, state.pairs, lineage=picture, journal=kept, pinned=state.pinned
            )
            self.client.update_registered_model(pairing, story)
        return list(state.pairs)

    def create_model(self, name: str, *, kind: str = "pairing", description: str = "") -> None:
        """Have a registered model of ours with that name. `StoreError` for one of other people's:
        what they register in it would be taken for pairs, and ours for theirs."""
        from mlflow.exceptions import MlflowException

        model = asking.registered_model(self.client, self.url, name)
        with speaking(self.url, f"making the registered model {name}"):
            if model is None:
                try:
                    tags = {OURS: kind}
                    self.client.create_registered_model(name, tags, description or None)
                except MlflowException as error:
                    if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another host was quicker
                        raise
            elif OURS not in model.tags and all(
                PAIR_ID in version.tags or RELEASE in version.tags
                for version in self.versions(name, limit=1)
            ):  # made by hand for us, or by Paceline before it marked what it makes
                self.client.set_registered_model_tag(name, OURS, kind)
            elif OURS not in model.tags:
                raise ForeignModelError(f"{name} is {FOREIGN_MODEL}")

    def check_ours(self, pairing: str) -> None:
        """`ForeignModelError` where the name is another team's registered model: nothing in it is
        ours to move. Nothing is said where there is no such model."""
        model = asking.registered_model(self.client, self.url, check_name(pairing))
        if model is not None and OURS not in model.tags:
            newest = self.versions(pairing, limit=LISTED)
            if newest and all(PAIR_ID not in version.tags for version in newest):
                raise ForeignModelError(f"{pairing} is {FOREIGN_MODEL}")

    def _is_foreign(self, pairing: str) -> bool:
        try:
            self.check_ours(pairing)
        except ForeignModelError:
            return True
        return False

    def versions(
        self, name: str, *, where: str = "", limit: int | None = None
    ) -> list[ModelVersion]:
        """MLflow's versions of that registered model, newest first; empty where there is none."""
        return asking.versions(self.client, self.url, name, where=where, limit=limit)

    def _check_source(self, source: str) -> None:
        matched = SOURCE_FORM.fullmatch(source)
        found = matched and asking.version(
            self.client, self.url, matched["name"], int(matched["version"])
        )
        if not found:
            raise ValueError(
                f"source: got {source!r}, wanted models:/NAME/VERSION of a version at {self.url}"
            )

    def _relatives(self, pairing: str, manifest: PairManifest) -> Relatives:
        """The champion, and the pair that the draft started from: its newest version."""
        number, parent = self.alias(pairing, CHAMPION), manifest.making.parent
        try:
            incumbent = None if number is None else self.pair(pairing, number)
        except ForeignVersionError:  # told by `paceline status`, and no reason to register nothing
            incumbent = None
        parents = self.pairs(pairing, having={PAIR_ID: parent}) if parent else []
        return Relatives(incumbent, parents[0] if parents else None)

    def _place(self, pairing: str, uri: str, release: Release) -> str:
        """Where a release is to be registered that was seen at `uri`: where it is registered, for
        as long as that place holds it, since servers are pointed there. It may take minutes to read
        that place, so this is asked before anybody has to wait for us."""
        found = next((r for r in self.releases(pairing) if r.digest == release.digest), None)
        if found is None or found.uri in ("", uri):
            return uri
        return found.uri if holds(Path(found.uri), found.digest) else uri

    def _register_release(
        self, pairing: str, uri: str, release: Release, source: str = ""
    ) -> ReleaseVersion:
        name = target_name(pairing)
        found = next((r for r in self.releases(pairing) if r.digest == release.digest), None)
        if found is None:
            with speaking(self.url, f"registering release {release.digest[:12]} of {pairing}"):
                about = RELEASES.format(pairing=pairing)
                self.create_model(name, description=about)
                made = upload.store_release(self.client, self.url, pairing, uri, release, source)
            return release_of(pairing, made)
        if found.uri != uri:
            with speaking(self.url, f"moving release {release.digest[:12]} of {pairing}"):
                self.client.set_model_version_tag(name, str(found.version), URI, uri)
        if source and found.source != source:
            with speaking(self.url, f"noting where release {release.digest[:12]} is from"):
                number, page = str(found.version), release_story(uri, release, source)
                self.client.set_model_version_tag(name, number, SOURCE, source)
                self.client.update_model_version(name, number, page)
        return replace(found, uri=uri, source=source or found.source)

    def _judged_before(self, pairing: str, manifest: PairManifest) -> PairVersion | None:
        for pair in self.pairs(pairing, having={PAIR_ID: manifest.pair_id}):
            if pair.tags.get(REPORT, "") == manifest.report:
                return pair
        return None

    def _aliases(self, pairing: str, *, whole: bool) -> dict[str, int]:
        """Version numbers by alias: ours, or the `whole` of them, for which MLflow reads every
        version there is."""
        if whole:
            model = asking.registered_model(self.client, self.url, check_name(pairing))
            found = {} if model is None else model.aliases
            return {alias: int(number) for alias, number in found.items()}
        named = {alias: self.alias(pairing, alias) for alias in (CHAMPION, CANDIDATE, PREVIOUS)}
        return {alias: number for alias, number in named.items() if number is not None}
