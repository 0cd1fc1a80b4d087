"""Bad drafts, each refused with its reason before anything of it can be asked for a token."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.adapters import fingerprint_adapter
from registry.errors import FolderError, RegistryError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import PairManifest, read_manifest, with_files, write_manifest
from serving.arms import RefusedPairError, registered_arm, static_arm, trial_arms, weightless_beside
from serving.loading import Host, Loaded
from serving.pairs_on_disk import PairsOnDisk, TargetOnDisk
from serving.settings import ServeSettings, SettingsError
from speculation.drafters import HeadDrafter
from speculation.sequence import Event, Request
from tests.toys import toy_adapter_folder, toy_target_folder

WEIGHTS = "draft/model.safetensors"
CONFIG = "draft/config.json"


@pytest.fixture(scope="module")
def host(target_folder: Path) -> Host:
    return Host.load(target_folder, ServeSettings(home=Path(), target=target_folder))


def pair_of(draft: Path, target: Path, place: Path, *, context: int = 256) -> Path:
    """A pair's folder as a download leaves it."""
    shutil.copytree(draft, place / "draft")
    manifest = PairManifest(
        release=fingerprint(target),
        release_uri=str(target),
        draft=fingerprint_draft(draft),
        context_measured=context,
    )
    write_manifest(with_files(manifest, place), place)
    return place


def put(name: str, **values: Any) -> Callable[[Path], None]:
    """Other values in a JSON file."""

    def spoil(place: Path) -> None:
        stored = json.loads((place / name).read_text())
        (place / name).write_text(json.dumps(stored | values))

    return spoil


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda place: (place / name).write_bytes(content)


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Other weights."""

    def spoil(place: Path) -> None:
        weights = load_file(place / WEIGHTS)
        change(weights)
        save_file(weights, place / WEIGHTS)

    return spoil


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Another header over the same weights."""

    def spoil(place: Path) -> None:
        stored = (place / WEIGHTS).read_bytes()
        (length,) = struct.unpack("<Q", stored[:8])
        told = json.loads(stored[8 : 8 + length])
        change(told)
        written = json.dumps(told).encode()
        (place / WEIGHTS).write_bytes(
            struct.pack("<Q", len(written)) + written + stored[8 + length :]
        )

    return spoil


def pickled(place: Path) -> None:
    (place / WEIGHTS).unlink()
    torch.save({"w": torch.ones(1)}, place / "draft" / "pytorch_model.bin")


def pickle_under_another_name(place: Path) -> None:
    torch.save({"w": torch.ones(1)}, place / WEIGHTS)


def truncated(place: Path) -> None:
    (place / WEIGHTS).write_bytes((place / WEIGHTS).read_bytes()[:-100])


def flipped(place: Path) -> None:
    stored = (place / WEIGHTS).read_bytes()
    (place / WEIGHTS).write_bytes(stored[:-1] + bytes([stored[-1] ^ 0xFF]))


def linked(place: Path) -> None:
    outside = place.parent / "outside.safetensors"
    (place / WEIGHTS).rename(outside)
    (place / WEIGHTS).symlink_to(outside)


def indexed_outside(place: Path) -> None:
    index = {"weight_map": {"fc.weight": "../../outside.safetensors"}}
    (place / "draft" / "model.safetensors.index.json").write_text(json.dumps(index))


def overlapping(told: dict[str, Any]) -> None:
    told["fc.weight"]["data_offsets"] = told["norm.weight"]["data_offsets"]


def longer_than_the_file(place: Path) -> None:
    stored = (place / WEIGHTS).read_bytes()
    (place / WEIGHTS).write_bytes(struct.pack("<Q", 2**62) + stored[8:])


def widened(weights: dict[str, torch.Tensor]) -> None:
    weights["fc.weight"] = weights["fc.weight"].repeat(2, 1)


def of_another_release(place: Path) -> None:
    manifest = read_manifest(place)
    write_manifest(replace(manifest, release=replace(manifest.release, digest="0" * 64)), place)


def never_judged(place: Path) -> None:
    write_manifest(replace(read_manifest(place), context_measured=0), place)


class Bad(NamedTuple):
    spoil: Callable[[Path], object]
    said: str
    signed: bool = True  # registered as it is; else it was changed afterwards


