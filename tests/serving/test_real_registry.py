"""A server that follows a real MLflow server: promotions, what is done by hand there, damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitoring.outbox import Outbox
from registry.fingerprint import fingerprint
from registry.promotion import promote, rollback
from registry.remote import champion, download
from registry.standing_in import fall_back, go_live
from registry.store import PairVersion
from serving.settings import ServeSettings
from speculation.records import Alarm, Phase
from tests.serving.real_registry import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    ROOT,
    Paceline,
    Registry,
    environment,
    paceline,
    real_registry,
)
from tests.serving.served import serving
from tests.toys import toy_draft_folder, toy_target_folder

pytestmark = pytest.mark.slow  # a real MLflow server, and a server in a process of its own


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with real_registry(tmp_path_factory.mktemp("mlflow")) as registry:
        yield registry


@pytest.fixture(scope="module")
def other_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_target_folder(tmp_path_factory.mktemp("other") / "other", seed=5, layers=2)


def promoted(registry: Registry, pair: PairVersion, **more: Any) -> PairVersion:
    found = registry.store.champion(pair.pairing)
    expect = None if found is None else found.version
    told = promote(registry.store, pair.pairing, pair.version, expect=expect, **more)
    assert told.ok, told.statement
    return pair


def alarms(home: Path) -> list[Alarm]:
    return Outbox(home / "monitoring" / "outbox").pending()


class Clients:
    """Ask without a pause until the block ends; what each answer took."""

    def __init__(self, server: Paceline, count: int = 2) -> None:
        self._server, self._ended = server, threading.Event()
        self.answers: list[dict[str, Any]] = []
        self.faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.answers.append(self._server.ask(tokens=40))
            except BaseException as fault:  # told by the test
                self.faults.append(fault)
                return

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_what_is_promoted_rolled_back_or_moved_by_hand_is_followed_while_requests_run(
    registry: Registry, target_folder: Path, draft_folder: Path, other_target: Path, tmp_path: Path
) -> None:
    ngram = registry.add("followed", target_folder, "ngram")
    head = registry.add("followed", target_folder, draft_folder)
    plain = registry.add("followed", target_folder, "none")
    other = registry.add("followed", other_target, "none")
    promoted(registry, ngram)
    with paceline(tmp_path / "home", registry.url, "followed") as server:
        server.until_served(ngram)
        with Clients(server) as clients:
            server.until_served(promoted(registry, head))  # a swap of the draft alone
            assert rollback(registry.store, "followed", to=ngram.version).ok
            server.until_served(ngram)
            registry.move_by_hand(plain)  # a pair that passed, whoever moved the alias
            server.until_served(plain)
            server.until_served(promoted(registry, other))  # and of the target
        assert clients.faults == []
        served = {(one["pair"], one["release"]) for one in clients.answers}
        assert served <= {(pair.pair_id, pair.release) for pair in (ngram, head, plain, other)}
        assert {pair.pair_id for pair in (ngram, head, plain)} <= {pair for pair, _ in served}
        assert server.failed() == []
        assert server.gauge('paceline_swaps_total{outcome="switched"}') == 5
    assert alarms(tmp_path / "home") == []


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def altered(file: Path) -> None:
    stored = file.read_bytes()
    file.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (truncated, "sha256"),
    (altered, "sha256"),
    (Path.unlink, "is gone from the server"),
]


def test_a_pair_that_is_damaged_in_the_registry_is_told_once_and_served_when_it_is_mended(
    registry: Registry, target_folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    old = promoted(registry, registry.add("damaged", target_folder, "ngram"))
    with paceline(home, registry.url, "damaged") as server:
        server.until_served(old)
        for count, (damage, said) in enumerate(DAMAGE, 1):
            draft = toy_draft_folder(target_folder, tmp_path / str(count), seed=count)
            new = registry.add("damaged", target_folder, draft)
            file = registry.stored(new, "draft/model.safetensors")
            whole = file.read_bytes()
            damage(file)
            promoted(registry, new)
            server.until(lambda new=new: refused(server, new))  # type: ignore[misc]
            time.sleep(5 * POLL_SECONDS)  # it is tried again meanwhile, and nothing is told anew
            (failed,) = [one for one in server.failed() if one["pair"] == new.pair_id]
            assert "draft/model.safetensors" in failed["why"]
            assert said in failed["why"]
            assert len(alarms(home)) == count
            assert new.pair_id in alarms(home)[-1].statement
            assert server.ready()
            assert server.ask()["pair"] == old.pair_id
            assert not (home / "serving" / "pairs" / new.pair_id).exists()
            file.write_bytes(whole)
            server.until_served(new)  # nobody had to ask
            assert server.told()["refused"] == []
            old = new


def refused(server: Paceline, pair: PairVersion) -> bool:
    return {"pair": pair.pair_id, "version": str(pair.version)} in server.told()["refused"]


def until_refused(server: Paceline, pair: PairVersion, why: str) -> None:
    """It is told of, then written down with its reason: one may be seen before the other."""
    server.until(lambda: refused(server, pair))
    server.until(lambda: any(why in one["why"] for one in server.failed()[-1:]))


def test_what_was_done_by_hand_in_mlflow_is_named_and_not_served(
    registry: Registry, target_folder: Path, draft_folder: Path, other_target: Path, tmp_path: Path
) -> None:
    home, client = tmp_path / "home", registry.store.client
    for number in range(20):  # other people's
        client.create_registered_model(f"theirs-{number}")
        client.create_model_version(f"theirs-{number}", source="s3://theirs/model")
        client.set_registered_model_alias(f"theirs-{number}", "champion", "1")
    good = promoted(registry, registry.add("by-hand", target_folder, "none"))
    failed = registry.add("by-hand", target_folder, "ngram", phase=Phase.FAIL)
    unjudged = registry.add("by-hand", target_folder, draft_folder, phase=None)
    dead_draft = toy_draft_folder(target_folder, tmp_path / "dead", seed=9)
    dead = promoted(registry, registry.add("by-hand", target_folder, dead_draft))
    assert rollback(registry.store, "by-hand", to=good.version, reason="it was dead").ok
    moved = {
        "it has the verdict FAIL": failed,
        "it has the verdict UNJUDGED": unjudged,
        "it was rolled back (it was dead)": dead,
    }
    with paceline(home, registry.url, "by-hand") as server:
        server.until_served(good)
        for count, (why, pair) in enumerate(moved.items(), 1):
            registry.move_by_hand(pair)
            until_refused(server, pair, f"moved to it by hand, and {why}")
            server.until(lambda count=count: len(alarms(home)) >= count)  # type: ignore[misc]
            assert pair.pair_id in alarms(home)[-1].statement
            assert len(alarms(home)) == count
            assert server.ask()["pair"] == good.pair_id
            assert not (home / "serving" / "pairs" / pair.pair_id).exists()
        # Forced, with the reason, it is served.
        for pair, before in ((dead, dead), (failed, dead)):
            told = promote(
                registry.store, "by-hand", pair.version, expect=before.version, force="I know"
            )
            assert told.ok, told.statement
            server.until_served(pair)

        # A pair of another pairing, copied with all its tags: of another target.
        theirs = registry.add("anothers", other_target, "none")
        copied = client.create_model_version(
            "by-hand",
            source=f"models:/{theirs.model_id}",
            tags=dict(theirs.tags),
            model_id=theirs.model_id,
        )
        copy = registry.store.pair("by-hand", int(copied.version))
        assert copy is not None
        assert copy.passed
        registry.move_by_hand(copy)
        until_refused(server, copy, "is none of by-hand's")
        assert server.ask()["pair"] == failed.pair_id

        # A version that is no pair, and then no champion at all.
        foreign = client.create_model_version("by-hand", source="s3://theirs/model")
        client.set_registered_model_alias("by-hand", "champion", foreign.version)
        server.until(lambda: "is no pair of Paceline's" in str(server.told()["trouble"]))
        client.delete_model_version("by-hand", foreign.version)
        server.until(lambda: "has no champion" in str(server.told()["trouble"]))
        client.delete_model_version("by-hand", str(failed.version))  # what is served
        assert server.ask()["pair"] == failed.pair_id
        assert server.ready()
        server.until_served(promoted(registry, good))
        assert server.told()["trouble"] is None


def test_a_target_that_is_released_anew_in_its_place_is_not_served_by_the_old_pair(
    registry: Registry, target_folder: Path, draft_folder: Path, other_target: Path, tmp_path: Path
) -> None:
    home, place = tmp_path / "home", shutil.copytree(target_folder, tmp_path / "target")
    first = promoted(registry, registry.add("anew", place, draft_folder))
    with paceline(home, registry.url, "anew") as server:
        before = server.until_served(first)
        shutil.copy(other_target / "model.safetensors", place / "model.safetensors")
        assert fingerprint(place).digest != first.release
        # What is in memory is what was released first; falling back within it needs no folder.
        assert server.ask()["release"] == before["release"]
        back = fall_back(registry.store, "anew", "none", reason="it is dead")
        assert back.champion is not None
        server.until_served(back.champion)
    with paceline(home, registry.url, "anew") as server:  # a start reads the folder
        server.until(lambda: len(server.failed()) > 0)
        assert "weights changed" in server.failed()[0]["why"]
        assert not server.ready()
        assert server.client.post("/v1/completions", json={"prompt": "x"}).status_code == 503
        # As the flow does it `at_once`, where no trial was won, or after `max_wait_hours`.
        released = fingerprint(place)
        registry.store.register_release("anew", place, released)
        live = go_live(registry.store, "anew", place, released, "ngram", why="at once")
        assert live.ok, live.statement
        assert live.champion is not None
        usage = server.until_served(live.champion)
        assert usage["release"] == fingerprint(place).digest == live.champion.release
        assert usage["drafter"] == "ngram"
        # The old pair was left, and is of the release that was: moved by hand it reaches no user.
        registry.move_by_hand(first)
        until_refused(server, first, "it was rolled back (it is dead)")
        assert server.ask()["pair"] == live.champion.pair_id
        # The new release's own draft follows as a swap of the draft alone.
        registry.move_by_hand(live.champion)
        own = toy_draft_folder(place, tmp_path / "own", seed=7)
        server.until_served(promoted(registry, registry.add("anew", place, own)))


def test_a_draft_of_another_release_is_served_in_a_trial_only(
    registry: Registry, target_folder: Path, draft_folder: Path, other_target: Path, tmp_path: Path
) -> None:
    pair = promoted(registry, registry.add("trial", target_folder, draft_folder))
    found = champion(registry.url, "trial")
    assert found is not None
    fetched = download(found, tmp_path)
    argv = ["serve", str(other_target), "--draft", str(fetched), "--home", str(tmp_path / "no")]
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *argv, "--port", "0"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "was validated for release" in done.stderr
    trial = ServeSettings(
        home=tmp_path / "trial", target=other_target, trial=True, arms={"candidate": str(fetched)}
    )
    with serving(trial) as served:
        told = served.client.get("/admin/pair").json()
        assert not told["verified"]
        assert told["pair"] != pair.pair_id  # on another release it is another pair
