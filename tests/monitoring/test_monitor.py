"""The monitor against a real HTTP server: restarts, nonsense, signals, kills."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from monitoring.baselines import LEARN_AT, Baseline
from monitoring.detectors.cusum import Cusum
from monitoring.exporting import Exporter
from monitoring.looked import Reached, Replica
from monitoring.monitor import (
    UNKNOWN_REQUESTS,
    UNKNOWN_SECONDS,
    Monitor,
    MonitorRunningError,
    Paths,
    nothing_expected,
    watch_server,
)
from monitoring.outbox import Outbox
from monitoring.series import Gauge, Mark, Point, Throughput, read_series
from monitoring.settings import Source
from monitoring.state import State, StateError, load, save
from monitoring.watched import Expected
from speculation.records import Counts, Interval
from tests.monitoring.small_server import RELEASE, SmallServer
from tests.monitoring.streams import HEALTHY, stream

ROOT = Path(__file__).parents[2]
DEAD = -HEALTHY[0]
REPORTED = Expected(RELEASE, Baseline(Interval(0.70, 0.69, 0.71, 1000)), "head")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    small = SmallServer(tmp_path / "exchanges")
    small.start()
    yield small
    small.close()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "home")


@pytest.fixture
def watch(server: SmallServer, paths: Paths) -> Iterator[Callable[..., Monitor]]:
    """Starts a monitor over what the last one left."""
    monitors: list[Monitor] = []

    def started(
        expected: Callable[[str], Expected | None] = nothing_expected,
        clock: Callable[[], float] = time.time,
    ) -> Monitor:
        for monitor in monitors:
            monitor.close()
        monitors[:] = [over(server, paths, expected=expected, clock=clock)]
        return monitors[0]

    yield started
    for monitor in monitors:
        monitor.close()


def over(
    server: SmallServer,
    paths: Paths,
    *,
    expected: Callable[[str], Expected | None] = nothing_expected,
    clock: Callable[[], float] = time.time,
) -> Monitor:
    return Monitor({"": Source(urls=(server.url,))}, paths, expected=expected, clock=clock)


def points(paths: Paths) -> list[Point]:
    return [entry for entry in read_series(paths.series) if isinstance(entry, Point)]


def marks(paths: Paths) -> list[tuple[str, str]]:
    found = [entry for entry in read_series(paths.series) if isinstance(entry, Mark)]
    return [(mark.what, mark.label) for mark in found]


def causes(paths: Paths) -> list[str]:
    return [alarm.cause for alarm in Outbox(paths.outbox).pending()]


def test_requests_become_points_of_their_pair(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    monitor = watch()
    monitor.poll()
    assert points(paths) == []
    server.serve(stream(30, seed=1))
    server.serve(stream(20, seed=2), pair="p-2", drafter="ngram")
    monitor.poll()
    monitor.poll()
    found = points(paths)
    assert [(p.pair, p.drafter, p.requests) for p in found] == [
        ("p-1", "head", 30),
        ("p-2", "ngram", 20),
    ]
    assert found[0].acceptance is not None
    assert found[0].acceptance.low < 0.7 < found[0].acceptance.high
    served = [e for e in read_series(paths.series) if isinstance(e, Throughput)]
    assert [(e.pair, e.requests, e.errors) for e in served] == [("p-1", 30, 0), ("p-2", 20, 0)]
    assert all(e.emitted_per_second > 0 for e in served)


def test_a_dead_draft_reaches_the_outbox_once_and_the_series_as_a_mark(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    monitor = watch(lambda pair: REPORTED)
    server.serve(stream(50, seed=1))
    monitor.poll()
    for seed in range(5):
        server.serve(stream(8, seed=seed, shift=DEAD))
        monitor.poll()
    assert causes(paths) == ["dead_draft"]
    assert marks(paths) == [("alarm", "dead_draft")]
    (alarm,) = Outbox(paths.outbox).pending()
    Outbox(paths.outbox).delivered(alarm.id)
    watch(lambda pair: REPORTED).poll()
    assert causes(paths) == []


def test_a_server_that_is_down_is_waited_for_and_nothing_is_taken_twice(
    server: SmallServer,
    paths: Paths,
    watch: Callable[..., Monitor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monitor = watch()
    server.serve(stream(40, seed=1))
    monitor.poll()
    server.stop()
    for _ in range(3):
        monitor.poll()
    assert len([r for r in caplog.records if "no answer" in r.message]) == 1
    server.start()  # its counters start from nothing; its log is there
    server.serve(stream(10, seed=2))
    monitor.poll()
    assert [point.requests for point in points(paths)] == [40, 50]
    last = [e for e in read_series(paths.series) if isinstance(e, Throughput)][-1]
    assert last.requests == 10
    assert causes(paths) == []


def test_another_release_than_the_pairs_is_alarmed_at_once_without_traffic(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    monitor = watch(lambda pair: Expected(release="e" * 64))
    monitor.poll()
    monitor.poll()
    assert causes(paths) == ["release_mismatch"]


def test_a_swap_is_marked_once_also_by_the_next_monitor(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    server.pair["swaps"] = [
        {"at": 1000.0, "outcome": "swapped", "pair": "p-1", "version": "1"},
        {"at": 1500.0, "outcome": "failed", "pair": "p-9", "version": "2"},
    ]
    watch().poll()
    server.pair["swaps"].append({"at": 2000.0, "outcome": "swapped", "pair": "p-2"})
    watch().poll()
    watch().poll()
    assert marks(paths) == [("swap", "p-1"), ("swap", "p-2")]
    assert paths.series.read_text().count('"swap"') == 2


def test_what_is_known_of_a_pair_later_is_taken_then(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    known: list[Expected] = []
    monitor = watch(lambda pair: known[0] if known else None)
    server.serve(stream(20, seed=1))
    monitor.poll()
    known.append(REPORTED)
    server.serve(stream(1, seed=2))
    monitor.poll()
    monitor.close()
    stored = load(paths.state)
    assert stored.of("p-1", "head").baseline == REPORTED.baseline


@pytest.mark.parametrize(
    "nonsense",
    [
        b"<html>502 Bad Gateway</html>",
        b"[]",
        b"\xff\xfe\x00",
        b"",
        b"{}" * 1000,
        b"[" * 100_000,  # deeper than Python's stack
        b'{"pair": ["p"], "drafter": 1, "release": {}, "swaps": 7}',
        b'{"swaps": [{"at": 1%s, "outcome": "swapped"}, null]}' % (b"0" * 400),
        b'{"swaps": [{"at": 1e300, "outcome": "swapped", "pair": "p-9"}]}',
        b'paceline_judged_tokens_total{pair="p",drafter="d",position="first"} 1\n',
    ],
    ids=[
        *("html", "list", "binary", "empty", "json", "deep", "types", "overflow", "future"),
        "position",
    ],
)
def test_nonsense_is_survived_and_is_no_alarm(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor], nonsense: bytes
) -> None:
    monitor = watch(lambda pair: REPORTED)
    server.serve(stream(30, seed=1))
    server.broken = nonsense
    monitor.poll()
    monitor.poll()
    server.broken = None
    monitor.poll()
    assert set(causes(paths)) <= {"source_faulty"}
    assert [point.requests for point in points(paths)] == [30]


def test_exchanges_that_cannot_be_are_passed_over(
    server: SmallServer,
    paths: Paths,
    watch: Callable[..., Monitor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.serve(stream(3, seed=1))
    (good, *_) = server.answer("/admin/exchanges?since=0").splitlines()  # type: ignore[union-attr]  # it answers
    stored = json.loads(good)
    late = stored["logged"] + 100.0  # within what clocks may differ by
    counts = stored["counts"]
    more = [n + 1 for n in counts["judged_per_position"]]
    for change in (
        {"counts": {**counts, "accepted_per_position": more}},
        {"counts": {**counts, "accepted_per_position": more[:1]}},
        {"counts": {**counts, "judged_per_position": "1234"}},
        {"counts": {**counts, "rounds": -1}},
        {"counts": {**counts, "rounds": None}},
        {"counts": None},
        {"started": float("nan")},
        {"decode_seconds": -1.0},
        {"decode_seconds": "fast"},
        {"started": 10**400},
        {"pair": ["p"]},
        {"drafter": None},
        {"pair": "p" * 10_000},
        {"adapter": ["a"]},
        {"draft_len": "four"},
        {"counts": {**counts, "rounds": 10**400}},
        {"counts": {**counts, "emitted": True}},
        {"counts": {**counts, "drafted": 0}},
        {"counts": {**counts, "accepted_per_position": [0.5] * len(more)}},
    ):
        server.lines.append(json.dumps({**stored, **change, "logged": late}).encode())
    server.lines += [b"7", b"[]", b"nonsense", b'{"logged": 1e999}', b"", b"[" * 100_000]
    server.lines.append(json.dumps({**stored, "logged": 10**400}).encode())
    monitor = watch()
    monitor.poll()
    monitor.poll()
    assert [point.requests for point in points(paths)] == [3]
    monitor.close()
    assert load(paths.state).reached.replicas[server.url].cursor < late
    assert len([r for r in caplog.records if "passed over" in r.message]) == 1
    assert causes(paths) == ["source_faulty"]


def test_a_request_of_the_future_does_not_blind_the_monitor(
    server: SmallServer,
    paths: Paths,
    watch: Callable[..., Monitor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.serve(stream(3, seed=1))
    (good, *_) = server.answer("/admin/exchanges?since=0").splitlines()  # type: ignore[union-attr]  # it answers
    stored = json.loads(good)
    far = stored["logged"] + 86_400.0
    server.lines.append(json.dumps({**stored, "logged": far}).encode())
    server.lines.append(json.dumps({**stored, "started": far}).encode())
    monitor = watch()
    monitor.poll()
    server.serve(stream(2, seed=2))
    monitor.poll()
    assert [point.requests for point in points(paths)] == [3, 5]
    assert len([r for r in caplog.records if "clock" in r.message]) == 1


def test_a_stored_cursor_of_the_future_is_not_believed(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    paths.folder.mkdir(parents=True, exist_ok=True)
    far = Reached({server.url: Replica(time.time() + 86_400.0)})
    save(State(far), paths.state)
    monitor = watch()
    monitor.poll()
    server.serve(stream(2, seed=2))
    monitor.poll()
    assert [point.requests for point in points(paths)] == [2]


def test_a_clock_that_goes_back_is_named_and_loses_no_requests(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    now = [time.time()]
    monitor = watch(clock=lambda: now[0])
    server.serve(stream(1, seed=1))
    monitor.poll()
    now[0] -= 100.0
    server.serve(stream(4, seed=2))
    monitor.poll()
    (seen,) = [e for e in read_series(paths.series) if isinstance(e, Throughput)]
    assert seen.requests == 4
    assert causes(paths) == ["clock_back"]


def test_a_source_that_alternates_is_not_logged_at_each_poll(
    server: SmallServer,
    paths: Paths,
    watch: Callable[..., Monitor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monitor = watch()
    for number in range(6):
        server.broken = b"nonsense %d" % number if number % 2 else None
        monitor.poll()
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len([what for what in told if what.startswith("source_faulty raised")]) == 1
    assert len(told) == 1


def test_a_second_monitor_for_one_home_is_refused(server: SmallServer, paths: Paths) -> None:
    stop = threading.Event()

    def second(seconds: float) -> None:
        with pytest.raises(MonitorRunningError, match="end that one first"):
            watch_server(server.url, paths.home, stop=stop)
        stop.set()

    watch_server(server.url, paths.home, stop=stop, sleep=second)
    assert stop.is_set()


def test_a_state_that_cannot_be_believed_says_what_to_do(server: SmallServer, paths: Paths) -> None:
    paths.folder.mkdir(parents=True)
    for text in ("{", "[]", '{"version": 99}', '{"version": 1}'):
        paths.state.write_text(text)
        with pytest.raises(StateError, match="move it away"):
            watch_server(server.url, paths.home, stop=threading.Event())


WATCHING = """
import sys
from pathlib import Path
from monitoring.monitor import watch_server
print("watching", flush=True)
watch_server(sys.argv[1], Path(sys.argv[2]), every_seconds=float(sys.argv[3]))
print("stopped", flush=True)
"""


def watching(server: SmallServer, paths: Paths, every_seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WATCHING, server.url, str(paths.home), str(every_seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_sigterm_ends_it_at_once_with_everything_seen_stored(
    server: SmallServer, paths: Paths
) -> None:
    server.serve(stream(25, seed=1))
    process = watching(server, paths, every_seconds=60.0)
    with process:
        until(lambda: paths.state.exists())
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=50)
    assert time.monotonic() - begun < 30.0  # and not a minute, on a busy machine too
    assert (process.returncode, out) == (0, "watching\nstopped\n")
    assert len(load(paths.state).of("p-1", "head").kept) == 25


def test_killed_at_any_moment_it_loses_nothing_and_alarms_once(
    server: SmallServer, paths: Paths
) -> None:
    chance = random.Random(5)
    dice = [chance.uniform(0.0, 0.25) for _ in range(4)]
    requests = stream(LEARN_AT[0] + 40, seed=1) + stream(60, seed=2, shift=DEAD)
    share = len(requests) // len(dice)
    for number, seconds in enumerate(dice):
        before = len(server.asked)
        with watching(server, paths, every_seconds=0.01) as process:
            until(lambda before=before: len(server.asked) > before)  # type: ignore[misc]  # bound now
            for counts in requests[number * share : (number + 1) * share]:
                server.serve([counts])
                time.sleep(seconds / share)
            process.kill()
    server.serve(requests[len(dice) * share :])
    with over(server, paths) as monitor:
        monitor.poll()
    stored = load(paths.state).of("p-1", "head")
    assert [one.counts for one in stored.kept] == requests[-len(stored.kept) :]
    assert causes(paths) == ["dead_draft"]
    series = points(paths)
    assert series[-1].requests == 100
    assert len({point.at for point in series}) == len(series)


def test_the_state_that_the_version_before_stored_is_gone_on_from(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    server.serve(stream(3, seed=1))
    (*_, last) = server.answer("/admin/exchanges?since=0").splitlines()  # type: ignore[union-attr]  # it answers
    logged = json.loads(last)["logged"]
    counts = asdict(Counts(10, 1, 40, 28, (10, 7, 5, 4), (7, 5, 4, 1)))
    served = {"at": 5.0, "counts": counts, "busy_seconds": 0.5, "finished": True}
    usual = {"acceptance": asdict(Interval(0.7, 0.69, 0.71, 1000)), "counts": counts, "offset": 0.0}
    cusum = {**asdict(Cusum()), "level": 2.0, "requests": 9, "since": 4.0}
    watched = {
        **{"pair": "p-1", "drafter": "head", "release": RELEASE, "draft_len": 4},
        **{"expected_release": None, "mismatched_since": None, "learning": False},
        **{"baseline": usual, "reported": None, "first": [], "doubted": [], "active": {}},
        **{"kept": [served], "cusum": cusum},
        "collapse": {"alive": 0.35, "excursion": asdict(Cusum(allowance=0.0, threshold=8.0))},
    }
    stored = {"version": 1, "cursor": logged, "swap_marked": 7.0, "watched": [watched]}
    paths.folder.mkdir(parents=True)
    paths.state.write_text(json.dumps(stored))
    server.serve(stream(2, seed=2))
    monitor = watch()
    monitor.poll()
    monitor.close()
    state = load(paths.state)
    found = state.of("p-1", "head")
    assert len(found.kept) == 3  # one of before, and what was logged since
    assert found.judges.cusum.since == 4.0
    assert found.baseline is not None
    assert state.swap_marked == 7.0


def test_a_server_that_says_what_it_says_of_itself_is_in_the_series(paths: Paths) -> None:
    page = b'sglang:spec_accept_length{model_name="m"} 2.5\n'

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        with Monitor({"s": Source("sglang", (url,), pair="p-9")}, paths) as monitor:
            monitor.poll()
    finally:
        http.shutdown()
        http.server_close()
    (said,) = read_series(paths.series)
    assert isinstance(said, Gauge)
    assert (said.pair, said.source, said.acceptance_length) == ("p-9", url, 2.5)


def test_a_pair_that_nobody_knows_is_named_after_a_while(server: SmallServer, paths: Paths) -> None:
    now = [time.time()]
    source = {"": Source(urls=(server.url,), pairing="support")}
    with Monitor(source, paths, expected=lambda pair: None, clock=lambda: now[0]) as monitor:
        server.serve(stream(UNKNOWN_REQUESTS, seed=1), pair="p-stranger")
        monitor.poll()
        assert causes(paths) == []
        now[0] += UNKNOWN_SECONDS
        server.serve(stream(1, seed=2), pair="p-stranger")
        monitor.poll()
    (alarm,) = Outbox(paths.outbox).pending()
    assert (alarm.cause, alarm.pair) == ("unknown_pair", "p-stranger")


def test_an_alarm_ends_when_its_cause_does_and_that_is_told(
    server: SmallServer, paths: Paths, watch: Callable[..., Monitor]
) -> None:
    now = [time.time()]
    release = [Expected(release="e" * 64)]
    monitor = watch(lambda pair: release[0], clock=lambda: now[0])
    monitor.poll()
    release[0] = Expected(release=RELEASE)
    for _ in range(3):
        now[0] += 200.0
        monitor.poll()
    told = [(one.alarm.cause, str(one.phase)) for one in Outbox(paths.outbox).notices()]
    assert told == [("release_mismatch", "raised"), ("release_mismatch", "resolved")]


def test_the_monitors_own_metrics_show_what_it_sees(server: SmallServer, paths: Paths) -> None:
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    source = {"": Source(urls=(server.url,))}
    with Monitor(source, paths, expected=lambda pair: REPORTED, exporter=exporter) as monitor:
        server.serve(stream(30, seed=1))
        server.serve(stream(20, seed=2, shift=DEAD))
        monitor.poll()
    page = generate_latest(registry).decode()
    assert 'paceline_watched_requests_total{drafter="head",pair="p-1",slice=""} 50.0' in page
    assert 'paceline_alarm{cause="dead_draft"' in page
    assert f'paceline_source_up{{source="{server.url}"}} 1.0' in page
