"""Real processes, killed at every step of a swap: whatever they leave, the next start heals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import journal as steps
from tests.serving.following import Scene, lived
from tests.serving.registry_stand_in import PAIRING, StandIn, stand_in
from tests.toys import toy_target_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# One process loads the libraries; each server is forked from it, and kills itself.
DRIVER = """
import json, os, signal, sys
from pathlib import Path

import serving.running
from registry import remote
from serving.journal import Journal
from serving.main import serve
from serving.settings import ServeSettings


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def torn(file):
    os.ftruncate(file, os.fstat(file).st_size - 9)
    die()


def deadly(step, pair, moment):
    write = Journal.write

    def writes(journal, name, of, *more):
        now = (name, of) == (step, pair)
        if now and moment == "before":
            die()
        if now and moment == "torn":
            os.fsync = torn
        written = write(journal, name, of, *more)
        if now and moment == "after":
            die()
        return written

    Journal.write = writes
    if moment == "a file":
        fetch = remote._file
        remote._file = lambda *given, **more: (fetch(*given, **more), die())
    if moment == "all files":
        remote._settle = die


for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        deadly(given.pop("step"), given.pop("pair"), given.pop("moment"))
        serve(ServeSettings(**given | {"home": Path(given["home"]), "port": 0}))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
SWAP = (*steps.OPEN, steps.SWITCHED)
RESUME = (steps.DOWNLOADED, steps.LOADED, steps.PROBED, steps.RESUMED)
MOMENTS = [
    *((step, "new", moment) for step in SWAP for moment in ("before", "torn", "after")),
    *((step, "old", "after") for step in (*RESUME, steps.FREED)),
    *(("", "new", moment) for moment in ("a file", "all files")),
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def versions(
    registry: StandIn,
    target_folder: Path,
    draft_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[int, int, int]:
    """What serves first, another draft for it, and a pair of another target."""
    other = toy_target_folder(tmp_path_factory.mktemp("other") / "other", seed=5, layers=2)
    return (
        registry.register(target_folder, "ngram"),
        registry.register(target_folder, draft_folder),
        registry.register(other, "none"),
    )


@pytest.fixture(scope="module")
def begun(
    registry: StandIn, versions: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The home of a server that has served the first pair and ended."""
    home = tmp_path_factory.mktemp("homes") / "begun"
    home.mkdir()
    registry.promote(versions[0])

    async def life(scene: Scene) -> None:
        assert await scene.look() == registry.pair_id(versions[0])

    lived(home, registry, life)
    return home


@pytest.fixture(scope="module")
def driver() -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", DRIVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def killed(driver: subprocess.Popen[str], **given: Any) -> None:
    """Let a server run until it kills itself."""
    assert driver.stdin is not None
    assert driver.stdout is not None
    print(json.dumps(given | {"pairing": PAIRING, "poll_seconds": 0.02}), file=driver.stdin)
    driver.stdin.flush()
    assert driver.stdout.readline() == "-9\n"


def heals(home: Path, registry: StandIn, first: str | None, then: str) -> None:
    """A start without the registry serves `first`; with it `then`, and nothing is left over."""
    registry.away = True

    async def life(scene: Scene) -> None:
        running = asyncio.ensure_future(scene.follower.run())
        while scene.pair is None:
            await asyncio.sleep(0.01)
        assert scene.pair == first
        await scene.answer()
        registry.away = False
        while scene.pair != then:
            await asyncio.sleep(0.01)
        await scene.answer()
        running.cancel()
        await asyncio.wait({running})
        assert scene.failed == []

    lived(home, registry, life, poll_seconds=0.02)
    pairs = home / "serving" / "pairs"
    assert not [one.name for one in pairs.iterdir() if one.name.endswith((".partial", ".broken"))]
    lines = (home / "serving" / "journal.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert (told[-1]["step"], told[-1]["pair"]) in [
        (name, pair)
        for name in (steps.SWITCHED, steps.RESUMED, steps.FREED)
        for pair in (first, then)
    ]


@pytest.mark.parametrize(("step", "which", "moment"), MOMENTS)
def test_a_process_that_is_killed_at_any_step_is_healed_by_the_next(
    driver: subprocess.Popen[str],
    registry: StandIn,
    versions: tuple[int, int, int],
    begun: Path,
    tmp_path: Path,
    step: str,
    which: str,
    moment: str,
) -> None:
    home = shutil.copytree(begun, tmp_path / "home")
    old, new = registry.pair_id(versions[0]), registry.promote(versions[1])
    pair = new if which == "new" else old
    killed(driver, home=str(home), registry=registry.url, step=step, pair=pair, moment=moment)
    done = (step, moment) == (steps.SWITCHED, "after") or step == steps.FREED
    heals(home, registry, new if done else old, new)


@pytest.mark.parametrize(("step", "which"), [(steps.FREED, "old"), (steps.LOADED, "new")])
def test_a_process_that_is_killed_while_no_pair_is_in_memory_is_healed_by_the_next(
    driver: subprocess.Popen[str],
    registry: StandIn,
    versions: tuple[int, int, int],
    begun: Path,
    tmp_path: Path,
    step: str,
    which: str,
) -> None:
    home = shutil.copytree(begun, tmp_path / "home")
    old, new = registry.pair_id(versions[0]), registry.promote(versions[2])
    given: dict[str, Any] = {"home": str(home), "registry": registry.url, "together": False}
    killed(driver, **given, step=step, pair=new if which == "new" else old, moment="after")
    heals(home, registry, old, new)


def test_a_pair_that_kills_every_process_that_loads_it_does_so_twice(
    driver: subprocess.Popen[str],
    registry: StandIn,
    versions: tuple[int, int, int],
    begun: Path,
    tmp_path: Path,
) -> None:
    home = shutil.copytree(begun, tmp_path / "home")
    old = registry.pair_id(versions[0])
    new = registry.promote(versions[1])
    for _ in range(2):
        given = {"home": str(home), "registry": registry.url}
        killed(driver, **given, step=steps.PROBED, pair=new, moment="before")

    async def life(scene: Scene) -> None:
        assert await scene.look() == old
        assert await scene.look(after_seconds=100_000) == old
        assert "ended or hung 2 times" in scene.failed[0]

    lived(home, registry, life)
