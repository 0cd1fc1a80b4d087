"""Two stories of the registry, each told against a real MLflow server.

A draft whose tokens are not its target's is refused when it is registered and when it is loaded; a
target that is released again under its old name is another release, for which nothing was judged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.simulation import Arm, report
from registry.compatibility import fits_release
from registry.errors import IncompatibleError
from registry.fingerprint import Release, difference, fingerprint, fingerprint_draft
from registry.manifest import PairManifest, read_manifest
from registry.promotion import Outcome, promote
from registry.remote import champion, download
from registry.store import Store
from registry.tokens import keep_tokens
from serving.arms import RefusedPairError, registered_arm, static_arm, trial_arms
from speculation.records import Phase, Verdict
from tests.registry import tiny
from tests.registry.conftest import passed

EXCHANGED = list(tiny.WORDS)
EXCHANGED[9], EXCHANGED[20] = EXCHANGED[20], EXCHANGED[9]
FIRST = "token 9 is 'h' in the draft and 's' in the target; 2 tokens differ"


@dataclass(frozen=True)
class Served:
    """A target as a serving host has it."""

    folder: Path
    release: Release
    adapters: Mapping[str, str] = field(default_factory=dict)


def on_disk(folder: Path) -> Served:
    return Served(folder, fingerprint(folder))


def small(folder: Path) -> None:
    tiny.target(folder, seed=5)


def head(folder: Path) -> None:
    tiny.head(folder)
    keep_tokens(tiny.target(folder.parent / "made-for"), folder)
    shutil.rmtree(folder.parent / "made-for")


def register(
    store: Store, pairing: str, target: Path, files: Path, verdict: Verdict | None = None
) -> int:
    manifest = PairManifest(
        release=fingerprint(target),
        release_uri=str(target),
        draft=fingerprint_draft(files / "draft" if (files / "draft").exists() else "ngram"),
        context_measured=256,
    )
    return store.register_pair(
        pairing, manifest, files, report={}, verdict=verdict or passed()
    ).version


@pytest.mark.parametrize("made", [small, head])
def test_a_draft_with_two_tokens_exchanged_is_refused_when_it_is_registered(
    server: str, tmp_path: Path, made: Callable[[Path], None]
) -> None:
    """As many tokens, rows and layers as the target has: only their content tells."""
    target = tiny.target(tmp_path / "target")
    tiny.write_tokenizer(target, EXCHANGED)
    (tmp_path / "pair").mkdir()
    made(tmp_path / "pair" / "draft")
    store = Store(server)
    with pytest.raises(IncompatibleError, match=FIRST):
        register(store, f"exchanged-{made.__name__}", target, tmp_path / "pair")
    assert store.pairs(f"exchanged-{made.__name__}") == []


@pytest.mark.parametrize("made", [small, head])
def test_a_draft_with_two_tokens_exchanged_is_refused_when_it_is_loaded(
    server: str, tmp_path: Path, made: Callable[[Path], None]
) -> None:
    """Registered for tokens as they were, downloaded whole, and met by a target whose are not."""
    target = tiny.target(tmp_path / "target")
    (tmp_path / "pair").mkdir()
    made(tmp_path / "pair" / "draft")
    store, pairing = Store(server), f"loaded-{made.__name__}"
    register(store, pairing, target, tmp_path / "pair")
    assert promote(store, pairing, 1, expect=None).outcome is Outcome.PROMOTED
    found = champion(server, pairing)
    assert found is not None
    place = download(found, tmp_path / "host")
    manifest = read_manifest(place)
    assert registered_arm(on_disk(target), manifest, place).verified

    tiny.write_tokenizer(target, EXCHANGED)
    here = on_disk(target)
    for load in (
        lambda: registered_arm(here, manifest, place),
        lambda: static_arm(here, str(place)),
        lambda: trial_arms(here, {"candidate": str(place)}),  # a trial wants the tokens too
    ):
        with pytest.raises(RefusedPairError, match=FIRST):
            load()


def halved(target: Path) -> None:
    """The same model in float16 where it was float32, in the same place under the same name."""
    save_file(
        {name: array.astype(np.float16) for name, array in tiny.arrays().items()},
        target / "model.safetensors",
    )


def quantized(target: Path) -> None:
    """Its layers in eight bits with their scales, and a configuration that says so."""
    weights: tiny.Arrays = {}
    for name, array in tiny.arrays().items():
        if ".mlp." in name:
            scale = np.abs(array).max() / 127
            weights[name] = np.round(array / scale).astype(np.int8)
            weights[f"{name}_scale"] = np.array([scale], dtype=np.float32)
        else:
            weights[name] = array
    save_file(weights, target / "model.safetensors")
    path = target / "config.json"
    method = {"quantization_config": {"quant_method": "compressed-tensors"}}
    tiny.write_json(path, {**json.loads(path.read_text()), **method})


@pytest.mark.parametrize("again", [halved, quantized])
def test_a_target_released_again_requantised_is_unverified_measured_and_blocked(
    server: str, tmp_path: Path, again: Callable[[Path], None]
) -> None:
    target, store, pairing = tiny.target(tmp_path / "target"), Store(server), again.__name__
    (tmp_path / "pair").mkdir()
    tiny.head(tmp_path / "pair" / "draft")
    first = store.register_release(pairing, target, fingerprint(target))
    old = register(store, pairing, target, tmp_path / "pair")
    assert promote(store, pairing, old, expect=None).outcome is Outcome.PROMOTED
    before = fingerprint(target)

    again(target)
    after = fingerprint(target)
    second = store.register_release(pairing, target, after)
    assert (first.version, second.version) == (1, 2)
    assert second.digest != first.digest
    assert "weights" in difference(before, after)
    assert ("configuration" in difference(before, after)) == (again is quantized)

    # The champion is of the release that was: nothing vouches for it here.
    found = champion(server, pairing)
    assert found is not None
    place = download(found, tmp_path / "host")
    manifest = read_manifest(place)
    assert "weights" in fits_release(manifest, after).reasons[0]
    with pytest.raises(RefusedPairError, match="was validated for release"):
        registered_arm(on_disk(target), manifest, place)
    assert not trial_arms(on_disk(target), {"candidate": str(place)})["candidate"].verified

    # Measured on the new release the old draft has lost what it gained, and the gate says so. Here
    # that report is made up; tests/flows/test_requantised.py has a real server measure it.
    lost = report({"candidate": Arm(0.12), "ngram": Arm(0.15)}, seed=1)
    verdict = judge(Policy(prompts=64), lost)
    assert verdict.phase is Phase.FAIL
    (tmp_path / "again").mkdir()
    shutil.copytree(tmp_path / "pair" / "draft", tmp_path / "again" / "draft")
    new = register(store, pairing, target, tmp_path / "again", verdict)
    assert new != old, "the same draft on another release is another pair"
    blocked = promote(store, pairing, new, expect=old)
    assert blocked.outcome is Outcome.REFUSED
    assert store.champion(pairing) == store.pair(pairing, old)
