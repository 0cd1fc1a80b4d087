"""A trial: drafts served side by side over one target, and what was measured of them.

Starts the real server as a child and ends it. Knows argv, prompts and a report; decides nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from configuration.settings import Pairing, Serving
from flows.line import device
from speculation.records import Prompt

if TYPE_CHECKING:
    from evaluation.report import PairFacts, Report

HOST = "127.0.0.1"
SECONDS_TO_LOAD = 300.0


def run_trial(
    target: Path,
    arms: Mapping[str, str],  # name -> draft; "none" has to be among them
    prompts: Sequence[Prompt],
    folder: Path,  # journal, log and report.json
    *,
    line: Pairing,
    speed_prompts: int,
    serving: Serving | None = None,  # max_slots and max_context; None: the server's own defaults
    max_tokens: int | None = None,  # None: as the pairing measures
    facts: PairFacts | None = None,  # of the drafts, kept in the report
    progress: Callable[[int, int, str], None],
) -> Report:
    """Measure the arms and write folder/report.json. Goes on from the folder's journal.

    Raises EndpointError when the server does not come up, MeasurementError when it cannot be
    measured.
    """
    from evaluation.endpoints import free_port, started
    from evaluation.measure import measure
    from evaluation.report import report_of

    folder.mkdir(parents=True, exist_ok=True)
    port, (tenant, key) = free_port(), (token_hex(24), token_hex(24))
    argv = [sys.executable, "-m", "cli.main", "serve", str(target), "--trial"]
    for name, draft in arms.items():
        argv += ["--arm", f"{name}={draft}"]
    argv += ["--host", HOST, "--port", str(port), "--draft-len", str(line.draft_len)]
    argv += ["--home", str(folder), "--device", device()]
    if serving is not None:  # the trial's home is not the user's, so it has to be told
        argv += ["--max-slots", str(serving.max_slots)]
        argv += ["--max-context", str(serving.max_context)]
    with started(
        argv,
        ready_url=f"http://{HOST}:{port}/health/ready",
        log=folder / "server.log",
        timeout_seconds=SECONDS_TO_LOAD,
        environ={**os.environ, **_keys(tenant, key)},
    ) as server:
        measured = measure(
            server.url,
            prompts,
            arms=tuple(arms),
            draft_len=line.draft_len,
            max_tokens=max_tokens or line.measurement.max_tokens,
            temperatures=line.measurement.temperatures,
            concurrency=line.measurement.concurrency,
            speed_prompts=speed_prompts,
            speed_draft_len=line.draft_len,
            speed_concurrencies=line.measurement.speed_concurrencies,
            consecutive_errors=line.measurement.consecutive_errors,
            journal=folder / "journal.jsonl",
            key=key,
            progress=progress,
        )
    report = report_of(measured, tokenizer=line.measurement.tokenizer, facts=facts)
    report.write(folder / "report.json")
    return report


def _keys(tenant: str, admin: str) -> dict[str, str]:
    """A trial's own: nobody else on this host is to ask it while it is measured."""
    files = dict.fromkeys(("PACELINE_KEYS_FILE", "PACELINE_ADMIN_KEYS_FILE"), "")
    return {**files, "PACELINE_KEYS": f"trial={tenant}", "PACELINE_ADMIN_KEYS": admin}
