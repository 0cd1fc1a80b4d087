"""The demo's steps, each a function that may be killed and called again.

A step that ended is remembered in home/demo/; a step that did not goes on from what the flows, the
registry and the files below hold. Knows the order of nothing: cli/demo.py tells the story.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.demo_story import PROMPTS, Story
from cli.demo_swap import swapped_at, under_load, wait_for_pair
from cli.demo_traffic import compare, plain_server
from cli.demo_wait import wait_for_outcome
from cli.output import Progress
from cli.programs import HOST
from cli.stack import Stack
from configuration.prompts import read_prompts, write_prompts
from evaluation.endpoints import free_port
from flows.line import work_folder
from flows.steps import once, read_json

if TYPE_CHECKING:
    from monitoring.series import Entry

PAIRING = "docstrings"
SWAP_SECONDS = 120.0  # the server has to load the new target and draft beside the old ones
AFTER_SWAP_SECONDS = 3.0  # load goes on so long, so that the new pair answers too
AT_ONCE = 3  # requests in flight while the pair is swapped
AT_ONCE_MEASURED = 8  # requests at once while acceptance is measured; the server has as many slots
TRAFFIC = 6  # prompts whose speed is shown beside plain decoding
SWAP_TOKENS = 48  # of an answer while the pair is swapped


@dataclass(frozen=True)
class Demo:
    """What every step needs."""

    home: Path
    story: Story
    stack: Stack
    say: Callable[[str, Mapping[str, Any]], None]  # a sentence for people, the same as JSON
    progress: Progress
    live: Callable[[Mapping[str, Any]], None]  # figures of traffic, as they come
    told: dict[str, set[str]] = field(default_factory=dict)  # steps of a release whose end was said

    @property
    def marks(self) -> Path:
        return self.home / "demo"

    @property
    def registry(self) -> str:
        return self.stack.urls["mlflow"]


def prepare(home: Path, story: Story) -> None:
    """Release 1's folder, the prompts and paceline.toml: all there, or made now.

    Raises ValueError where a paceline.toml stands that is not this demo's.
    """
    from configuration.reading import FILE, read_settings
    from configuration.settings import Measuring, Pairing
    from configuration.writing import write_default
    from evaluation.policy import Policy
    from training.recipe import Recipe

    target = home / "targets" / "release-1"
    line = Pairing(
        target=str(target),
        initial_draft="" if story.initial_draft is None else str(story.initial_draft),
        measurement=Measuring(
            max_tokens=story.max_tokens,
            concurrency=AT_ONCE_MEASURED,
            time_ngram=False,  # minutes here, and nothing is judged by it
        ),
        recipe=Recipe(**story.recipe),
        policy=Policy(prompts=story.evaluation_prompts),
    )
    file = home / FILE
    write_default(file, {PAIRING: line})  # first: what is wrong is said before the long work
    found = read_settings(home, environ={}).pairings.get(PAIRING)
    if found != line:
        got = f"no pairing {PAIRING}" if found is None else f"another pairing {PAIRING}"
        raise ValueError(
            f"got {got} in {file}, wanted the demo's own: move that file away, or choose another "
            "folder with --home"
        )
    read_settings(home, environ=os.environ)  # as the flows will
    story.first_release(target)
    files = {name: home / "prompts" / f"{name}.jsonl" for name in PROMPTS}
    if not all(path.exists() for path in files.values()):
        prompts = story.prompts(target)
        for name, path in files.items():
            write_prompts(path, prompts[name])


def release(demo: Demo, number: int, folder: Path) -> dict[str, Any]:
    """Announce release `number`: after this everything is the flows' doing."""
    from monitoring.series import Mark, append
    from registry.fingerprint import fingerprint
    from registry.store import Store

    def announce() -> dict[str, Any]:
        found = fingerprint(folder, progress=lambda done, total, what: None)
        version = Store(demo.registry).register_release(PAIRING, folder, found)
        mark = Mark(version.registered, "release", str(number))
        append(demo.home / "monitoring" / "series.jsonl", [mark])
        return {"release": found.digest, "version": version.version, "folder": str(folder)}

    return once(demo.marks, f"release-{number}", {"folder": str(folder)}, announce)


def make_pair(
    demo: Demo,
    released: Mapping[str, Any],
    *,
    reached: Callable[[], bool] = lambda: False,
) -> dict[str, Any] | None:
    """Wait until the flows have made, judged and perhaps promoted the release's pair."""
    from flows.missing import concluded, retrain_key
    from flows.runs import hurry
    from registry.store import Store

    release = str(released["release"])
    work, store = folder_of(demo, released), Store(demo.registry)

    def ended() -> dict[str, Any] | None:
        pairs, champion = store.pairs(PAIRING), store.champion(PAIRING)
        return concluded(release, pairs, champion)

    def key() -> str:
        return retrain_key(PAIRING, release, store.pairs(PAIRING))

    return wait_for_outcome(
        work,
        key,
        told=demo.told.setdefault(release, set()),
        done=lambda step, result: demo.say(_told(step, result), {"step": step}),
        progress=demo.progress,
        hurry=lambda: hurry(key()),
        concluded=ended,
        check=demo.stack.check,
        reached=reached,
    )


def folder_of(demo: Demo, released: Mapping[str, Any]) -> Path:
    """Where the flows work for that release."""
    return work_folder(demo.home, PAIRING, str(released["release"]))


