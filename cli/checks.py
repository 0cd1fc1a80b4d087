"""What `paceline doctor` looks at, a check a function: what was found, and what to do about it.

Each only looks: nothing is started, made or changed. Whatever one raises is its answer.
"""

from __future__ import annotations

import email.utils
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import httpx

from cli.exits import EXTRAS
from cli.home import has_registry, running
from configuration.settings import Pairing, Settings
from registry.loopback import on_this_machine

SPACE_BYTES = 5_000_000_000  # that a home wants to begin with, beside the targets it fetches
CLOCK_SECONDS = 60.0  # between ours and the registry's: webhooks are believed for five minutes
ASK_SECONDS = 4.0
LEAST_SECRET = 16  # characters


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    do: str = ""  # what to do about it; "" where it is well


Look = Callable[[], list[Check]]


def looks(settings: Settings) -> Iterator[tuple[str, Look]]:
    """Every look at this home, by its name."""
    yield "libraries", libraries
    yield "disk", lambda: disk(settings)
    yield "device", device
    yield "ports", lambda: ports(settings)
    yield "hooks", lambda: hooks(settings)
    yield "registry", lambda: registry(settings)
    yield "prefect", lambda: prefect(settings)
    for name, line in settings.pairings.items():
        yield f"{name}: prompts", lambda line=line: prompts(settings, line)  # type: ignore[misc]
        yield f"{name}: target", lambda line=line: target(settings, line)  # type: ignore[misc]
        yield f"{name}: servers", lambda line=line: servers(settings, line)  # type: ignore[misc]
        yield f"{name}: sources", lambda line=line: sources(settings, line)  # type: ignore[misc]


def libraries() -> list[Check]:
    found = [f"Python {sys.version.partition(' ')[0]}"]
    missing: dict[str, list[str]] = {}
    for library, extra in EXTRAS.items():
        if find_spec(library) is None:
            missing.setdefault(extra, []).append(library)
    for library in ("paceline", "mlflow", "prefect", "torch", "transformers"):
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            continue
    checks = [Check("libraries", True, ", ".join(found))]
    for extra, names in missing.items():
        do = f"pip install 'paceline[{extra}]', where this host is to do what they are for"
        checks.append(Check("libraries", False, f"no {', '.join(names)}", do))
    return checks


def disk(settings: Settings) -> list[Check]:
    home = settings.home.absolute()
    there = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    told = f"{free / 1e9:.1f} GB free at {home}"
    if not os.access(there, os.W_OK):
        return [Check("disk", False, f"{there} cannot be written to", "change its permissions")]
    enough = free >= SPACE_BYTES
    return [Check("disk", enough, told, "" if enough else "make room: a full disk stops the loop")]


