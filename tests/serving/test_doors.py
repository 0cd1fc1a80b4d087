"""Who gets to which route: keys of two tenants, the operator's, hosts' names, and two ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from serving.app import create_app
from serving.doors import host_name
from serving.main import serve
from serving.settings import ServeSettings
from tests.serving.served import Served, serving

ALICE, BOB, BOSS = "a" * 20, "b" * 20, "c" * 20
OPEN = {"/health/live", "/health/ready"}
SIGNED = {"/hooks/registry", "/hooks/alerts"}  # a signature, or a token, is their key


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keyed(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = ServeSettings(
        home=tmp_path_factory.mktemp("keyed"),
        target=target_folder,
        keys={"alice": ALICE, "bob": BOB},
        admin_keys=(BOSS,),
        hook_secret="h" * 20,
        alert_token="t" * 20,
    )
    with serving(settings) as served:
        yield served


def routes(served: Served) -> list[tuple[str, str]]:
    """Every method and path there is; a route that is forgotten here cannot be."""
    assert served.running.service is not None
    app = create_app(served.running.service)
    assert isinstance(app, Starlette)
    found = []
    for route in app.routes:
        assert isinstance(route, Route)
        found += [(m, route.path.replace("{name:path}", "toy")) for m in route.methods or ()]
    return found


@pytest.mark.parametrize("key", [None, "x" * 20, ALICE[:-1], ALICE + "ü", "y" * 9000])
def test_every_route_but_health_wants_a_key(keyed: Served, key: str | None) -> None:
    headers = {} if key is None else {b"authorization": f"Bearer {key}".encode()}
    seen = set()
    for method, path in routes(keyed):
        answer = keyed.client.request(method, path, headers=headers)
        if path in OPEN:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 401, (method, path)
            if method != "HEAD" and path not in SIGNED:
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
        seen.add(path)
    assert seen >= OPEN | SIGNED | {"/v1/completions", "/admin/pair", "/metrics"}


def test_tenants_ask_and_only_the_operator_operates(keyed: Served) -> None:
    for method, path in routes(keyed):
        if path in OPEN | SIGNED or (method, path) == ("POST", "/admin/drain"):
            continue
        for key in (ALICE, BOB, BOSS):
            answer = keyed.client.request(method, path, headers=bearer(key))
            forbidden = key != BOSS and not path.startswith(("/v1/", "/openapi.json"))
            assert (answer.status_code == 401) is forbidden, (method, path, key)
    body = {"prompt": "the fox", "max_tokens": 2}
    for key in (ALICE, BOB):
        answer = keyed.client.post("/v1/completions", json=body, headers=bearer(key))
        assert answer.status_code == 200
    page = keyed.client.get("/metrics", headers=bearer(BOSS)).text
    assert 'outcome="unauthorized"' in page


def test_a_tenant_learns_nothing_of_what_another_has_asked(keyed: Served) -> None:
    body = {"prompt": list(range(3, 43)), "max_tokens": 1, "temperature": 0}
    found = []
    for key in (ALICE, ALICE, BOB, BOB):
        answer = keyed.client.post("/v1/completions", json=body, headers=bearer(key))
        found.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert found[0] == found[2] == 0
    assert found[1] == found[3] > 0


def test_no_key_is_ever_logged_or_told(keyed: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for key in (ALICE, BOSS, "x" * 20):
        for path in ("/v1/models", "/admin/pair", "/metrics", "/nowhere"):
            answer = keyed.client.get(path, headers=bearer(key))
            assert key not in answer.text
    secrets = (ALICE, BOB, BOSS, "x" * 20, "h" * 20)
    for path in ("/admin/pair", "/metrics", "/openapi.json", "/admin/exchanges"):
        told = keyed.client.get(path, headers=bearer(BOSS))
        assert told.status_code == 200
        assert not any(key in told.text + str(told.headers) for key in secrets), path
    assert caplog.records
    assert not any(key in caplog.text for key in secrets)


@pytest.mark.parametrize("path", ["/admin/pair", "/admin/exchanges", "/metrics", "/v1/models"])
def test_a_name_that_was_made_to_lead_here_reaches_nothing(server: Served, path: str) -> None:
    port = httpx.URL(server.url).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "0.0.0.0", ""):
        answer = server.client.get(path, headers={"host": host})
        assert answer.status_code in (400, 403), host
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        assert server.client.get(path, headers={"host": host}).status_code == 200, host


@pytest.mark.parametrize("path", ["/admin/pair", "/metrics", "/v1/models"])
def test_a_page_of_another_site_reaches_nothing(server: Served, path: str) -> None:
    for origin in ("https://evil.example", "null", "", "http://127.0.0.1.evil.example:80"):
        assert server.client.get(path, headers={"origin": origin}).status_code == 403, origin
    ours = server.client.get(path, headers={"origin": server.url}).status_code
    assert ours == (403 if path.startswith("/admin") else 200)


def test_a_name_that_was_configured_or_comes_with_a_key_is_answered(
    target_folder: Path, tmp_path: Path, keyed: Served
) -> None:
    headers = {"host": "models.example"}
    answer = keyed.client.get("/admin/pair", headers=headers | bearer(BOSS))
    assert answer.status_code == 200
    settings = ServeSettings(home=tmp_path, target=target_folder, hosts=("Models.example",))
    with serving(settings, wait=False) as served:
        assert served.client.get("/v1/models", headers=headers).status_code == 200
        assert served.client.get("/admin/pair", headers=headers).status_code == 200
        assert served.client.get("/v1/models", headers={"host": "x"}).status_code == 403


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("a.example:80", "a.example"),
        ("A.example", "a.example"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("::1", ""),
        ("", ""),
        (":80", ""),
    ],
)
def test_a_host_header_is_a_name_and_perhaps_a_port(header: str, name: str) -> None:
    assert host_name(header) == name


def test_the_environment_does_not_say_who_may_write_where_a_request_came_from(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own: then the first address counts
    settings = ServeSettings(home=tmp_path, target=target_folder)
    forwarded = {"x-forwarded-for": "127.0.0.1, 203.0.113.9"}  # as a proxy here adds to a lie
    with serving(settings, wait=False) as served:
        assert served.client.get("/admin/pair", headers=forwarded).status_code == 403
        assert served.client.get("/admin/pair").status_code == 200


def test_the_admin_port_answers_no_client_and_the_other_no_operator(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, admin_port=0)
    with serving(settings, wait=False) as served:
        assert served.admin_url != served.url
        with httpx.Client(base_url=served.admin_url, trust_env=False) as operator:
            for path, here, there in (
                ("/health/live", 200, 200),
                ("/v1/models", 404, 200),
                ("/admin/pair", 200, 404),
                ("/metrics", 200, 404),
            ):
                lies = {"host": httpx.URL(served.url).netloc.decode()}
                assert operator.get(path).status_code == here, path
                assert operator.get(path, headers=lies).status_code == here, path
                assert served.client.get(path).status_code == there, path


def test_a_head_that_does_not_come_is_not_waited_for(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.connections.HEADER_SECONDS", 0.1)
    settings = ServeSettings(home=tmp_path, target=target_folder)
    with serving(settings, wait=False) as served:
        address = ("127.0.0.1", httpx.URL(served.url).port or 0)
        with socket.create_connection(address) as idle, socket.create_connection(address) as half:
            half.sendall(b"GET /health/live HTTP/1.1\r\nhost: loc")
            for connection in (idle, half):
                connection.settimeout(5)
                assert connection.recv(1) == b""


def test_more_connections_than_are_meant_are_told_so_and_far_more_are_cut(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, connections=2)
    with serving(settings) as served, ExitStack() as opened:
        served.client.close()  # its own connection
        clients = [
            opened.enter_context(httpx.Client(base_url=served.url, trust_env=False))
            for _ in range(3)
        ]
        for client in clients:
            assert client.get("/health/live").status_code == 200
        refused = clients[0].post("/v1/completions", json={"prompt": "x", "max_tokens": 1})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        # The refusal came before its body did, which ended that connection; this opens another.
        assert clients[0].get("/health/live").status_code == 200
        address = ("127.0.0.1", httpx.URL(served.url).port or 0)
        fourth, fifth = (opened.enter_context(socket.create_connection(address)) for _ in "45")
        fifth.settimeout(5)
        with suppress(ConnectionResetError):
            assert fifth.recv(1) == b""
        fourth.settimeout(0.05)
        with pytest.raises(TimeoutError):  # it stands open
            fourth.recv(1)
        clients[2].close()
        fourth.close()
        served.until(lambda: answers(clients[0]))


@pytest.mark.parametrize("keyed", [False, True])
def test_a_server_that_is_open_to_everybody_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keyed: bool
) -> None:
    keys: dict[str, Any] = {"keys": {"alice": ALICE}, "admin_keys": (BOSS,)} if keyed else {}
    settings = ServeSettings(
        home=tmp_path, target=tmp_path / "gone", host="0.0.0.0", port=0, **keys
    )
    with pytest.raises(ValueError, match="gone"):  # after it has said so
        serve(settings, environ={})
    assert ("no key is wanted" in caplog.text) is not keyed


def test_what_is_written_is_sent_at_once(server: Served) -> None:
    assert server.client.get("/health/live").is_success  # its connection stays
    connections = list(server.running.server_state.connections)
    assert connections
    for connection in connections:
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def answers(client: httpx.Client) -> bool:
    return client.post("/v1/completions", json={"prompt": "fox", "max_tokens": 1}).is_success
