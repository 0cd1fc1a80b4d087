"""What was loaded stays as it was, whatever happens to the files later."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from speculation.drafters import NoDrafter
from speculation.engine import Engine
from speculation.sequence import Request
from speculation.target import load_target
from tests.toys import events_of, tokens_of, toy_target_folder


def test_a_file_written_over_in_place_or_cut_short_changes_no_answer(tmp_path: Path) -> None:
    folder = toy_target_folder(tmp_path / "toy")
    target = load_target(folder)

    def answer() -> dict[str, list[int]]:
        engine = Engine(
            target, {"none": NoDrafter()}, default="none", draft_len=0, slots=1, max_len=64
        )
        return tokens_of(events_of(engine, [Request("a", (1, 2, 3), 16)]))

    before = answer()
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    other = {name: tensor.flip(0) for name, tensor in load_file(path).items()}
    save_file({n: t.contiguous() for n, t in other.items()}, tmp_path / "other.safetensors")
    with path.open("r+b") as stored:  # as cp and rsync --inplace write
        stored.write((tmp_path / "other.safetensors").read_bytes()[: len(whole)])
    assert answer() == before
    with path.open("r+b") as stored:
        stored.truncate(100)
    assert answer() == before
    assert all(torch.isfinite(weight).all() for weight in target.model.parameters())