def measured(work: Path) -> list[dict[str, Any]] | None:
    """The rows of the report in `work`; None when it is not measured yet."""
    marker = read_json(work / "evaluate.done.json")
    return None if marker is None else list(marker["result"]["rows"])


def serve(demo: Demo) -> None:
    """Start the speculative server and its monitor, where they are not up yet."""
    if "server" not in demo.stack.urls:
        url = demo.stack.start_server(PAIRING)
        demo.stack.start_monitor(PAIRING)
        demo.say(f"serving at {url}/v1", {"server": url})


def traffic(demo: Demo, released: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Ask the server and a plain one the same prompts that nothing was trained on."""

    def run() -> dict[str, Any]:
        prompts = read_prompts(demo.home / "prompts" / "traffic.jsonl")[:TRAFFIC]
        folder = demo.home / "run" / "plain"
        port = free_port()
        with demo.stack.child(
            "plain",
            plain_server(Path(released["folder"]), port, folder),
            ready_url=f"http://{HOST}:{port}/health/ready",
        ) as plain:
            return compare(
                demo.stack.urls["server"],
                plain.url,
                prompts,
                max_tokens=demo.story.max_tokens,
                show=demo.live,
                check=demo.stack.check,
            )

    return once(demo.marks, f"traffic-{name}", {"release": released["release"]}, run)


def swap(demo: Demo, released: Mapping[str, Any]) -> dict[str, Any]:
    """Let the flows end and the server swap while requests are under way.

    Gives the outcome and the swap: requests in flight at that moment, failed of all. Killed after
    the promotion and before this was noted, the server has the new pair from its start: then no
    swap was seen, and the record says so.
    """
    from monitoring.series import Mark, append
    from registry.store import Store

    def run() -> dict[str, Any]:
        prompts = read_prompts(demo.home / "prompts" / "traffic.jsonl")
        url = demo.stack.urls["server"]
        check = demo.stack.check
        with under_load(url, prompts, at_once=AT_ONCE, max_tokens=SWAP_TOKENS, check=check) as load:
            outcome = make_pair(demo, released)
            assert outcome is not None
            champion = Store(demo.registry).champion(PAIRING)
            if not outcome["promoted"] or champion is None:
                return {"outcome": outcome, "swap": None}
            at = datetime.fromisoformat(champion.promoted).timestamp()
            mark = Mark(at, "promotion", f"v{champion.version}", champion.pair_id)
            append(demo.home / "monitoring" / "series.jsonl", [mark])
            told = wait_for_pair(url, champion.pair_id, seconds=SWAP_SECONDS, check=check)
            if told is None:
                raise RuntimeError(
                    f"the server at {url} did not take pair {champion.pair_id} in "
                    f"{SWAP_SECONDS:g} s: see {demo.home / 'run' / 'server.log'}"
                )
            time.sleep(AFTER_SWAP_SECONDS)
        moment = swapped_at(told, champion.pair_id)
        swapped = {
            "requests_in_flight": 0 if moment is None else load.in_flight_at(moment),
            "failed": load.failed,
            "requests": len(load.spans),
            "seen": moment is not None,
            "faults": load.faults[:3],
        }
        return {"outcome": outcome, "swap": swapped}

    return once(demo.marks, "swap", {"release": released["release"]}, run)


def picture(demo: Demo, released: Mapping[str, Any], version: int) -> Path:
    """home/acceptance.png, also shown on the new pair's page in MLflow.

    The old draft never serves the new release: what it reached there in its trial is drawn apart.
    """
    from monitoring.plot import plot_acceptance
    from monitoring.series import read_series
    from registry.pictures import log_picture
    from registry.store import Store

    served = read_series(demo.home / "monitoring" / "series.jsonl")
    drawn = plot_acceptance(
        sorted([*served, *_old_draft(folder_of(demo, released))], key=lambda entry: entry.at),
        demo.home / "acceptance.png",
        title="Acceptance of the served pair, and of the old draft on the new target",
    )
    store = Store(demo.registry)
    pair = store.pair(PAIRING, version)
    if pair is not None and pair.run_id:
        log_picture(store, pair.run_id, drawn)
    return drawn


def _old_draft(work: Path) -> list[Entry]:
    """The old draft's first trial on the new target, as a point of its own."""
    from monitoring.series import Point
    from speculation.records import Interval

    marker = read_json(work / "look.done.json")
    if marker is None or marker["result"]["now"] is None:
        return []
    plan = marker["result"]
    return [
        Point(
            at=marker["started"] + marker["seconds"],
            pair=f"{plan['parent']} on release {plan['version']}, trial only",
            drafter="head",
            release=plan["release"],
            draft_len=0,
            requests=plan["now"]["n"],
            acceptance=Interval(**plan["now"]),
            standardised=None,
            acceptance_length=None,
            hazards=(),
            forwards_per_request=None,
            tokens_per_second=None,
        )
    ]


def environment(stack: Stack) -> None:
    """What the libraries of this process read, once the servers are up."""
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_"))]:
        del os.environ[name]
    os.environ.update(stack.environ())


def _told(step: str, result: Mapping[str, Any]) -> str:
    if step == "look":
        return f"the draft to begin with: {result['choice']}, because {result['why']}"
    if step == "gate":
        findings = result["verdict"]["findings"]
        lines = [f"  {f['phase']:12} {f['rule']}: {f['statement']}" for f in findings]
        return "\n".join([f"the gate says {result['phase']}", *lines])
    if step == "register":
        return f"registered as version {result['version']}: pair {result['pair_id']}"
    if step == "settle":
        return str(result["statement"])
    return f"{step}: done"
