"""What the servers of a pairing serve, and the hand on them: one that is away is told of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Pairing, Settings
from evaluation.endpoints import free_port
from flows.served import lives, reload, served, steer

PAIR = {"pair": "p-1", "version": "3", "drafter": "head", "release": "d", "draft_len": 4}


class Server:
    """A server's admin side, as far as it is asked here."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, str]] = []
        self.status = 202
        self.accepted = 6
        self.url = ""

    def exchanges(self) -> str:
        counts = {"rounds": 8, "plain_forwards": 0, "emitted": 8 + self.accepted}
        of_one = {
            **{"pair": "p-1", "release": "d", "drafter": "head", "draft_len": 1, "id": "r"},
            **{"started": 100.0, "queue_seconds": 0.0, "prefill_seconds": 0.1},
            **{"decode_seconds": 1.0, "outcome": "stop", "prompt_tokens": 4, "logged": 101.0},
            "prompt_tokens_cached": 0,
            "counts": {
                **counts,
                "drafted": 8,
                "judged_per_position": [8],
                "accepted_per_position": [self.accepted],
            },
        }
        return "\n".join(json.dumps(of_one) for _ in range(6))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@contextmanager
def serving() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            key = self.headers.get("authorization", "")
            made.asked.append((self.command, self.path, json.loads(body or b"null"), key))
            lines = self.path.startswith("/admin/exchanges")
            text = made.exchanges() if lines else json.dumps(PAIR)
            self.send_response(200 if self.command == "GET" else made.status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        made.url = f"http://127.0.0.1:{httpd.server_port}"
        threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield made
        finally:
            httpd.shutdown()


def of(*servers: str) -> tuple[Settings, Pairing]:
    return Settings(home=Path("home"), admin_keys=("secret",)), Pairing(servers=servers)


def test_each_server_says_what_it_serves_and_one_that_is_away_stops_no_other(
    server: Server,
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    there, gone = served(*of(server.url, away))
    assert there == {"server": server.url, "fault": "", **PAIR, "trouble": None}
    assert gone["server"] == away
    assert "Connect" in gone["fault"]
    assert server.asked[0][3] == "Bearer secret"
    assert served(*of()) == []


def test_the_hand_says_what_it_asked_for_and_what_came_of_it(server: Server) -> None:
    told, did = reload(*of(server.url))
    assert did
    assert server.asked[-1][:3] == ("POST", "/admin/swap", {"reload": True})
    told = steer(*of(server.url), {"drafter": "ngram"})
    assert told == f"{server.url} was turned to drafter ngram"
    assert server.asked[-1][:3] == ("PATCH", "/admin/pair", {"drafter": "ngram"})
    server.status = 400
    told, did = reload(*of(server.url))
    assert not did
    assert f"{server.url} did not do it" in told


@pytest.mark.parametrize(("accepted", "alive"), [(6, True), (0, False)])
def test_a_draft_lives_where_its_tokens_are_accepted_after_the_moment(
    accepted: int, alive: bool, server: Server
) -> None:
    server.accepted = accepted
    waits: list[float] = []
    told = lives(*of(server.url), "p-1", since=99.0, seconds=12.0, sleep=waits.append)
    assert told is alive
    assert len(waits) == (0 if alive else 3)
    before = lives(*of(server.url), "p-1", since=100.5, seconds=1.0, sleep=waits.append)
    assert not before, "requests from before tell nothing"
