"""The script that makes the demo's second release, on a target of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from registry.adapters import fingerprint_adapter
from registry.fingerprint import fingerprint
from training.adapter import merge

SCRIPT = Path(__file__).parents[2] / "examples" / "docstrings" / "finetune.py"


@pytest.mark.slow
def test_a_target_of_ones_own_is_fine_tuned_and_released(tmp_path: Path) -> None:
    from training.smollm2 import unpack

    target = unpack(tmp_path / "my-target")
    out = tmp_path / "adapter"
    argv = [sys.executable, str(SCRIPT), "--target", str(target), "--out", str(out)]
    done = subprocess.run(
        [*argv, "--steps", "2", "--batch", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "remote" not in done.stderr, "nothing is looked for on a hub"
    stored = json.loads((out / "adapter_config.json").read_text())
    assert stored["base_model_name_or_path"] == "my-target"
    assert len(stored["target_modules"]) == 7
    merged = merge(target, out, tmp_path / "release-2")
    before, after = fingerprint(target), fingerprint(merged)
    assert (after.weights, before.adapter) == (before.weights, None)
    assert after.adapter == fingerprint_adapter(out)
    assert (after.tokenizer, after.chat_template) == (before.tokenizer, before.chat_template)
