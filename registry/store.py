"""The store of releases and pairs, kept in MLflow: the only door to it.

A pairing is two registered models: `<pairing>.target`, whose versions are releases (external: the
weights stay where they are), and `<pairing>`, whose versions are pairs. A version is the last thing
that registering writes, complete with its tags, so whoever is killed before leaves nothing that
anyone can see as a pair, and the same call goes on with what was already uploaded. Knows records
and folders; decides nothing about drafts.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry import upload
from registry.door import check_answers, open_client, speaking
from registry.errors import NotFoundError, StoreError
from registry.fingerprint import Release
from registry.locks import lock_folder, locked
from registry.manifest import FILE, PairManifest, read_manifest
from registry.story import pairing_story
from registry.versions import (
    CHAMPION,
    DRAFT_KIND,
    PAIR_ID,
    RELEASE,
    REPORT,
    URI,
    VERDICT,
    PairingState,
    check_name,
    target_name,
)
from registry.versions import PairVersion as PairVersion  # callers know it as the store's
from registry.versions import ReleaseVersion as ReleaseVersion
from speculation.records import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

MODEL_ID = re.compile(r"m-[0-9a-f]{32}")
PAGE = 1000


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
        with locked(self._locks / f"{check_name(pairing)}.lock"):
            yield

    def register_release(self, pairing: str, folder: Path, release: Release) -> ReleaseVersion:
        """Make the target in `folder` known as a release of the pairing. Idempotent by digest."""
        with self.writing(pairing):
            return self._register_release(pairing, str(folder), release)

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
    ) -> PairVersion:
        """Store a judged pair as a new version of the pairing.

        `files` holds what belongs to it: `draft/` (not for ngram and none), `report/`, `training/`;
        its pair.json is written here. `report` is the JSON of report/report.json, whose `rows`
        become the table of the version's page; `description` says in Markdown why the pair was
        made; `metrics` are logged, and those named in SHOWN_METRICS become tags.

        Idempotent by pair and report: the same pair with the same report is the version that
        exists; measured again, it is a new version. `IncompatibleError` when the draft in `files`
        is not the manifest's, or cannot draft for the target at the manifest's `release_uri`.
        """
        upload.check(manifest, files)
        with self.writing(pairing):
            release = self._register_release(pairing, manifest.release_uri, manifest.release)
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
                    incumbent=self.pair(pairing, CHAMPION),
                )
                with speaking(self.url, f"registering {manifest.pair_id}"):
                    self._create_model(pairing)
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
        versions = self._versions(target_name(check_name(pairing)))
        return sorted(
            (_release(pairing, version) for version in versions if RELEASE in version.tags),
            key=lambda release: release.version,
        )

    def pairs(self, pairing: str) -> list[PairVersion]:
        """The pairing's pairs, newest first, aliases filled in.

        Versions that Paceline did not register (no tag of ours) are passed over.
        """
        model = self._model(check_name(pairing))
        if model is None:
            return []
        pairs = [
            _pair(pairing, version, model)
            for version in self._versions(pairing)
            if PAIR_ID in version.tags
        ]
        return sorted(pairs, key=lambda pair: -pair.version)

    def pair(self, pairing: str, which: str | int) -> PairVersion | None:
        """The pair of that alias or version number; None where there is none.

        `StoreError` where the alias was moved by hand to a version that is no pair.
        """
        model = self._model(check_name(pairing))
        if model is None:
            return None
        number = which if isinstance(which, int) else model.aliases.get(which)
        if number is None:
            return None
        return self._of_number(pairing, int(number), model)

    def champion(self, pairing: str) -> PairVersion | None:
        """The pair that the alias `champion` names."""
        return self.pair(pairing, CHAMPION)

    def manifest(self, pair: PairVersion) -> PairManifest:
        """The pair's pair.json. `NotFoundError` when its files are gone from MLflow."""
        name = f"{pair.pairing} v{pair.version}"
        with speaking(self.url, f"looking for the files of {name}"):
            place = self.client.get_logged_model(pair.model_id).artifact_location
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        with tempfile.TemporaryDirectory() as folder:
            try:
                download_artifacts(f"{place}/{FILE}", dst_path=folder, tracking_uri=self.url)
            except (MlflowException, OSError) as error:
                check_answers(self.url)
                raise NotFoundError(
                    f"{name}: MLflow has no {FILE} for it: {error}. Its files were deleted; "
                    "register the pair again"
                ) from error
            return read_manifest(Path(folder))

    def describe(self, pairing: str) -> PairingState:
        """All that is known of the pairing, for `paceline status`."""
        releases = tuple(reversed(self.releases(pairing)))
        return PairingState(pairing, releases, tuple(self.pairs(pairing)))

    def describe_pairing(self, pairing: str) -> list[PairVersion]:
        """Write the pairing's page in MLflow anew from what is stored; give the pairs."""
        pairs = self.pairs(pairing)
        with speaking(self.url, f"describing {pairing}"):
            self.client.update_registered_model(pairing, pairing_story(pairing, pairs))
        return pairs

    def _register_release(self, pairing: str, uri: str, release: Release) -> ReleaseVersion:
        name = target_name(pairing)
        found = next((r for r in self.releases(pairing) if r.digest == release.digest), None)
        if found is None:
            with speaking(self.url, f"registering release {release.digest[:12]} of {pairing}"):
                self._create_model(name)
                made = upload.store_release(self.client, self.url, pairing, uri, release)
            return _release(pairing, made)
        if found.uri != uri:  # the same release at another place: that is where it is now
            with speaking(self.url, f"moving release {release.digest[:12]} of {pairing}"):
                self.client.set_model_version_tag(name, str(found.version), URI, uri)
        return replace(found, uri=uri)

    def _judged_before(self, pairing: str, manifest: PairManifest) -> PairVersion | None:
        for pair in self.pairs(pairing):
            same = pair.pair_id == manifest.pair_id
            if same and pair.tags.get(REPORT, "") == manifest.report:
                return pair
        return None

    def _create_model(self, name: str) -> None:
        if self._model(name) is None:
            self.client.create_registered_model(name, tags={"paceline": "pairing"})

    def _model(self, name: str) -> RegisteredModel | None:
        client = self.client
        from mlflow.exceptions import MlflowException

        with speaking(self.url, f"looking for {name}"):
            try:
                return client.get_registered_model(name)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return None
                raise

    def _of_number(self, pairing: str, number: int, model: RegisteredModel) -> PairVersion | None:
        from mlflow.exceptions import MlflowException

        with speaking(self.url, f"reading {pairing} v{number}"):
            try:
                version = self.client.get_model_version(pairing, str(number))
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return None
                raise
        if PAIR_ID not in version.tags:
            raise StoreError(
                f"{pairing} v{number} is no pair: it has no tag {PAIR_ID}. It was registered by "
                "hand: move or delete its aliases on MLflow's page"
            )
        return _pair(pairing, version, model)

    def _versions(self, name: str) -> list[ModelVersion]:
        found: list[ModelVersion] = []
        token: str | None = None
        client = self.client
        with speaking(self.url, f"listing {name}"):
            while True:
                page = client.search_model_versions(
                    f"name='{name}'", max_results=PAGE, page_token=token
                )
                found += page
                token = page.token
                if not token:
                    return found


def _model_id(version: ModelVersion) -> str:
    matched = MODEL_ID.search(str(version.source))
    return matched.group() if matched else ""


def _release(pairing: str, version: ModelVersion) -> ReleaseVersion:
    return ReleaseVersion(
        pairing=pairing,
        version=int(version.version),
        digest=version.tags[RELEASE],
        uri=version.tags.get(URI, ""),
        model_id=_model_id(version),
        registered=version.creation_timestamp / 1000,
    )


def _pair(pairing: str, version: ModelVersion, model: RegisteredModel) -> PairVersion:
    number = str(version.version)
    return PairVersion(
        pairing=pairing,
        version=int(number),
        pair_id=version.tags[PAIR_ID],
        release=version.tags.get(RELEASE, ""),
        draft_kind=version.tags.get(DRAFT_KIND, ""),
        verdict=version.tags.get(VERDICT, ""),
        aliases=tuple(sorted(a for a, v in model.aliases.items() if str(v) == number)),
        tags=dict(version.tags),
        model_id=_model_id(version),
        run_id=version.run_id or "",
        registered=version.creation_timestamp / 1000,
    )