def device() -> list[Check]:
    """Which GPU there is, without the seconds that torch takes to load."""
    from registry.room import free_host_bytes, gigabytes

    free = free_host_bytes()
    memory = "" if free is None else f"; {gigabytes(free)} of memory free"
    tool = shutil.which("nvidia-smi")
    if tool is None or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return [Check("device", True, f"no GPU, so all is computed on the CPU{memory}")]
    asked = [tool, "--query-gpu=name,memory.free", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    if told.returncode:
        do = "mend the driver, or hide the GPU with CUDA_VISIBLE_DEVICES="
        return [Check("device", False, f"nvidia-smi fails: {told.stdout.strip()[:200]}", do)]
    return [Check("device", True, "; ".join(told.stdout.strip().splitlines()) + memory)]


def ports(settings: Settings) -> list[Check]:
    """Whether what is to listen here can; what runs of this home already has its port."""
    ours = {httpx.URL(url).port for url in running(settings.home).values()}
    wanted = {
        "serving.port": (settings.serving.host, settings.serving.port),
        "serving.admin_port": (settings.serving.host, settings.serving.admin_port),
        "hooks.port": (settings.hooks.host, settings.hooks.port),
        "monitoring.metrics_port": ("127.0.0.1", settings.monitoring.metrics_port),
    }
    checks = []
    for name, (host, port) in wanted.items():
        if port and port not in ours:
            why = _taken(host, port)
            do = f"end what has it, or set another {name} (0: none, or any)" if why else ""
            checks.append(Check(name, not why, f"{host}:{port} {why or 'is free'}", do))
    return checks


def _taken(host: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return f"cannot be had: {error.strerror}"
    return ""


def hooks(settings: Settings) -> list[Check]:
    port, secret = settings.hooks.port, settings.hook_secret
    if not port:
        return []
    if secret is None:
        do = "set PACELINE_HOOK_SECRET, or no port"
        return [Check("hooks", False, f"port {port}, and no secret: nobody listens", do)]
    short = len(secret) < LEAST_SECRET
    do = f"choose one of {LEAST_SECRET} or more" if short else ""
    return [Check("hooks", not short, f"port {port}, a secret of {len(secret)} characters", do)]


def registry(settings: Settings) -> list[Check]:
    url = settings.registry or running(settings.home).get("mlflow", "")
    if not url:
        known = "its database is there" if has_registry(settings.home) else "nothing is in it yet"
        return [Check("registry", True, f"the home's own, which does not run now; {known}")]
    if url.startswith("sqlite:"):
        from registry.door import open_client

        open_client(url)
        return [Check("registry", True, url)]
    answer = _get(f"{url}/health", url)
    if answer.status_code != 200:
        do = "see that it runs, and that its --allowed-hosts has this name with its port"
        return [Check("registry", False, f"{url}/health answers {answer.status_code}", do)]
    from registry.store import Store

    Store(url).versions("paceline-doctor", limit=1)  # says where a log-in is wanted
    return [Check("registry", True, f"{url} answers"), *_clock(answer, url)]


def _clock(answer: httpx.Response, url: str) -> list[Check]:
    told = (
        email.utils.parsedate_to_datetime(answer.headers["date"])
        if "date" in answer.headers
        else None
    )
    if told is None:
        return []
    apart = time.time() - told.timestamp()
    well = abs(apart) <= CLOCK_SECONDS
    do = "" if well else "set both clocks (NTP): webhooks and waits go by them"
    return [Check("clock", well, f"{apart:+.0f} s from {url}'s", do)]


def prefect(settings: Settings) -> list[Check]:
    own = running(settings.home).get("prefect")
    url = settings.prefect or (f"{own}/api" if own else "")
    if not url:
        return [Check("prefect", True, "the home's own, which does not run now")]
    status = _get(f"{url}/health", url).status_code
    do = "" if status == 200 else "see that it runs, and that `prefect` ends with /api"
    return [Check("prefect", status == 200, f"{url}/health answers {status}", do)]


def prompts(settings: Settings, line: Pairing) -> list[Check]:
    from configuration.prompts import read_pairing_prompts, read_prompts

    train = settings.path(line.train_prompts)
    judging = settings.path(line.evaluation_prompts)
    taught, judged = read_prompts(train), read_pairing_prompts(judging, line.adapters)
    checks = [Check("prompts", True, f"{len(taught)} teach, {len(judged)} judge")]
    few = len(judged) < line.policy.prompts
    if few:
        told = f"{len(judged)} prompts judge, and the policy asks for {line.policy.prompts}"
        checks.append(Check("prompts", False, told, f"add some to {judging}"))
    known = {str(one.messages) for one in taught}
    both = sum(1 for one in judged if str(one.messages) in known)
    if both:
        told = f"{both} of the prompts that judge are taught too"
        checks.append(Check("prompts", False, told, f"take them out of {train}"))
    return checks


def target(settings: Settings, line: Pairing) -> list[Check]:
    """The target, and the draft that is given for it: the same tokens, and room for both."""
    from registry.compatibility import compare
    from registry.incoming import unfinished
    from registry.room import free_host_bytes, misfit

    if not line.target:
        told = "none: its releases come from sources" if line.sources else "none"
        do = "" if line.sources else "set target, or add [[pairings.NAME.sources]]"
        return [Check("target", bool(line.sources), told, do)]
    folder = settings.path(line.target)
    if why := unfinished(folder):
        return [Check("target", False, f"{folder}: {why}", "fetch it again, or correct the path")]
    checks = [Check("target", True, str(folder))]
    if why := misfit(folder, free_host_bytes()):
        checks.append(Check("target", False, why, "free memory, or use a larger machine"))
    if line.initial_draft:
        draft = settings.path(line.initial_draft)
        answer = compare(folder, draft)
        told = "; ".join(answer.reasons) or f"{draft} has the target's tokens"
        do = "" if answer.ok else "give the draft that was made for this target, or none"
        checks.append(Check("draft", answer.ok, told, do))
    return checks


def servers(settings: Settings, line: Pairing) -> list[Check]:
    from flows.served import served

    checks = []
    for row in served(settings, line):
        if row["fault"]:
            do = "see that it runs; its admin side wants one of PACELINE_ADMIN_KEYS"
            checks.append(Check("server", False, f"{row['server']}: {row['fault']}", do))
        else:
            told = f"{row['server']} serves v{row['version']} with {row['drafter']}"
            checks.append(Check("server", True, told))
    return checks


def sources(settings: Settings, line: Pairing) -> list[Check]:
    from flows.sources import origin, shown
    from registry.errors import RegistryError
    from registry.store import Store

    url = settings.registry or running(settings.home).get("mlflow") or settings.registry_url
    checks = []
    for source in line.sources:
        try:
            found = shown(settings, source, Store(url))
        except (RegistryError, OSError) as error:
            checks.append(Check("source", False, f"{origin(source)}: {error}", "correct it"))
            continue
        waiting = [f"{Path(one.place).name}: {one.waits}" for one in found if one.waits]
        told = f"{origin(source)} shows {len(found)}"
        checks.append(Check("source", True, "; ".join([told, *waiting[:3]])))
    return checks


def _get(url: str, of: str) -> httpx.Response:
    return httpx.get(url, timeout=ASK_SECONDS, trust_env=not on_this_machine(of))
