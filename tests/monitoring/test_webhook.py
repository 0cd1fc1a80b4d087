"""The way out for notices: signed, and only to where it may go."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from monitoring.notices import Notice, Phase
from monitoring.payloads import MOST_SLACK, of_notice, slack
from monitoring.webhook import Outcome, Sent, post, sign
from speculation.records import Alarm, Interval

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
ALARM = Alarm(
    *("a-1", "p-1", "d" * 64, "drift", "it <fell> & stays", 100.0, 118, {"level": 6.1}),
    drafter="head",
    estimate=Interval(0.58, 0.55, 0.61, 118),
    action="retrain",
)
NOTICE = Notice.raised(ALARM)


def public(host: str, port: int) -> Sequence[str]:
    return ["93.184.216.34"]


def private(host: str, port: int) -> Sequence[str]:
    return ["93.184.216.34", "10.0.0.7"]  # one of them is enough


class Asked:
    """A client that goes nowhere, and what it was asked."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.status, self.headers = status, headers or {}
        self.client = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.status, headers=self.headers)


def sent(url: str, asked: Asked | None = None, **how: Any) -> tuple[Sent, Asked]:
    asked = asked or Asked()
    given: dict[str, Any] = {"resolve": public, "secret": SECRET} | how
    return post(url, b"{}", id="a-1", at=1000.0, client=asked.client, **given), asked


def test_the_signature_is_the_published_one() -> None:
    body = b'{"test": 2432232314}'
    headers = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=1614265330.9,
        body=body,
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_it_connects_to_what_was_resolved_and_names_the_host() -> None:
    told, asked = sent("https://hooks.example.com/T0/B1?x=1#part")
    assert told == Sent(Outcome.DONE)
    (request,) = asked.requests
    assert str(request.url) == "https://93.184.216.34/T0/B1?x=1"
    assert request.headers["host"] == "hooks.example.com"
    assert request.extensions["sni_hostname"] == "hooks.example.com"
    assert request.headers["webhook-id"] == "a-1"


@pytest.mark.parametrize(
    ("url", "how", "why"),
    [
        ("http://hooks.example.com/x", {}, "plain http"),
        ("ftp://hooks.example.com/x", {}, "its address is none"),
        ("https://", {}, "its address is none"),
        ("https://[::1", {}, "its address is none"),
        ("https://hooks.example.com:x/", {}, "its address is none"),
        ("https://me:hush@hooks.example.com/x", {}, "a name or a password"),
        ("https://hooks.example.com/x", {"resolve": private}, "private network"),
        ("https://other.example.com/x", {"hosts": ["a"], "resolve": private}, "private network"),
        ("https://hooks.example.com/x", {"secret": "whsec_abc"}, "wanted such as whsec_"),
        ("https://hooks.example.com/x", {"secret": "no base64!"}, "wanted such as whsec_"),
    ],
)
def test_it_goes_nowhere_else(url: str, how: dict[str, Any], why: str) -> None:
    told, asked = sent(url, **how)
    assert told.outcome is Outcome.AGAIN
    assert why in told.why
    assert "hush" not in told.why
    assert asked.requests == []


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1"),
        *("2002:7f00:1::", "no address"),
    ],
)
def test_an_address_that_only_this_network_reaches_is_refused_unless_its_host_is_named(
    address: str,
) -> None:
    def there(host: str, port: int) -> Sequence[str]:
        return [address]

    told, asked = sent("https://hooks.example.com/x", resolve=there)
    assert "private network" in told.why
    assert asked.requests == []
    if address != "no address":
        told, _ = sent("https://hooks.example.com/x", resolve=there, hosts=["Hooks.Example.com"])
        assert told.outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(204, "done"), (301, "again"), (404, "again"), (410, "never"), (429, "again"), (503, "again")],
)
def test_only_a_receiver_that_is_gone_is_given_up(status: int, outcome: str) -> None:
    asked = Asked(status, {"location": "https://169.254.169.254/"})
    told, _ = sent("https://hooks.example.com/x", asked)
    assert told.outcome == outcome
    assert len(asked.requests) == 1  # no redirect is followed


def test_a_host_that_is_not_found_is_tried_again() -> None:
    def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    told, _ = sent("https://hooks.example.com/x", resolve=nowhere)
    assert told == Sent(Outcome.AGAIN, "its host is not found: Name or service not known")


@contextmanager
def receiver() -> Iterator[tuple[int, list[tuple[dict[str, str], bytes]]]]:
    """A receiver on this machine, and what it got."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, got
        finally:
            server.shutdown()
            thread.join()


def test_a_receiver_that_knows_hmac_alone_believes_it() -> None:
    body = of_notice(NOTICE, style="paceline")
    with receiver() as (port, got):
        url = f"http://localhost:{port}/hook"
        told = post(url, body, id="a-1", at=1000.0, secret=SECRET, hosts=["localhost"])
        nobody = post(f"http://localhost:{port}/hook", body, id="a-1", at=1000.0)
    assert told == Sent(Outcome.DONE)
    assert nobody.outcome is Outcome.AGAIN
    ((headers, received),) = got
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + received
    expected = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["host"] == f"localhost:{port}"


def test_our_own_style_holds_the_alarm() -> None:
    told = json.loads(of_notice(NOTICE, style="paceline", done="retrain begun"))
    assert (told["type"], told["timestamp"]) == ("paceline.alarm.raised", "1970-01-01T00:01:40Z")
    data = told["data"]
    assert data.pop("done") == "retrain begun"
    assert Alarm.from_json(data) == ALARM


def test_what_is_no_number_in_json_is_null() -> None:
    odd = Notice(
        "a-1", Phase.RAISED, 1.0, Alarm("a-1", "p", "d", "drift", "s", 0.0, 1, {"x": 1e999})
    )
    assert json.loads(of_notice(odd, style="paceline"))["data"]["evidence"] == {"x": None}


def test_slack_gets_a_block_without_markup_of_ours_to_abuse() -> None:
    told = json.loads(of_notice(NOTICE, style="slack", done="retrain begun"))
    assert set(told) == {"text", "blocks"}
    ((block),) = told["blocks"]
    assert (block["type"], block["text"]["type"]) == ("section", "mrkdwn")
    assert "it &lt;fell&gt; &amp; stays\nDone: retrain begun" in block["text"]["text"]
    assert told["text"] == ":rotating_light: drift raised: pair p-1"


@pytest.mark.parametrize("text", ["&" * 4000, "x" * 2990 + "<" * 10, "é" * 5000])
def test_slack_refuses_more_than_it_takes_so_it_is_cut(text: str) -> None:
    said = json.loads(slack("title", text))["blocks"][0]["text"]["text"]
    assert len(said) <= MOST_SLACK
    assert said.endswith("…")
    assert not said.replace("&amp;", "").replace("&lt;", "").count("&")
