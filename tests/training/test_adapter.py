"""Merging an adapter gives what peft computes with it, as an ordinary model folder."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from registry.adapters import MERGE_RECORD
from registry.fingerprint import fingerprint
from speculation.target import ModelFolderError, load_target
from tests.toys import toy_target_folder
from training.adapter import merge


def toy_adapter(base: Path, out: Path) -> Path:
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    )
    model.save_pretrained(str(out))
    return out


def test_a_merged_release_computes_what_the_adapter_does(tmp_path: Path) -> None:
    base = toy_target_folder(tmp_path / "base")
    adapter = toy_adapter(base, tmp_path / "adapter")
    merged = load_target(merge(base, adapter, tmp_path / "merged")).model
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter))
    ids = torch.arange(5, 30)[None]
    with torch.no_grad():
        wanted, got = adapted(ids).logits, merged(ids).logits
        plain = load_target(base).model(ids).logits
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)  # float32, another order of sums
    assert not torch.allclose(got, plain, atol=1e-2)


def test_a_merged_release_has_its_bases_tokenizer_and_template(tmp_path: Path) -> None:
    base = toy_target_folder(tmp_path / "base")
    merged = merge(base, toy_adapter(base, tmp_path / "adapter"), tmp_path / "merged")
    mine, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (merged, base))
    message = [{"role": "user", "content": "fox"}]
    assert mine.apply_chat_template(message) == theirs.apply_chat_template(message)


def test_a_merge_is_the_release_of_its_base_with_the_adapter(tmp_path: Path) -> None:
    base = toy_target_folder(tmp_path / "base")
    adapter = toy_adapter(base, tmp_path / "adapter")
    config = json.loads((base / "config.json").read_text())
    config["torch_dtype"] = config.pop("dtype", "float32")  # as an older transformers wrote it
    (base / "config.json").write_text(json.dumps({**config, "of_a_later_version": 3}))
    merged = merge(base, adapter, tmp_path / "merged")
    assert fingerprint(merged) == fingerprint(base, adapter=adapter)
    assert merge(base, adapter, merged) == merged
    (merged / MERGE_RECORD).unlink()  # as merges were before they recorded themselves
    assert fingerprint(merge(base, adapter, merged)) == fingerprint(base, adapter=adapter)
    with pytest.raises(ModelFolderError, match="another adapter"):
        merge(base, toy_adapter(base, tmp_path / "second"), merged)
    with pytest.raises(ModelFolderError, match="merged itself"):
        merge(merged, adapter, tmp_path / "twice")


def test_a_merge_that_the_disk_has_no_room_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy_target_folder(tmp_path / "base")
    adapter = toy_adapter(base, tmp_path / "adapter")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="1000 are free") as full:
        merge(base, adapter, tmp_path / "merged")
    assert full.value.errno == errno.ENOSPC
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]


def test_what_is_no_adapter_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    base = toy_target_folder(tmp_path / "base")
    with pytest.raises(ModelFolderError, match=r"adapter_config\.json"):
        merge(base, base, tmp_path / "merged")
    other = toy_target_folder(tmp_path / "other", hidden=64)
    adapter = toy_adapter(other, tmp_path / "adapter")
    with pytest.raises(ModelFolderError, match="does not fit"):
        merge(base, adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
