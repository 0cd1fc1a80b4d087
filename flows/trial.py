"""A trial: drafts served side by side over one target, and what was measured of them.

Starts the real server as a child and ends it. Knows argv, prompts and a report; decides nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from configuration.serving import Serving
from configuration.settings import Pairing
from flows.line import device
from flows.lineage import learned
from speculation.records import Prompt

if TYPE_CHECKING:
    from evaluation.endpoints import Endpoint
    from evaluation.report import PairFacts, Report
    from evaluation.samples import Measurement

log = logging.getLogger("paceline.flows")

HOST = "127.0.0.1"
SECONDS_TO_LOAD = 300.0
JUDGED = ("candidate", "incumbent")  # arms whose drafts learned something

Progress = Callable[[int, int, str], None]


@contextmanager
def trial_server(
    target: Path,
    arms: Mapping[str, str],  # name -> draft; "none" has to be among them
    folder: Path,  # the server's home and log
    *,
    line: Pairing,
    serving: Serving | None = None,  # max_slots and max_context; None: the server's own defaults
    adapters: Mapping[str, Path] | None = None,  # of the target, by the names prompts ask for
) -> Iterator[Callable[..., Measurement]]:
    """Serve the arms until the block ends; gives what measures them: `measure(prompts, journal, *,
    speed_prompts, max_tokens=None, seed=0, progress)`, which goes on from the journal and raises
    MeasurementError where nothing could be measured. Raises EndpointError where no server comes up.
    """
    from evaluation.endpoints import free_port, started

    folder.mkdir(parents=True, exist_ok=True)
    port, (tenant, key) = free_port(), (token_hex(24), token_hex(24))
    argv = [sys.executable, "-m", "cli.main", "serve", str(target), "--trial"]
    for name, draft in arms.items():
        argv += ["--arm", f"{name}={draft}"]
    for name, place in (adapters or {}).items():
        argv += ["--adapter", f"{name}={place}"]
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
        yield partial(_measured, server, key, tuple(arms), line)


def _measured(
    server: Endpoint,
    key: str,  # opens everything
    arms: tuple[str, ...],
    line: Pairing,
    prompts: Sequence[Prompt],
    journal: Path,
    *,
    speed_prompts: int,
    max_tokens: int | None = None,  # None: as the pairing measures
    seed: int = 0,  # the first of those that are used where tokens are drawn
    progress: Progress,
) -> Measurement:
    """Measure every arm. Goes on from the journal. Raises MeasurementError where nothing could
    be measured."""
    from evaluation.measure import measure

    measuring = line.measurement
    found = measure(
        server.url,
        prompts,
        arms=arms,
        draft_len=line.draft_len,
        max_tokens=max_tokens or measuring.max_tokens,
        temperatures=measuring.temperatures,
        seed=seed,
        concurrency=measuring.concurrency,
        speed_prompts=speed_prompts,
        speed_concurrencies=measuring.speed_concurrencies,
        timed=[arm for arm in arms if arm != "ngram" or measuring.time_ngram],
        consecutive_errors=measuring.consecutive_errors,
        journal=journal,
        key=key,
        progress=progress,
        notice=log.warning,
    )
    code = server.exit_code()
    if found.incomplete is None or code is None:
        return found
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    why = f"{found.incomplete}; the server ended by {how}, its log is {server.log}"
    return replace(found, incomplete=why)


def run_trial(
    target: Path,
    arms: Mapping[str, str],  # name -> draft; "none" has to be among them
    prompts: Sequence[Prompt],
    folder: Path,  # journal, log and report.json
    *,
    line: Pairing,
    speed_prompts: int,
    serving: Serving | None = None,
    adapters: Mapping[str, Path] | None = None,
    max_tokens: int | None = None,  # None: as the pairing measures
    passed_over: int = 0,  # prompts left out since a draft had learned from them
    progress: Progress,
) -> Report:
    """Measure the arms and write folder/report.json. Goes on from the folder's journal.

    Raises EndpointError when the server does not come up, MeasurementError when nothing can be
    measured of it. What was cut short is in the report, `incomplete` with the reason.
    """
    from evaluation.report import report_of

    facts = pair_facts(target, arms, prompts, passed_over=passed_over)
    with trial_server(
        target, arms, folder, line=line, serving=serving, adapters=adapters
    ) as measure:
        measured = measure(
            prompts,
            folder / "journal.jsonl",
            speed_prompts=speed_prompts,
            max_tokens=max_tokens,
            progress=progress,
        )
    report = report_of(measured, tokenizer=line.measurement.tokenizer, facts=facts)
    report.write(folder / "report.json")
    return report


def complete(report: Report) -> Report:
    """The report. Raises MeasurementError, with the reason, for one that was cut short: whoever
    tries again goes on from its journal."""
    from evaluation.client import MeasurementError

    if report.incomplete is not None:
        raise MeasurementError(f"measuring ended early: {report.incomplete}")
    return report


def pair_facts(
    target: Path, arms: Mapping[str, str], prompts: Sequence[Prompt], *, passed_over: int = 0
) -> PairFacts:
    """Whether the drafts fit the target, and which of the prompts they learned from."""
    from evaluation.report import PairFacts
    from evaluation.samples import is_known
    from registry.compatibility import compare

    drafts = {name: draft for name, draft in arms.items() if name in JUDGED}
    answers = {name: compare(target, draft) for name, draft in drafts.items()}
    taught = {name: learned(draft) for name, draft in drafts.items()}
    known = frozenset[str]().union(*(hashes for hashes in taught.values() if hashes is not None))
    return PairFacts(
        incompatible=tuple(
            f"{n}: {why}" for n, a in answers.items() if not a.ok for why in a.reasons
        ),
        learned=tuple(prompt.id for prompt in prompts if is_known(prompt, known)),
        passed_over=passed_over,
        unknown=tuple(name for name, hashes in taught.items() if hashes is None),
    )


def _keys(tenant: str, admin: str) -> dict[str, str]:
    """A trial's own: nobody else on this host is to ask it while it is measured."""
    files = dict.fromkeys(("PACELINE_KEYS_FILE", "PACELINE_ADMIN_KEYS_FILE"), "")
    return {**files, "PACELINE_KEYS": f"trial={tenant}", "PACELINE_ADMIN_KEYS": admin}
