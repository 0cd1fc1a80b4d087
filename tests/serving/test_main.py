"""How a server begins and ends: a taken port, refused folders, SIGTERM once and twice."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import running, service, worker
from serving.home_lock import HomeInUseError, home_lock
from serving.loading import RefusedPairError
from serving.main import PortInUseError, listen, serve
from serving.settings import ServeSettings
from speculation.drafters import DraftError
from speculation.sequence import Event
from speculation.target import ModelFolderError
from tests.serving.children import child
from tests.serving.served import Served, serving
from tests.serving.test_arms import pair_of

COMPLETIONS = "/v1/completions"
STREAMS = 50


def test_a_port_in_use_is_said_before_anything_is_loaded(
    target_folder: Path, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} .* is in use: .*--port"):
            serve(ServeSettings(home=tmp_path, target=target_folder, port=port), environ={})


def test_a_home_has_one_server_and_is_free_when_that_is_gone(
    target_folder: Path, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    settings = ServeSettings(home=tmp_path, target=target_folder, draft=missing, port=0)
    with home_lock(tmp_path / "serving"), pytest.raises(HomeInUseError, match="--home"):
        serve(settings, environ={})
    with pytest.raises(ValueError, match="missing"):  # it gets to the loading, and lets go
        serve(settings, environ={})
    with home_lock(tmp_path / "serving"):
        pass


def test_a_host_that_is_none_of_ours_is_refused() -> None:
    with pytest.raises(ValueError, match=r"203\.0\.113\.9"):
        listen("203.0.113.9", 0)


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        ("no target", ValueError, "config.json"),
        ("no weights", ValueError, "safetensors"),
        ("truncated draft", ValueError, "draft"),
        ("another draft", (DraftError, RefusedPairError), "head|draft"),
    ],
)
def test_folders_that_cannot_be_served_end_the_server_with_the_reason(
    target_folder: Path,
    draft_folder: Path,
    tmp_path: Path,
    spoil: str,
    kind: type[Exception],
    said: str,
) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    for folder, source in ((target, target_folder), (draft, draft_folder)):
        folder.mkdir()
        for path in source.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    weights = draft / "model.safetensors"
    if spoil == "no target":
        (target / "config.json").unlink()
    elif spoil == "no weights":
        (target / "model.safetensors").unlink()
    elif spoil == "truncated draft":
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        config = json.loads((draft / "config.json").read_text())
        (draft / "config.json").write_text(json.dumps(config | {"vocab_size": 77}))
    server = Served(ServeSettings(home=tmp_path / "home", target=target, draft=str(draft)))
    server.thread.join(20)
    server.close()
    assert isinstance(server.error, kind)
    assert isinstance(server.error, (ValueError, ModelFolderError))
    with pytest.raises(type(server.error), match=said):
        raise server.error


def test_a_mistyped_target_is_said_and_makes_no_home(tmp_path: Path) -> None:
    mistyped = ServeSettings(home=tmp_path / "home", target=tmp_path / "targte", port=0)
    with pytest.raises((ValueError, ModelFolderError), match="targte"):
        serve(mistyped, environ={})
    assert not list(tmp_path.iterdir())


class Stream(threading.Thread):
    """Reads one streamed answer to its end."""

    def __init__(self, url: str, tokens: int) -> None:
        super().__init__()
        self.url, self.tokens, self.lines = url, tokens, list[str]()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        body: dict[str, Any] = {"prompt": [9], "max_tokens": self.tokens, "temperature": 0}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            with httpx.stream("POST", self.url + COMPLETIONS, json=body, timeout=60) as answer:
                self.lines = [line for line in answer.iter_lines() if line]
        except httpx.HTTPError as error:
            self.error = error

    @property
    def whole(self) -> bool:
        if self.error is not None or not self.lines or self.lines[-1] != "data: [DONE]":
            return False
        usage = json.loads(self.lines[-2].removeprefix("data: "))["usage"]
        return bool(usage["completion_tokens"] == self.tokens)


def refused_while(url: str, streams: list[Stream]) -> list[httpx.Response]:
    """Requests that come while the server drains."""
    answers = []
    while any(stream.is_alive() for stream in streams):
        try:
            answers.append(httpx.post(url + COMPLETIONS, json={"prompt": "x"}, timeout=60))
        except httpx.TransportError:  # it has ended
            break
        time.sleep(0.05)
    return answers


def test_sigterm_finishes_what_runs_and_turns_away_what_comes(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none", max_slots=2)
    with serving(settings) as served:
        served.slow(0.005)
        streams = [Stream(served.url, 40) for _ in range(5)]
        page = served.client.get
        served.until(lambda: "paceline_running_requests 5.0" in page("/metrics").text)
        served.signal(signal.SIGTERM)
        served.until(lambda: page("/health/ready").status_code == 503)
        answers = refused_while(served.url, streams)
        served.thread.join(20)
    assert [stream.whole for stream in streams] == [True] * 5
    assert answers
    assert {answer.status_code for answer in answers} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
    assert served.exit_code == 0


def test_a_second_sigterm_is_fast(target_folder: Path, tmp_path: Path) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none")
    with serving(settings) as served:
        served.slow(0.05)
        stream = Stream(served.url, 900)
        served.until(lambda: "running_requests 1.0" in served.client.get("/metrics").text)
        begun = time.monotonic()
        served.signal(signal.SIGTERM)
        served.signal(signal.SIGTERM)
        served.thread.join(20)
        took = time.monotonic() - begun
        stream.join()
    assert took < 3
    assert not stream.whole
    assert json.loads(stream.lines[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert served.exit_code == 143


def test_who_still_waits_at_a_second_sigterm_is_told_so(
    target_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none", max_slots=1)
    body = {"prompt": [9], "max_tokens": 900, "temperature": 0}
    with serving(settings) as served, ThreadPoolExecutor(4) as clients:
        served.slow(0.05)
        asked = [
            clients.submit(httpx.post, served.url + COMPLETIONS, json=body, timeout=60)
            for _ in range(4)
        ]
        served.until(lambda: "running_requests 4.0" in served.client.get("/metrics").text)
        served.signal(signal.SIGTERM)
        served.signal(signal.SIGTERM)
        answers = [each.result() for each in asked]
        served.thread.join(20)
    assert [answer.status_code for answer in answers] == [503] * 4
    assert {answer.json()["error"]["code"] for answer in answers} == {"shutting_down"}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert served.exit_code == 143


def test_what_the_http_library_warns_of_is_in_our_log(
    target_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none")
    with serving(settings) as served:
        with socket.create_connection(served.running.listening.getsockname()[:2]) as strange:
            strange.sendall(b"secret words\r\n\r\n")
            assert b"400" in strange.recv(65536)
        said = [r.getMessage() for r in caplog.records if r.name == "paceline.serving"]
    assert any("Invalid HTTP request" in line for line in said)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("measured", [False, True])
def test_a_draft_that_nobody_measured_here_is_said_to_be_unverified(
    target_folder: Path,
    draft_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    measured: bool,
) -> None:
    draft = draft_folder
    if measured:  # with a manifest beside that binds it to this very release
        draft = pair_of(draft_folder, target_folder, tmp_path / "pair", context=40)
    caplog.set_level("INFO")
    settings = ServeSettings(home=tmp_path, target=target_folder, draft=str(draft))
    with serving(settings) as served:
        told = served.client.get("/admin/pair").json()
        said = [r.getMessage() for r in caplog.records if r.name == "paceline.serving"]
        page = served.client.get("/metrics").text
    (line,) = [line for line in said if line.startswith("ready: pair ")]
    assert line == f"ready: pair {told['pair']}" + ("" if measured else " (unverified)")
    assert told["verified"] is measured
    assert f'verified="{str(measured).lower()}"' in page


def test_what_outlasts_the_grace_is_cut_and_the_server_still_ends_well(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none", grace_seconds=0.2)
    with serving(settings) as served:
        served.slow(0.05)
        stream = Stream(served.url, 900)
        served.until(lambda: "running_requests 1.0" in served.client.get("/metrics").text)
        served.signal(signal.SIGTERM)
        served.thread.join(20)
        stream.join()
    assert served.exit_code == 0
    assert json.loads(stream.lines[-1].removeprefix("data: "))["error"]["type"] == "server_error"


def test_the_end_does_not_wait_for_an_engine_that_hangs(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LOST_SECONDS", 0.1)
    monkeypatch.setattr(worker, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(running, "CLOSE_SECONDS", 0.1)
    go = threading.Event()

    def hangs() -> list[Event]:
        go.wait(30)
        return []

    settings = ServeSettings(home=tmp_path, target=target_folder, draft="none", grace_seconds=0.1)
    with serving(settings) as served:
        served.loaded.engine.step = hangs  # type: ignore[method-assign]  # a test's fault
        stream = Stream(served.url, 5)
        served.until(lambda: "running_requests 1.0" in served.client.get("/metrics").text)
        served.signal(signal.SIGTERM)
        served.thread.join(10)
        ended = not served.thread.is_alive()
        go.set()
        stream.join()
    assert ended
    assert served.exit_code == 0
    assert not stream.whole


def test_a_client_that_reads_slowly_has_its_answer_within_the_grace(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CLOSE_SECONDS", 0.1)
    body = {"prompt": [9], "max_tokens": 200, "temperature": 0, "logprobs": 20}
    sent = json.dumps(body).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(sent)}\r\n"
    with serving(ServeSettings(home=tmp_path, target=target_folder, draft="none")) as served:
        served.running.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        port = served.running.listening.getsockname()[1]
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(f"{head}Connection: close\r\n\r\n".encode() + sent)
            page = served.client.get
            served.until(lambda: 'outcome="length"' in page("/metrics").text)
            served.signal(signal.SIGTERM)
            served.thread.join(0.5)  # longer than connections get when nothing is on its way
            assert served.thread.is_alive()
            slow.settimeout(10)
            found = b"".join(iter(lambda: slow.recv(65536), b""))
        served.thread.join(10)
    assert served.exit_code == 0
    answer = json.loads(found.split(b"\r\n\r\n", 1)[1])
    assert answer["usage"]["completion_tokens"] == 200
    assert len(found) > 100_000  # more than the buffers between hold


def test_a_registry_that_hangs_does_not_keep_a_server_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, asked = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> None:
        asked.set()
        go.wait(30)

    monkeypatch.setattr(running, "champion", hangs)
    settings = ServeSettings(home=tmp_path, pairing="docs", registry="http://127.0.0.1:9")
    with serving(settings, wait=False) as served:
        assert asked.wait(20)
        served.signal(signal.SIGTERM)
        served.thread.join(10)
        ended = not served.thread.is_alive()
        go.set()
    assert ended
    assert served.exit_code == 0


def test_a_server_that_drains_asks_the_registry_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, drained = list[float](), list[int]()
    monkeypatch.setattr(running, "champion", lambda *_, **__: looks.append(time.monotonic()))

    async def drain(self: service.Service) -> None:
        for _ in range(2):
            await asyncio.sleep(0.1)
            drained.append(len(looks))

    monkeypatch.setattr(service.Service, "drain", drain)
    settings = ServeSettings(
        home=tmp_path, pairing="docs", registry="http://127.0.0.1:9", poll_seconds=0.01
    )
    with serving(settings, wait=False) as served:
        served.until(lambda: len(looks) > 2)
        served.signal(signal.SIGTERM)
        served.thread.join(10)
    assert drained[0] == drained[1]


@pytest.mark.slow
def test_sigterm_under_fifty_streams_truncates_none_and_exits_with_zero(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = {"max_slots": 8, "grace_seconds": 120.0, "queue_tokens": 100_000}
    with child(target_folder, tmp_path, **settings) as served:
        streams = [Stream(served.url, 200) for _ in range(STREAMS)]
        served.until_running(STREAMS)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        answers = refused_while(served.url, streams)
        for stream in streams:
            stream.join()
        assert served.process.wait(30) == 0
    assert sum(stream.whole for stream in streams) == STREAMS
    assert answers
    assert {answer.status_code for answer in answers} == {503}


@pytest.mark.slow
def test_a_second_sigterm_ends_the_process_at_once(target_folder: Path, tmp_path: Path) -> None:
    settings = {"max_slots": 1, "grace_seconds": 120.0, "queue_tokens": 100_000}
    with child(target_folder, tmp_path, **settings) as served:
        streams = [Stream(served.url, 900) for _ in range(20)]
        served.until_running(20)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        begun = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 143
        assert time.monotonic() - begun < 15  # its streams would take half a minute and more
        for stream in streams:
            stream.join()
