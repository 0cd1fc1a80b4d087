"""docs/serving.md names what there is, and nothing that there is not."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from cli.servers import serve
from configuration.serving import Serving
from serving.errors import KINDS
from serving.openapi import document
from serving.parameters import LABELS, NEUTRAL, chat_parameters, completion_parameters
from serving.settings import ServeSettings
from tests.serving.served import Served

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT)
WORDS = set(re.findall(r"[a-z_0-9]+", " ".join(CODE)))


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    rows = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def test_every_field_that_a_client_may_send_is_in_the_table() -> None:
    known = {*chat_parameters(), *completion_parameters()} - {*NEUTRAL}
    assert first_column(section("What clients may send").partition("Anything else")[0]) == known
    assert {*LABELS} <= WORDS


def test_every_dial_is_in_the_table_with_its_default() -> None:
    table = section("Operating")
    assert {spec.name for spec in fields(Serving)} == first_column(table)
    for spec in fields(Serving):
        if type(spec.default) in (int, float):
            row = next(line for line in table.splitlines() if f"`{spec.name}`" in line)
            assert f"{spec.default:g}" in row, spec.name


ELSEWHERE = {
    **{"adaptive": "PATCH fixes K", "registry_token": "PACELINE_REGISTRY_TOKEN"},
    **{"keys": "PACELINE_KEYS", "admin_keys": "PACELINE_ADMIN_KEYS"},
    **{"hook_secret": "PACELINE_HOOK_SECRET", "alert_token": "PACELINE_ALERT_TOKEN"},
}
OTHERWISE = {
    **{"arms": "arm", "adapters": "adapter", "body_bytes": "body_megabytes"},
    "keep_exchanges_seconds": "keep_exchanges_days",
    "keep_exchanges_bytes": "keep_exchanges_megabytes",
}


def test_whatever_a_server_can_be_asked_to_be_an_operator_can_ask() -> None:
    asked = {OTHERWISE.get(spec.name, spec.name) for spec in fields(ServeSettings)}
    dials = {spec.name for spec in fields(Serving)}
    assert asked - {*ELSEWHERE} <= dials | {*inspect.signature(serve).parameters}
    assert dials <= asked


def test_every_series_is_in_the_table_and_no_other(server: Served) -> None:
    page = server.client.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)", page, re.MULTILINE))
    assert {*kinds} == first_column(section("Metrics"))


def test_every_route_and_status_is_named() -> None:
    settings = ServeSettings(
        home=Path(), target=Path("toy"), hook_secret="h" * 20, alert_token="t" * 20
    )
    for path in document(settings)["paths"]:
        assert path.replace("{name}", "NAME") in TEXT, path
    for status in KINDS.keys() - {405, 409}:
        assert re.search(rf"^\| .*\b{status}\b", section("What clients may send"), re.MULTILINE)


@pytest.mark.parametrize("option", sorted(set(re.findall(r"(?<=`)--[a-z-]+", TEXT))))
def test_every_option_is_one(option: str) -> None:
    source = (Path(__file__).parents[2] / "cli" / "servers.py").read_text()
    name = option.removeprefix("--")
    assert (
        f'"{option}"' in source
        or f"    {name.replace('-', '_')}: Annotated" in source
        or name
        in (
            "home",
            "help",
        )
    )
