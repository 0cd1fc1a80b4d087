from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest

from evaluation.endpoints import EndpointError, free_port, started

SERVER = textwrap.dedent(
    """
    import http.server, signal, sys
    if "deaf" in sys.argv[2:]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if "loading" in sys.argv[2:] else 200)
            self.end_headers()
        def log_message(self, *args):
            pass
    print("loading weights", flush=True)
    if "broken" in sys.argv[2:]:
        sys.exit("no weights in that folder")
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """
)


def argv(port: int, *flags: str) -> list[str]:
    return [sys.executable, "-c", SERVER, str(port), *flags]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_a_server_is_up_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started(argv(port), ready_url=f"{url}/ready", log=tmp_path / "s.log") as endpoint:
        assert endpoint.url == url
        assert httpx.get(url).status_code == 200
        assert os.getpgid(endpoint.pid) == endpoint.pid, "Ctrl-C in our terminal is ours"
    assert not alive(endpoint.pid)


def test_a_server_that_dies_before_ready_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/ready"
    with (
        pytest.raises(EndpointError, match="no weights in that folder"),
        started(argv(port, "broken"), ready_url=url, log=tmp_path / "s.log"),
    ):
        pytest.fail("it never was ready")


def test_a_program_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/ready"
    with (
        pytest.raises(EndpointError, match="cannot start /no/such/program"),
        started(["/no/such/program"], ready_url=url, log=tmp_path / "s.log"),
    ):
        pytest.fail("it never was ready")


def test_a_server_that_never_gets_ready_is_an_error_and_is_ended(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/ready"
    with (
        pytest.raises(EndpointError, match=r"not ready after 4 s.*answered 503"),
        started(argv(port, "loading"), ready_url=url, log=tmp_path / "s.log", timeout_seconds=4),
    ):
        pytest.fail("it never was ready")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/ready"
    with (
        started(argv(port), ready_url=url, log=tmp_path / "s.log"),
        pytest.raises(EndpointError, match="already answers"),
        started(argv(port), ready_url=url, log=tmp_path / "other.log"),
    ):
        pytest.fail("two servers on one port")
    assert not (tmp_path / "other.log").exists()


def test_a_server_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/ready"
    with started(
        argv(port, "deaf"), ready_url=url, log=tmp_path / "s.log", stop_seconds=0.3
    ) as endpoint:
        pass
    assert not alive(endpoint.pid)


def serve_and_lose(log: Path) -> None:
    port = free_port()
    with started(argv(port), ready_url=f"http://127.0.0.1:{port}/ready", log=log) as endpoint:
        os.kill(endpoint.pid, signal.SIGKILL)
        assert gone_within(endpoint.pid, 5)
        raise RuntimeError("lost")


def test_an_error_inside_the_block_tells_how_the_server_died(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="lost") as caught:
        serve_and_lose(tmp_path / "s.log")
    assert "SIGKILL" in caught.value.__notes__[0]
    assert "loading weights" in caught.value.__notes__[0]


WITH_A_WORKER = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def test_a_server_that_was_killed_leaves_no_workers_behind(tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    with started([sys.executable, "-c", WITH_A_WORKER], ready_url=None, log=log) as endpoint:
        while not log.read_text():
            time.sleep(0.02)
        worker = int(log.read_text())
        os.kill(endpoint.pid, signal.SIGKILL)
        while endpoint.exit_code() is None:  # fetched: nobody's child has its workers now
            time.sleep(0.02)
        assert alive(worker)
    assert gone_within(worker, 5)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux")
def test_a_server_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    port = free_port()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import pathlib, time
                from evaluation.endpoints import started
                with started({argv(port)!r}, ready_url="http://127.0.0.1:{port}/ready",
                             log=pathlib.Path({str(tmp_path / "s.log")!r})) as endpoint:
                    print(endpoint.pid, flush=True)
                    time.sleep(60)
                """
            ),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone_within(child, 5)
