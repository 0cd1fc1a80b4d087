"""The follower's decisions, look by look: what it refuses, what it waits for, what nothing ends."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.errors import DigestError, StoreError
from registry.remote import RemotePair, download
from serving import journal as steps
from serving.journal import Journal, Step
from serving.loading import Host, Loaded, RefusedPairError
from serving.pairs_on_disk import PairsOnDisk
from serving.probing import ProbeError
from serving.room import need_of
from speculation.cache import ROOM
from speculation.head import load_head
from speculation.sequence import Request
from tests.serving.following import Scene, lived
from tests.serving.registry_stand_in import StandIn, stand_in
from tests.toys import toy_target_folder


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture(scope="module")
def other_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_target_folder(tmp_path_factory.mktemp("other") / "other", seed=5, layers=2)


@pytest.fixture(scope="module")
def mute_draft(draft_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head whose weights are found not to be numbers when they are loaded, and no sooner."""
    folder = shutil.copytree(draft_folder, tmp_path_factory.mktemp("mute") / "mute")
    weights = load_file(folder / "model.safetensors")
    weights["fc.weight"] = weights["fc.weight"] * float("nan")
    save_file(weights, folder / "model.safetensors")
    return folder


def full(*_: object) -> Step:
    raise OSError(errno.ENOSPC, "No space left on device")


class PanicException(BaseException):
    """As libraries in Rust raise it."""


def panics(*_: object) -> None:
    raise PanicException


