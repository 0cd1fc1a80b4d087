"""The OpenAPI document says what the server does: its routes, its fields, its answers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from starlette.routing import Route

from serving.answer_schemas import CHAT_ANSWER, COMPLETION_ANSWER, SCHEMAS
from serving.app import create_app
from serving.fields import BadRequest, Label
from serving.openapi import document
from serving.parameters import chat_parameters, completion_parameters
from serving.settings import ServeSettings
from tests.serving.served import Served, serving

ASKED = {
    "/v1/chat/completions": (chat_parameters(), "messages"),
    "/v1/completions": (completion_parameters(), "prompt"),
}
ALICE, BOSS, SECRET = "a" * 20, "b" * 20, "s" * 20
USER = {"role": "user", "content": "hello"}
VALUES: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, 2, 16, 17, 128, 129, 1.0, 1.5, 0.5, -2.5, 2.5, 100, 101),
    *(2**31, 2**31 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1e300),
    *("", "x", "x" * 1000, "x" * 1001, [], {}, [1], [-1], [0, 2**31 - 1], [2**31], [True], ["x"]),
    *([""], ["x"] * 16, ["x"] * 17, ["x"] * 129, [[1], "x"], [[]], [[[1]]], [{}], [None], ["x", 1]),
    *({"1": 1}, {"01": 1}, {"x": 1}, {"1": 101}, {"1": "1"}, {"type": "text"}, {"type": "json"}),
    *({"include_usage": True}, {"include_usage": 1}, {"include_obfuscation": True}, {"arm": "x"}),
    *({"arm": 1}, {"draft_len": 16}, {"draft_len": 17}, {"arm": None, "draft_len": None}),
    *("none", "auto", "default", ["text"], ["audio"], [{"type": "function"}]),
    [USER],
    [{**USER, "name": "ada"}],
    [{**USER, "name": ""}],
    [{**USER, "name": None, "tool_calls": [], "refusal": None}],
    [{**USER, "tool_calls": [1]}],
    [{**USER, "role": "robot"}],
    [{**USER, "content": None}],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant"}],
    [{"role": "user"}],
    [{"content": "x"}],
    [{**USER, "content": []}],
    [{**USER, "content": [{"type": "text", "text": "x"}]}],
    [{**USER, "content": [{"type": "text", "text": 1}]}],
    [{**USER, "content": [{"type": "image_url"}]}],
    [USER] * 512,
    [USER] * 513,
)


def test_every_route_is_described_and_nothing_else(server: Served) -> None:
    assert server.running.service is not None
    app = create_app(server.running.service)
    assert described(server.client) == routed(app)


def test_each_of_two_ports_describes_what_it_serves(target_folder: Path, tmp_path: Path) -> None:
    settings = ServeSettings(
        home=tmp_path,
        target=target_folder,
        admin_port=0,
        keys={"alice": ALICE},
        admin_keys=(BOSS,),
        hook_secret=SECRET,
        alert_token=SECRET,
    )
    with serving(settings) as served:
        assert served.running.service is not None
        app: Any = create_app(served.running.service, admin_port=1)
        with httpx.Client(base_url=served.admin_url, trust_env=False) as operator:
            for client, its_app, key, other in (
                (served.client, app.clients, ALICE, "/admin/pair"),
                (operator, app.operators, BOSS, "/v1/models"),
            ):
                client.headers = httpx.Headers({"authorization": f"Bearer {key}"})
                found = described(client)
                assert found == routed(its_app)
                assert (other, "get") not in found
                for path, method in found:
                    status = client.request(method, path.replace("{name}", "toy")).status_code
                    assert status not in (404, 405), (path, method)
                assert client.get(other).status_code == 404
            # The admin port's document is the operator's to read.
            operator.headers = httpx.Headers({"authorization": f"Bearer {ALICE}"})
            assert operator.get("/openapi.json").status_code == 401


def routed(app: Any) -> set[tuple[str, str]]:
    """The paths and methods that an app of starlette's has."""
    return {
        (route.path.replace("{name:path}", "{name}"), method.lower())
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }


def described(client: httpx.Client) -> set[tuple[str, str]]:
    """Those of the document."""
    paths = client.get("/openapi.json").json()["paths"]
    return {(path, method) for path, told in paths.items() for method in told}


@pytest.mark.parametrize("path", ASKED)
def test_a_value_is_read_if_and_only_if_the_document_allows_it(path: str, tmp_path: Path) -> None:
    parameters, needed = ASKED[path]
    told = document(ServeSettings(home=tmp_path, target=tmp_path))["paths"][path]["post"]
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(parameters)
    assert schema["required"] == [needed]
    assert schema["additionalProperties"] is False
    for name, parameter in parameters.items():
        described = jsonschema_rs.validator_for(schema["properties"][name])
        assert described.is_valid(None) == (name != needed)
        if isinstance(parameter, Label):
            continue
        refused = 0
        for value in VALUES:
            try:
                parameter.read(value, name)
            except BadRequest:
                refused += 1
                assert not described.is_valid(value), (name, value)
            else:
                assert described.is_valid(value), (name, value)
        assert 0 < refused < len(VALUES), name


