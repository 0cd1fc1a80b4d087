"""What can only be checked on a CUDA GPU, in eight minutes: `make gpu-check`.

    python -m examples.gpu_check            skips with its reason where there is no GPU
    python -m examples.gpu_check --small    the same steps on toy sizes, on any device

Random weights of a Llama of about a billion parameters are made on the spot, so the figures say how
the machinery runs there, and nothing about drafts. Prints a line a step and JSON at the end; exit
code 0 when every step held or there is no GPU, 1 otherwise, and when the eight minutes are over.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
BUDGET_SECONDS = 480
ENDING_SECONDS = 15  # to end servers and clear away; after that the process is cut off
TESTS = ("tests/test_devices.py", "tests/speculation", "tests/training")  # no servers, no stores
VOCABULARY = 32_000
REQUESTS, ANSWER_TOKENS, DRAFT_LENS = 8, 48, (1, 2, 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="toy sizes, to try the script itself")
    parser.add_argument("--seconds", type=int, default=BUDGET_SECONDS, help="for all of it")
    arguments = parser.parse_args()
    bound(arguments.seconds)
    reason = missing(arguments.device)
    if reason:
        print(f"gpu-check skipped: {reason}")
        return 0
    began = time.monotonic()
    told: dict[str, Any] = {"device": named(arguments.device), "small": arguments.small}
    failed = []
    with tempfile.TemporaryDirectory(prefix="paceline-gpu-") as folder:
        home = Path(folder)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "tests": lambda: device_tests(arguments.device),
            "make": lambda: make_target(home / "target", arguments.device, small=arguments.small),
            "distil": lambda: distil(home, arguments.device),
            "serve": lambda: serve(home, arguments.device),
            "bench": lambda: bench(home, arguments.device),
        }
        for name, step in steps.items():
            started = time.monotonic()
            try:
                found = step()
            except Exception:  # the edge: one broken step must not hide what the others say
                failed.append(name)
                found = {"failed": traceback.format_exc(limit=3)}
            told[name] = {**found, "seconds": round(time.monotonic() - started, 1)}
            print(f"{name}: {told[name]}", flush=True)
    told["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps({**told, "failed": failed}))
    return 1 if failed else 0


def bound(seconds: int) -> None:
    """End this process with exit code 1 after so long, in the middle of a step as well."""

    def over(number: int, frame: FrameType | None) -> None:
        print(f"gpu-check: not done within {seconds} seconds, ended", file=sys.stderr, flush=True)
        sys.exit(1)

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    # Python handles a signal between two of its own steps only: a call that hangs is cut off
    faulthandler.dump_traceback_later(seconds + ENDING_SECONDS, exit=True)


def missing(device: str) -> str:
    """Why the check cannot run here; empty when it can."""
    import torch

    if not device.startswith("cuda"):
        return ""
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch finds no CUDA GPU on this machine"


def named(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device.startswith("cuda") else device


def device_tests(device: str) -> dict[str, Any]:
    """The tests that are written for any device."""
    argv = [sys.executable, "-m", "pytest", "-q", "-m", "device", "--device", device, *TESTS]
    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    closing = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-500:]
    if run.returncode != 0:
        raise RuntimeError(f"{closing}\n{run.stdout[-3000:]}")
    return {"pytest": closing}


def make_target(out: Path, device: str, *, small: bool) -> dict[str, Any]:
    """A Llama of random bfloat16 weights with a tokenizer of as many tokens, as a folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.toys import toy_tokenizer

    tokenizer = toy_tokenizer()
    size = len(tokenizer) if small else VOCABULARY
    tokenizer.add_tokens([f"<t{number}>" for number in range(size - len(tokenizer))])
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=64 if small else 2048,
        intermediate_size=128 if small else 8192,
        num_hidden_layers=4 if small else 16,
        num_attention_heads=4 if small else 32,
        num_key_value_heads=2 if small else 8,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).bfloat16()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}


def distil(home: Path, device: str) -> dict[str, Any]:
    """Regenerate a few answers and train a head on them for two epochs."""
    from speculation.records import Prompt
    from training.distill import distill
    from training.recipe import Recipe
    from training.regenerate import regenerate

    recipe = Recipe(
        responses=64, max_tokens=ANSWER_TOKENS, max_prompt_tokens=96, epochs=2, draft_vocab=256
    )
    asked = [
        Prompt(f"{n}", ({"role": "user", "content": f"the {n} fox jumps over the dog"},))
        for n in range(recipe.responses)
    ]
    began = time.monotonic()
    answers = regenerate(home / "target", asked, home / "answers", recipe=recipe, device=device)
    regenerated = time.monotonic() - began
    distill(home / "target", answers, home / "distilled", recipe=recipe, device=device)
    curves = json.loads((home / "distilled" / "curves.json").read_text())
    losses = [epoch["loss"] for epoch in curves]
    if not losses[-1] < losses[0]:
        raise RuntimeError(f"the loss did not fall: {losses}")
    return {"losses": losses, "regenerate_seconds": round(regenerated, 1)}


def serve(home: Path, device: str) -> dict[str, Any]:
    """The real server on the device: requests side by side, counts that add up, a clean end."""
    import httpx

    from evaluation.endpoints import free_port, started

    port = free_port()
    base = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "cli.main", "serve", str(home / "target")]
    argv += ["--draft", str(home / "distilled" / "draft"), "--device", device]
    argv += ["--port", str(port), "--home", str(home / "served")]
    asked = {"messages": [{"role": "user", "content": "the fox"}], "max_tokens": ANSWER_TOKENS}
    ready = f"{base}/health/ready"
    with (
        started(argv, ready_url=ready, log=home / "serve.log", timeout_seconds=180),
        httpx.Client(base_url=base, timeout=60, trust_env=False) as client,
    ):
        model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]

        def ask(number: int) -> dict[str, Any]:
            body = {**asked, "model": model, "seed": number}
            answer = client.post("/v1/chat/completions", json=body).raise_for_status()
            usage: dict[str, Any] = answer.json()["usage"]
            return usage

        began = time.monotonic()
        with ThreadPoolExecutor(REQUESTS) as pool:
            usages = list(pool.map(ask, range(REQUESTS)))
        seconds = time.monotonic() - began
    emitted = sum(usage["completion_tokens"] for usage in usages)
    counted = sum(usage["paceline"]["emitted"] for usage in usages)
    rounds = sum(usage["paceline"]["rounds"] for usage in usages)
    if emitted != counted or not rounds:
        raise RuntimeError(f"{emitted} tokens were sent and {counted} counted, in {rounds} rounds")
    return {"requests": len(usages), "tokens_per_second": round(emitted / seconds, 1)}


def bench(home: Path, device: str) -> dict[str, Any]:
    """The engine without HTTP: plain decoding, and the head at a few draft lengths."""
    from speculation.bench import bench as measured
    from speculation.drafters import load_drafter
    from speculation.target import load_target

    target = load_target(home / "target", device=device)
    prompts = [tuple(range(4, 20 + number)) for number in range(4)]
    longest = max(map(len, prompts)) + ANSWER_TOKENS
    drafter = load_drafter(str(home / "distilled" / "draft"), target, rows=1, max_len=longest)
    timings = measured(
        target, {"head": drafter}, prompts, draft_lens=DRAFT_LENS, max_tokens=ANSWER_TOKENS, turns=2
    )
    return {
        "adapted" if timing.draft_len is None else f"K={timing.draft_len}": {
            "tokens_per_second": round(timing.tokens_per_second, 1),
            "acceptance": timing.counts.acceptance,
        }
        for timing in timings
    }


if __name__ == "__main__":
    sys.exit(main())