NAN, INFINITE = float("nan"), float("inf")
BAD = {
    "a byte that changed": Bad(flipped, "sha256", signed=False),
    "a file that is gone": Bad(lambda place: (place / CONFIG).unlink(), "missing", signed=False),
    "no configuration": Bad(lambda place: (place / CONFIG).unlink(), "config.json"),
    "a configuration that is no JSON": Bad(write(CONFIG, b"{"), "JSON"),
    "a configuration that is no text": Bad(write(CONFIG, b"\xff\xfe{}"), "JSON"),
    "a configuration that is a list": Bad(write(CONFIG, b"[]"), "object"),
    "a deep configuration": Bad(write(CONFIG, b'{"a":' * 100_000), "JSON"),
    "code to run": Bad(put(CONFIG, auto_map={"AutoModel": "evil.Model"}), "auto_map"),
    "an architecture nobody knows": Bad(put(CONFIG, architectures=["Evil"]), "vocab_size"),
    "no architecture": Bad(put(CONFIG, architectures=None), "architecture"),
    "another vocabulary": Bad(put(CONFIG, vocab_size=77), "vocab_size"),
    "another hidden size": Bad(put(CONFIG, hidden_size=48), "hidden_size"),
    "a layer the target has not": Bad(
        put(CONFIG, eagle_aux_hidden_state_layer_ids=[0, 1, 9]), "layer 9"
    ),
    "layers that are words": Bad(
        put(CONFIG, eagle_aux_hidden_state_layer_ids=["a", "b", "c"]), "layer|head"
    ),
    "no heads of attention": Bad(put(CONFIG, num_attention_heads=0), "head"),
    "heads beyond all memory": Bad(put(CONFIG, num_attention_heads=2**40), "q_proj|head"),
    "widths beyond all memory": Bad(put(CONFIG, intermediate_size=2**50), "mlp"),
    "positions beyond all memory": Bad(put(CONFIG, max_position_embeddings=2**50), "position"),
    "sizes that are words": Bad(put(CONFIG, intermediate_size="wide"), "intermediate_size|head"),
    "no weights": Bad(lambda place: (place / WEIGHTS).unlink(), "no weights"),
    "a pickle": Bad(pickled, "pytorch_model.bin"),
    "a pickle under another name": Bad(pickle_under_another_name, "pickle"),
    "weights that end early": Bad(truncated, "model.safetensors"),
    "a header longer than its file": Bad(longer_than_the_file, "model.safetensors"),
    "tensors that overlap": Bad(header(overlapping), "model.safetensors"),
    "weights outside of its folder": Bad(indexed_outside, "plain name"),
    "a link that leads outside": Bad(linked, "outside"),
    "weights that are not a number": Bad(
        tensors(lambda w: w.update({"fc.weight": w["fc.weight"] * NAN})), "finite"
    ),
    "weights that are infinite": Bad(
        tensors(lambda w: w.update({"norm.weight": w["norm.weight"] + INFINITE})), "finite"
    ),
    "a tensor that is missing": Bad(tensors(lambda w: w.pop("fc.weight")), "fc.weight"),
    "a tensor too many": Bad(tensors(lambda w: w.update({"extra": torch.ones(1)})), "extra"),
    "a tensor of another shape": Bad(tensors(widened), "fc.weight"),
    "a draft table that leads outside": Bad(tensors(lambda w: w["d2t"].add_(10_000)), "d2t"),
    "tables that disagree": Bad(tensors(lambda w: w["t2d"].logical_not_()), "t2d"),
    "a manifest of another release": Bad(of_another_release, "was validated for release 0000"),
    "a manifest of another pair": Bad(of_another_release, "holds pair", signed=False),
    "a manifest that is no JSON": Bad(write("pair.json", b"{"), "JSON", signed=False),
    "a manifest that is cut": Bad(write("pair.json", b'{"schema": 1}'), "missing", signed=False),
    "a draft that was never judged": Bad(never_judged, "no length"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_draft_is_refused_with_its_reason(
    host: Host, draft_folder: Path, tmp_path: Path, bad: Bad
) -> None:
    place = pair_of(draft_folder, host.folder, tmp_path / "pair")
    pair = read_manifest(place).pair_id
    bad.spoil(place)
    if bad.signed:
        pair = signed(place)
    place.rename(tmp_path / pair)
    with pytest.raises((RegistryError, ValueError), match=bad.said):
        prepared(host, tmp_path, pair)


def signed(place: Path) -> str:
    """Let the manifest say what is there, as if it had been registered so."""
    manifest = read_manifest(place)
    with suppress(RegistryError):
        manifest = replace(manifest, draft=fingerprint_draft(place / "draft"))
    write_manifest(with_files(manifest, place), place)
    return manifest.pair_id


def prepared(host: Host, folder: Path, pair: str) -> Loaded:
    """What a following server does with a pair that it has fetched."""
    served = TargetOnDisk(host.folder, host.release)
    arm = PairsOnDisk(folder).check(pair, "1", served).arm
    settings = ServeSettings(home=folder, target=host.folder, max_slots=2, max_context=300)
    return Loaded.prepare(host, {arm.name: arm}, settings)


def test_a_static_server_believes_a_manifest_only_of_the_draft_and_the_release_it_is_of(
    host: Host, draft_folder: Path, tmp_path: Path
) -> None:
    place = pair_of(draft_folder, host.folder, tmp_path / "pair", context=40)
    arm = static_arm(host, str(place))
    assert (arm.verified, arm.context) == (True, 40)
    bare = static_arm(host, str(draft_folder))
    assert (bare.verified, bare.context) == (False, None)
    assert bare.pair == arm.pair
    tensors(lambda w: w["norm.weight"].add_(1))(place)
    with pytest.raises(RefusedPairError, match="binds the head draft"):
        static_arm(host, str(place))
    signed(place)
    of_another_release(place)
    with pytest.raises(RefusedPairError, match="was validated for release 0000"):
        static_arm(host, str(place / "draft"))
    trial = trial_arms(TargetOnDisk(host.folder, host.release), {"candidate": str(place)})
    assert not trial["candidate"].verified  # measured all the same: that is what a trial is for


def test_a_model_whose_tokens_differ_cannot_draft(host: Host, tmp_path: Path) -> None:
    draft = toy_target_folder(tmp_path / "draft", seed=3, layers=1)
    assert static_arm(host, str(draft)).kind == "model"
    tokens = json.loads((draft / "tokenizer.json").read_text())
    table = tokens["model"]["vocab"]
    table["a"], table["b"] = table["b"], table["a"]
    (draft / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(RefusedPairError, match=r"token \d+ is 'b' in the draft and 'a'"):
        static_arm(host, str(draft))


def test_a_target_is_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = toy_target_folder(tmp_path / "target", layers=1)
    settings = ServeSettings(home=tmp_path, target=folder)
    put("config.json", intermediate_size=10**9)(folder)
    with pytest.raises(ValueError, match="parameters, and .* bytes are stored"):
        Host.load(folder, settings)
    put("config.json", intermediate_size=64)(folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "q_proj" in name)
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"lacks {name}"):
        Host.load(folder, settings)


def test_a_device_that_is_none_is_a_setting_that_is_wrong(host: Host) -> None:
    settings = ServeSettings(home=Path(), target=host.folder, device="gpu0")
    with pytest.raises(SettingsError, match="'gpu0' cannot be used"):
        Host.load(host.folder, settings)


def test_a_pair_drafts_only_where_it_was_judged(
    host: Host, draft_folder: Path, tmp_path: Path
) -> None:
    place = pair_of(draft_folder, host.folder, tmp_path / "pair", context=20)
    place.rename(tmp_path / (pair := read_manifest(place).pair_id))
    loaded = prepared(host, tmp_path, pair)
    loaded.adaptive = False
    loaded.start()
    assert loaded.drafted_context == 20
    loaded.engine.submit(Request("a", (9, 8, 7), 60))
    ended = run(loaded)
    assert ended.counts is not None
    # Rounds until the context is 20 tokens long, and not one more.
    assert 0 < ended.counts.rounds <= 17
    assert ended.counts.plain_forwards >= 40
    loaded.engine.submit(Request("b", (9,) * 30, 10))
    ended = run(loaded)
    assert ended.counts is not None
    assert ended.counts.drafted == 0


def test_weightless_drafts_stand_beside_and_may_be_turned_to(
    host: Host, draft_folder: Path, tmp_path: Path
) -> None:
    arm = static_arm(host, str(draft_folder))
    settings = ServeSettings(home=tmp_path, target=host.folder, max_slots=1, max_context=64)
    loaded = Loaded.prepare(host, {arm.name: arm}, settings)
    loaded.start()
    assert list(loaded.arms) == ["head", "ngram", "none"]
    assert list(weightless_beside(host, {"none": loaded.arms["none"]})) == ["none", "ngram"]
    loaded.steer("none", None)
    assert (loaded.default.kind, loaded.own.kind, loaded.pair) == ("none", "head", arm.pair)
    loaded.steer("head", 2)
    assert [loaded.length(k, seeded=seeded) for k in (None, 5) for seeded in (False, True)] == [
        *(2, 2),
        *(5, 5),
    ]
    for drafter, draft_len in (("other", 1), ("head", 17), ("head", -1)):
        with pytest.raises(ValueError, match="wanted"):
            loaded.steer(drafter, draft_len)
    loaded.engine.submit(Request("a", (9, 8, 7), 8))
    ended = run(loaded)
    assert ended.counts is not None
    assert len(ended.counts.judged_per_position) == 2
    loaded.steer("head", None)
    assert loaded.length(None, seeded=False) is None
    assert loaded.length(None, seeded=True) == 4, "the configured K again"


def test_an_engine_starts_again_over_the_weights_it_has(
    host: Host, draft_folder: Path, tmp_path: Path
) -> None:
    draft = shutil.copytree(draft_folder, tmp_path / "draft")
    arm = static_arm(host, str(draft))
    settings = ServeSettings(home=tmp_path, target=host.folder, max_slots=1, max_context=64)
    loaded = Loaded.prepare(host, {arm.name: arm}, settings)
    loaded.start()
    before = loaded.engine.drafters["head"]
    shutil.rmtree(draft)
    loaded.restart()
    after = loaded.engine.drafters["head"]
    assert isinstance(before, HeadDrafter)
    assert isinstance(after, HeadDrafter)
    assert after.head is before.head
    assert after.cache is not before.cache


def test_a_pair_is_served_with_the_adapters_that_it_was_judged_with(
    host: Host, draft_folder: Path, target_folder: Path, tmp_path: Path
) -> None:
    place = pair_of(draft_folder, target_folder, tmp_path / "pair")
    polite = replace(host, adapters={"polite": "a" * 64})
    with pytest.raises(RefusedPairError, match="was not judged with the adapter polite"):
        static_arm(polite, str(place))
    assert not static_arm(polite, str(draft_folder)).verified, "a bare draft may be tried"
    assert static_arm(polite, "ngram"), "and what learned nothing serves anything"
    manifest = replace(read_manifest(place), adapters={"polite": "a" * 64})
    write_manifest(manifest, place)
    assert static_arm(polite, str(place)).verified
    for adapters, said in (
        ({}, "was judged with the adapter polite, not here"),
        ({"polite": "b" * 64}, "the adapter polite is bbbbbbbbbbbb"),
    ):
        with pytest.raises(RefusedPairError, match=said):
            static_arm(replace(host, adapters=adapters), str(place))
    with pytest.raises(RefusedPairError, match="not here. Serve it with the adapters"):
        registered_arm(TargetOnDisk(host.folder, host.release), manifest, place)


def test_adapters_are_looked_at_as_bytes_before_they_are_loaded(
    target_folder: Path, tmp_path: Path
) -> None:
    adapter = toy_adapter_folder(target_folder, tmp_path / "adapter", target_modules=["q_proj"])

    settings = ServeSettings(home=tmp_path, target=target_folder, adapters={"polite": adapter})
    host = Host.load(target_folder, settings)
    assert host.adapters == {"polite": fingerprint_adapter(adapter)}
    assert host.target.adapters == ("polite",)
    put("adapter_config.json", auto_map={"x": "y"})(adapter)
    with pytest.raises(FolderError, match="code to run"):
        Host.load(target_folder, settings)


def run(loaded: Loaded) -> Event:
    """The last event of the one request that runs."""
    while True:
        for event in loaded.engine.step():
            if event.outcome is not None:
                return event