@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 2, "n": 2}])
def test_answers_are_as_described(server: Served, more: dict[str, Any]) -> None:
    chat = {"messages": [USER], "max_tokens": 8, **more}
    plain = {**chat, "prompt": ["a", "b"], "logprobs": 2 if more else None}
    del plain["messages"]
    plain.pop("top_logprobs", None)
    for path, body, schema in (
        ("/v1/chat/completions", chat, CHAT_ANSWER),
        ("/v1/completions", plain, COMPLETION_ANSWER),
    ):
        jsonschema_rs.validate(schema, server.client.post(path, json=body).json())
    for path, name in (
        ("/v1/models", "Models"),
        ("/v1/models/toy", "Model"),
        ("/v1/models/none", "Error"),
        ("/health/live", "Live"),
        ("/health/ready", "Ready"),
    ):
        jsonschema_rs.validate(SCHEMAS[name], server.client.get(path).json())


def test_keys_are_in_the_document_where_they_are_wanted(tmp_path: Path) -> None:
    open_to_all = ServeSettings(home=tmp_path, target=tmp_path)
    keyed = ServeSettings(
        home=tmp_path, target=tmp_path, keys={"ada": "k" * 20}, admin_keys=("a" * 20,)
    )
    for path, scheme in (("/v1/models", "key"), ("/admin/pair", "adminKey")):
        assert "security" not in document(open_to_all)["paths"][path]["get"]
        assert document(keyed)["paths"][path]["get"]["security"] == [{scheme: []}]
    hooked = replace(keyed, hook_secret="s" * 20, alert_token="t" * 20)
    for path, methods in document(hooked)["paths"].items():
        own = path.startswith(("/health/", "/hooks/registry"))  # open, and signed
        scheme = "key" if path.startswith(("/v1/", "/openapi.json")) else "adminKey"
        scheme = "alertToken" if path == "/hooks/alerts" else scheme
        for told in methods.values():
            assert told.get("security") == (None if own else [{scheme: []}]), path
            own = own or path == "/hooks/alerts"  # a wrong token gets 401 there
            assert own or {"401", "403"} <= set(told["responses"]), path
    paths = document(keyed, clients=False)["paths"]  # of an admin port
    assert paths["/openapi.json"]["get"]["security"] == [{"adminKey": []}]
    assert "k" * 20 not in str(document(keyed))


def schemathesis(where: str, cwd: Path, *asked: str, **environ: str) -> None:
    """Hold a server against the document that lies there. AssertionError with what was found."""
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", "--no-color"),
        *("--warnings", "off", "--generation-database", "none", *asked, where),
    ]
    here = {"PYTHONPATH": str(Path(__file__).parent), **environ}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=cwd, env={**os.environ, **here}
    )
    print(*(line for line in done.stdout.splitlines() if "generated" in line))
    assert done.returncode == 0, done.stdout[-4000:]


# A prompt may be longer than the context, a field may want another: no schema says that.
ALL_BUT_ONE = ("--checks", "all", "--exclude-checks", "positive_data_acceptance")


@pytest.mark.slow  # thousands of requests
@pytest.mark.parametrize(
    "asked",
    [
        ["--include-path-regex", "^/(v1|health|openapi)"],
        # Whoever drains it gets 503 from then on.
        ["--include-path-regex", "^/(admin|metrics)", "--exclude-path", "/admin/drain"],
    ],
    ids=["clients", "operators"],
)
def test_schemathesis_finds_nothing(target_folder: Path, tmp_path: Path, asked: list[str]) -> None:
    settings = ServeSettings(home=tmp_path, target=target_folder, max_context=300)
    phases = ("--phases", "coverage,fuzzing,stateful", "--max-examples", "60")
    with serving(settings) as served:
        schemathesis(f"{served.url}/openapi.json", tmp_path, *phases, *ALL_BUT_ONE, *asked)


@pytest.mark.slow  # likewise
def test_schemathesis_finds_nothing_with_keys_and_without_them_nothing_open(
    target_folder: Path, tmp_path: Path
) -> None:
    settings = ServeSettings(
        home=tmp_path,
        target=target_folder,
        max_context=300,
        keys={"alice": ALICE},
        admin_keys=(BOSS,),
        hook_secret=SECRET,
    )
    bounded = ("--phases", "coverage,fuzzing", "--max-examples", "10", "--max-time", "12")
    every_answer = "not_a_server_error,status_code_conformance,response_schema_conformance"
    with serving(settings) as served:
        headers = {"authorization": f"Bearer {BOSS}"}
        schemathesis(
            f"{served.url}/openapi.json",
            tmp_path,
            *(*bounded, "--exclude-path", "/admin/drain", *ALL_BUT_ONE),
            *("-H", f"Authorization: {headers['authorization']}"),
            SCHEMATHESIS_HOOKS="schemathesis_signing",
            HOOK_SECRET=SECRET,
        )
        told = tmp_path / "openapi.json"  # it wants a key as well
        told.write_text(served.client.get("/openapi.json", headers=headers).text)
        schemathesis(
            str(told),
            tmp_path,
            *(*bounded, "--url", served.url, "--checks", f"{every_answer},closed_without_a_key"),
            SCHEMATHESIS_HOOKS="schemathesis_closed",
        )