def test_nothing_that_the_registry_says_ends_the_follower(
    registry: StandIn, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))
    old, new = registry.pair_id(first), registry.pair_id(second)

    async def life(scene: Scene) -> None:
        registry.promote(first)
        assert await scene.look() == old
        registry.promote(second)
        for body in (b"{}", b"[1]", b"<html>", b'{"model_version": {"version": "x"}}'):
            registry.says = body
            assert await scene.look() == old
            assert "does not answer as MLflow does" in str(scene.follower.trouble)
        registry.says = None
        champion = scene.follower._champion
        monkeypatch.setattr(scene.follower, "_champion", lambda: 1 // 0)
        assert await scene.look() == old
        assert scene.follower.trouble == "ZeroDivisionError: integer division or modulo by zero"
        monkeypatch.setattr(scene.follower, "_champion", champion)
        assert await scene.look() == new
        assert scene.follower.trouble is None
        assert scene.failed == []

    lived(tmp_path, registry, life)


def test_what_is_served_is_loaded_anew_from_its_files_once_for_each_time_that_is_asked_for(
    registry: StandIn, target_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    pair = registry.promote(registry.register(target_folder, draft_folder))

    async def life(scene: Scene) -> None:
        assert await scene.look() == pair
        before = weakref.ref(scene.loaded)
        host = scene.loaded.host
        await scene.look()
        assert scene.loaded is before()
        scene.follower.hurry(reload=True)
        assert await scene.look() == pair
        again = scene.loaded
        assert again is not before(), "the weights in memory may be the broken ones"
        assert again.host is host, "of the draft; the target stays where it is"
        await scene.look()
        assert scene.loaded is again
        assert scene.failed == []
        await scene.answer()

    lived(tmp_path, registry, life)


@pytest.mark.parametrize("step", [steps.FOUND, steps.SWITCHED])
def test_a_disk_that_is_full_at_any_step_costs_the_swap_and_nothing_else(
    registry: StandIn,
    target_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        old = registry.promote(first)
        assert await scene.look() == old
        new = registry.promote(second)
        write = Journal.write

        def fills(journal: Journal, name: str, pair: str, *more: str) -> Step:
            return full() if name in (step, steps.FAILED) else write(journal, name, pair, *more)

        monkeypatch.setattr(Journal, "write", fills)
        assert await scene.look() == old
        assert len(scene.failed) == 1
        assert "No space left" in scene.failed[0]
        await scene.answer()
        monkeypatch.setattr(Journal, "write", write)
        assert await scene.look() == old  # not at once
        assert await scene.look(after_seconds=10) == new

    lived(tmp_path, registry, life)


def test_a_start_serves_the_last_good_pair_whatever_else_is_gone(
    registry: StandIn, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = registry.promote(registry.register(target_folder, "ngram"))

    async def life(scene: Scene) -> None:
        assert await scene.look() == good

    lived(tmp_path, registry, life)
    with (tmp_path / "serving" / "journal.jsonl").open("a") as file:
        file.write("torn")
    registry.away = True
    monkeypatch.setattr("os.fsync", full)

    async def again(scene: Scene) -> None:
        assert await scene.look() == good
        assert scene.follower.trouble is not None
        assert scene.follower.history[0]["why"] == "from the local copy"
        await scene.answer()

    lived(tmp_path, registry, again)


def test_a_start_does_not_wait_for_the_registry(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    good = registry.promote(registry.register(target_folder, "ngram"))

    async def life(scene: Scene) -> None:
        assert await scene.look() == good

    lived(tmp_path, registry, life)

    async def again(scene: Scene) -> None:
        asking, answering = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow() -> None:
            loop.call_soon_threadsafe(asking.set)
            asyncio.run_coroutine_threadsafe(answering.wait(), loop).result()

        scene.follower._champion = slow
        looking = asyncio.ensure_future(scene.follower.look())
        await asking.wait()
        assert scene.pair == good
        answering.set()
        await looking

    lived(tmp_path, registry, again)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"verdict": "FAIL"}, "it has the verdict FAIL"),
        ({"rolled_back": "it was dead"}, "it was rolled back (it was dead)"),
    ],
)
def test_a_pair_that_did_not_pass_or_was_left_is_seen_named_and_not_served(
    registry: StandIn, target_folder: Path, tmp_path: Path, told: dict[str, str], said: str
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        old = registry.promote(first)
        assert await scene.look() == old
        new = registry.promote(second)
        scene.forced = told
        for _ in range(3):
            assert await scene.look(after_seconds=10_000) == old
        assert len(scene.failed) == len(scene.alarms) == 1
        assert said in scene.alarms[0].statement
        assert registry.downloads == [f"{registry.place(first).name}/pair.json"]
        scene.forced = {**told, "forced": "the incumbent is broken"}
        assert await scene.look() == new

    lived(tmp_path, registry, life)


def harmful(home: Path, registry: StandIn, good: int, bad: int, *, step: str) -> None:
    """What two processes have left that ended while they loaded, or tried, the pair `bad`."""

    async def life(scene: Scene) -> None:
        registry.promote(good)
        await scene.look()

    lived(home, registry, life)
    pair = registry.promote(bad)
    for _ in range(2):
        journal = Journal(home / "serving" / "journal.jsonl")
        for name in steps.OPEN[: steps.OPEN.index(step) + 1]:
            journal.write(name, pair, str(bad))


def test_a_pair_that_has_ended_two_processes_is_left_alone_until_somebody_asks(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    good, bad = (registry.register(target_folder, kind) for kind in ("none", "ngram"))
    harmful(tmp_path, registry, good, bad, step=steps.LOADED)

    async def life(scene: Scene) -> None:
        for _ in range(3):
            assert await scene.look(after_seconds=10_000) == registry.pair_id(good)
        assert len(scene.alarms) == 1
        assert "ended or hung 2 times" in scene.failed[0]
        scene.follower.hurry()
        assert await scene.look() == registry.pair_id(bad)

    lived(tmp_path, registry, life)


def test_a_process_that_ended_before_it_had_the_pair_says_nothing_of_it(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    good, bad = (registry.register(target_folder, kind) for kind in ("none", "ngram"))
    harmful(tmp_path, registry, good, bad, step=steps.FOUND)

    async def life(scene: Scene) -> None:
        assert await scene.look() == registry.pair_id(bad)

    lived(tmp_path, registry, life)


def test_a_server_that_is_told_to_end_in_a_swap_does_not_speak_against_the_pair(
    registry: StandIn, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, slow = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        registry.promote(good)
        await scene.look()
        pair = registry.promote(slow)
        for _ in range(3):
            began = asyncio.Event()

            async def warm(_: object, began: asyncio.Event = began) -> None:
                began.set()
                await asyncio.sleep(60)

            monkeypatch.setattr(scene.service, "warm", warm)
            looking = asyncio.ensure_future(scene.follower.look())
            await began.wait()
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
        assert scene.written[-1] == (steps.ABANDONED, pair)
        assert scene.follower.journal.harm(pair, str(slow)) == 0

    lived(tmp_path, registry, life)


def test_a_pair_that_cannot_be_fetched_is_tried_ever_more_seldom_and_written_down_once(
    registry: StandIn, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        old = registry.promote(first)
        await scene.look()
        new = registry.promote(second)
        tries: list[float] = []

        def away(*_: object) -> Path:
            tries.append(scene.now)
            raise StoreError("away") if len(tries) % 2 else DigestError("a page of a proxy")

        scene.download = away
        before = len(scene.written)
        named = scene.follower._champion()
        monkeypatch.setattr(scene.follower, "_champion", lambda: named)
        for _ in range(300):
            assert await scene.look(after_seconds=10) == old
        assert scene.written[before:] == [(steps.FOUND, new), (steps.FAILED, new)]
        waits = [later - sooner for sooner, later in zip(tries, tries[1:], strict=False)]
        assert waits[:6] == [10, 10, 10, 20, 40, 70]  # looks are 10 s apart
        assert len(scene.alarms) == len(scene.failed) == 1
        scene.download = download
        assert await scene.look(after_seconds=3600) == new

    lived(tmp_path, registry, life)


def test_a_download_is_told_when_the_server_ends(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    registry.promote(registry.register(target_folder, "ngram"))

    async def life(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        told, began = asyncio.Event(), asyncio.Event()

        def endless(pair: RemotePair, into: Path, stopped: object) -> Path:
            loop.call_soon_threadsafe(began.set)
            assert callable(stopped)
            while not stopped():
                pass
            loop.call_soon_threadsafe(told.set)
            raise StoreError("wanted no longer")

        scene.download = endless
        running = asyncio.ensure_future(scene.follower.run())
        await began.wait()
        running.cancel()
        await told.wait()

    lived(tmp_path, registry, life)


def test_what_stays_on_the_disk_are_pairs_that_are_kept(tmp_path: Path) -> None:
    pairs = PairsOnDisk(tmp_path / "pairs")
    pairs.clean()  # there is nothing yet
    names = [f"p-{number:016x}" for number in range(3)]
    for name in (*names, f".{names[0]}.partial", f".{names[1]}.broken"):
        (pairs.folder / name / "draft").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (pairs.folder / ".link").symlink_to(outside)
    (pairs.folder / f".{names[0]}.lock").touch()
    pairs.clean()
    pairs.prune(names[:2])
    left = sorted(one.name for one in pairs.folder.iterdir())
    assert left == [".link", f".{names[0]}.lock", *names[:2]]
    for name in ("..", "p-1", "../outside", f".{names[0]}.lock"):
        with pytest.raises(RefusedPairError, match="no pair's name"):
            pairs.place(name)


def test_where_two_targets_do_not_fit_the_old_one_is_gone_before_the_new_one_is_loaded(
    registry: StandIn,
    target_folder: Path,
    other_target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = registry.register(target_folder, "ngram"), registry.register(other_target, "none")
    load = Host.load

    async def life(scene: Scene) -> None:
        registry.promote(versions[0])
        await scene.look()
        gone = weakref.ref(scene.loaded.host.target)
        loads: list[bool] = []

        def watched(*given: object) -> Host:
            loads.append(gone() is None)
            assert scene.service.unready() == "the served pair is being replaced"
            return load(*given)  # type: ignore[arg-type]  # whatever it was given

        monkeypatch.setattr(Host, "load", watched)
        running = asyncio.ensure_future(scene.answer(tokens=60))
        await asyncio.sleep(0)
        new = registry.promote(versions[1])
        scene.free = 0
        assert await scene.look() == new
        assert len(await running) == 60  # on the pair it began with: this one's were others
        assert loads == [True]
        assert scene.service.unready() is None
        await scene.answer()
        assert (steps.FREED, registry.pair_id(versions[0])) in scene.written

    lived(tmp_path, registry, life)


def test_a_draft_that_does_not_fit_beside_the_old_one_keeps_the_target(
    registry: StandIn,
    target_folder: Path,
    draft_folder: Path,
    tmp_path: Path,
) -> None:
    versions = [registry.register(target_folder, draft) for draft in ("ngram", draft_folder)]

    async def life(scene: Scene) -> None:
        registry.promote(versions[0])
        await scene.look()
        target, old = scene.loaded.host.target, weakref.ref(scene.loaded)
        tokens = scene.service.settings.max_slots * (128 + ROOM)
        scene.free = need_of(draft_folder, cached_tokens=tokens, dtype="auto").bytes
        new = registry.promote(versions[1])
        assert await scene.look() == new
        assert scene.loaded.host.target is target
        assert old() is None

    lived(tmp_path, registry, life, together=False)  # what speaks of targets only


def test_a_pair_that_fails_when_it_is_loaded_leaves_the_old_one_serving(
    registry: StandIn,
    target_folder: Path,
    other_target: Path,
    mute_draft: Path,
    tmp_path: Path,
) -> None:
    versions = (
        registry.register(other_target, "ngram"),
        registry.register(target_folder, mute_draft),
    )

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        before = await scene.answer()
        registry.promote(versions[1])
        assert await scene.look() == old
        assert "not finite" in scene.failed[0]
        assert scene.service.unready() is None
        assert await scene.answer() == before
        assert await scene.look(after_seconds=10_000) == old
        assert len(scene.failed) == 1

    lived(tmp_path, registry, life, together=False)  # it has to go first


def test_requests_that_do_not_end_keep_the_pair_that_cannot_be_replaced_beside_them(
    registry: StandIn, target_folder: Path, other_target: Path, tmp_path: Path
) -> None:
    versions = registry.register(target_folder, "ngram"), registry.register(other_target, "none")

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        step = scene.loaded.engine.step
        scene.loaded.engine.step = lambda: time.sleep(0.01) or []  # type: ignore[method-assign,func-returns-value]  # it never ends
        running = asyncio.ensure_future(scene.answer())
        await asyncio.sleep(0)
        registry.promote(versions[1])
        assert await scene.look() == old
        assert "did not end within 0.2 s" in scene.failed[0]
        assert scene.service.unready() is None
        scene.loaded.engine.step = step  # type: ignore[method-assign]
        del step  # it holds the engine
        await running
        assert await scene.look(after_seconds=10) == registry.pair_id(versions[1])

    lived(tmp_path, registry, life, together=False, deadline_seconds=0.2)


def test_a_draft_that_reads_other_layers_is_swapped_in(
    registry: StandIn, target_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(draft_folder, tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    read = config["eagle_aux_hidden_state_layer_ids"]
    config["eagle_aux_hidden_state_layer_ids"] = [1 - layer for layer in read]
    (moved / "config.json").write_text(json.dumps(config))
    assert load_head(moved, dtype=torch.float32, device=torch.device("cpu"))
    versions = [registry.register(target_folder, one) for one in (draft_folder, moved)]

    async def life(scene: Scene) -> None:
        said = set()
        target = None
        for version in versions:
            pair = registry.promote(version)
            assert await scene.look() == pair
            target = target or scene.loaded.host.target
            assert scene.loaded.host.target is target
            said.add(await scene.answer(tokens=20))
        assert len(said) == 1
        assert scene.failed == []

    lived(tmp_path, registry, life)


def test_a_local_copy_that_is_broken_is_told_and_fetched_again(
    registry: StandIn, target_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    good = registry.promote(registry.register(target_folder, draft_folder))

    async def life(scene: Scene) -> None:
        assert await scene.look() == good

    lived(tmp_path, registry, life)
    weights = tmp_path / "serving" / "pairs" / good / "draft" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    registry.away = True

    async def again(scene: Scene) -> None:
        assert await scene.look() is None
        assert "sha256" in scene.failed[0]
        registry.away = False
        assert await scene.look() == good  # nobody had to ask

    lived(tmp_path, registry, again)


def test_a_release_whose_folder_has_changed_is_refused_and_taken_when_it_is_back(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=1)
    versions = registry.register(target_folder, "ngram"), registry.register(other, "ngram")
    stored = (other / "model.safetensors").read_bytes()

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        (other / "model.safetensors").write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        new = registry.promote(versions[1])
        assert await scene.look() == old
        assert "weights changed" in scene.failed[0]
        other.rename(tmp_path / "elsewhere")
        scene.follower.hurry()
        assert await scene.look() == old
        assert "put it back" in scene.failed[1]
        (tmp_path / "elsewhere").rename(other)
        (other / "model.safetensors").write_bytes(stored)
        assert await scene.look(after_seconds=300) == new  # a folder may come back by itself

    lived(tmp_path, registry, life)


@pytest.mark.parametrize("step", ["champion", "download", "check"])
def test_a_panic_at_any_step_leaves_the_follower_and_what_is_served(
    registry: StandIn,
    target_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        old = registry.promote(first)
        assert await scene.look() == old
        new = registry.promote(second)
        places = {
            "champion": (scene.follower, "_champion"),
            "download": (scene, "download"),
            "check": (PairsOnDisk, "check"),
        }
        with monkeypatch.context() as patched:
            patched.setattr(*places[step], panics)
            assert await scene.look() == old
        told = str(scene.follower.trouble) if step == "champion" else scene.failed[0]
        assert "PanicException" in told
        assert await scene.look(after_seconds=10) == new

    lived(tmp_path, registry, life)


@pytest.mark.parametrize("together", [True, False])
def test_a_target_that_fails_when_it_is_tried_is_gone_before_anything_else_is_loaded(
    registry: StandIn,
    target_folder: Path,
    other_target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    together: bool,
) -> None:
    versions = registry.register(target_folder, "ngram"), registry.register(other_target, "none")
    load = Host.load

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        warm = scene.service.warm
        tried: list[weakref.ref[object]] = []
        again: list[bool] = []

        def watched(*given: object) -> Host:
            again.extend(one() is None for one in tried)
            host = load(*given)  # type: ignore[arg-type]  # whatever it was given
            if host.folder == other_target:
                tried.append(weakref.ref(host.target))
            return host

        async def mute(loaded: Loaded) -> None:
            await warm(loaded)
            if loaded.host.folder == other_target:
                await scene.service.worker.close(loaded)
                raise ProbeError("no answer")

        monkeypatch.setattr(Host, "load", watched)
        monkeypatch.setattr(scene.service, "warm", mute)
        registry.promote(versions[1])
        assert await scene.look() == old
        assert scene.failed == ["ProbeError: no answer"]
        assert [one() for one in tried] == [None]
        assert again == ([] if together else [True])

    lived(tmp_path, registry, life, together=together)


def test_a_pair_for_which_the_served_one_was_let_go_in_vain_is_left_alone_until_somebody_asks(
    registry: StandIn,
    target_folder: Path,
    other_target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = registry.register(target_folder, "ngram"), registry.register(other_target, "none")
    load = Host.load

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        new = registry.promote(versions[1])

        def loads(folder: Path, *more: object) -> Host:
            if folder == other_target:
                raise RuntimeError("out of memory")
            return load(folder, *more)  # type: ignore[arg-type]  # whatever it was given

        with monkeypatch.context() as patched:
            patched.setattr(Host, "load", loads)
            for _ in range(3):
                assert await scene.look(after_seconds=10_000) == old
        assert scene.written.count((steps.FREED, old)) == 1
        assert len(scene.alarms) == 1
        assert scene.service.unready() is None
        scene.follower.hurry()
        assert await scene.look() == new

    lived(tmp_path, registry, life, together=False)


def test_a_pair_that_would_not_even_fit_alone_lets_nothing_go(
    registry: StandIn, target_folder: Path, tmp_path: Path
) -> None:
    large = toy_target_folder(tmp_path / "large", seed=5, layers=3)
    versions = registry.register(target_folder, "ngram"), registry.register(large, "none")

    async def life(scene: Scene) -> None:
        registry.promote(versions[0])
        await scene.look()
        served = scene.loaded
        registry.promote(versions[1])
        scene.free = 0
        await scene.look()
        assert scene.loaded is served
        assert "once what is served is let go" in scene.failed[0]
        assert scene.service.unready() is None
        del served
        scene.free = 10**9
        assert await scene.look(after_seconds=10) == registry.pair_id(versions[1])

    lived(tmp_path, registry, life)


def test_an_answer_that_nobody_reads_holds_no_pair(
    registry: StandIn,
    target_folder: Path,
    other_target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = registry.register(target_folder, "ngram"), registry.register(other_target, "none")
    load = Host.load

    async def life(scene: Scene) -> None:
        registry.promote(versions[0])
        await scene.look()
        unread = scene.service.worker.submit([Request("r", (9, 8, 7), 8)], scene.loaded)
        gone = weakref.ref(scene.loaded.host.target)
        loads: list[bool] = []

        def watched(*given: object) -> Host:
            loads.append(gone() is None)
            return load(*given)  # type: ignore[arg-type]  # whatever it was given

        monkeypatch.setattr(Host, "load", watched)
        new = registry.promote(versions[1])
        assert await scene.look() == new
        assert loads == [True]
        assert unread.ended
        assert unread.tickets[0].pair == registry.pair_id(versions[0])

    lived(tmp_path, registry, life, together=False)


@pytest.mark.parametrize("away", [True, False])
def test_where_nothing_is_served_what_failed_is_tried_again_though_nobody_asks(
    registry: StandIn,
    target_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: bool,
) -> None:
    good = registry.promote(registry.register(target_folder, "ngram"))

    async def life(scene: Scene) -> None:
        if not away:
            scene.follower.journal.steps.clear()  # there is no copy, the champion is all there is
        with monkeypatch.context() as patched:
            patched.setattr(scene.service, "warm", mute)
            assert await scene.look() is None
            assert await scene.look(after_seconds=10) is None
        assert await scene.look() is None  # not at once
        assert await scene.look(after_seconds=300) == good
        assert len(scene.alarms) == 1

    async def mute(loaded: Loaded) -> None:
        raise ProbeError("no answer")

    async def first(scene: Scene) -> None:
        assert await scene.look() == good

    lived(tmp_path, registry, first)
    registry.away = away
    lived(tmp_path, registry, life)


def test_a_pairing_without_a_champion_is_said_once_and_clients_are_not_told_where_it_is_not(
    registry: StandIn, target_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = registry.register(target_folder, "ngram")

    async def life(scene: Scene) -> None:
        for _ in range(3):
            assert await scene.look() is None
        said = f"pairing docstrings has no champion at {registry.url}"
        assert said in scene.service.describe()["trouble"]
        assert scene.service.unready() == "pairing docstrings has no champion"
        assert len([one for one in caplog.records if said in one.message]) == 1
        registry.away = True
        assert await scene.look() is None
        assert "answers 503" in caplog.text
        registry.away = False
        pair = registry.promote(version)
        assert await scene.look() == pair
        assert scene.service.describe()["trouble"] is None
        registry.champion = None
        assert await scene.look() == pair
        assert said in scene.service.describe()["trouble"]
        assert scene.service.unready() is None

    lived(tmp_path, registry, life)


@pytest.mark.parametrize("asked", [True, False])
def test_a_download_is_ended_by_another_champion_or_whoever_asks_for_a_swap(
    registry: StandIn, target_folder: Path, tmp_path: Path, asked: bool
) -> None:
    first, second = (registry.register(target_folder, kind) for kind in ("none", "ngram"))

    async def life(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        began = asyncio.Event()

        def endless(pair: RemotePair, into: Path, stopped: Callable[[], bool]) -> Path:
            loop.call_soon_threadsafe(began.set)
            while not stopped():
                time.sleep(0.001)
            raise StoreError("wanted no longer")

        registry.promote(first)
        scene.download = endless
        looking = asyncio.ensure_future(scene.look())
        await began.wait()
        looks = registry.looks
        while registry.looks < looks + 2:  # it is the champion still, so it goes on
            await asyncio.sleep(0.01)
        assert not looking.done()
        if asked:
            scene.follower.hurry()
        else:
            registry.promote(second)
        assert await looking is None
        assert scene.follower._hurried.is_set()  # the next look is now
        assert scene.failed == []
        scene.download = download
        assert await scene.look() == registry.pair_id(first if asked else second)

    lived(tmp_path, registry, life, poll_seconds=0.01, seconds=20)
