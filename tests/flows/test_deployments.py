"""Deployments follow the configuration: what it has is there, what it has no longer goes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from prefect import get_client

from configuration.limits import Limits
from configuration.settings import Pairing, Settings
from flows import deployments as module
from flows.catalogue import HEAVY, LIGHT
from flows.deployments import HINT, deployments, remove_gone, schedules
from flows.whose import tag


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    nightly = Pairing(limits=Limits(refresh="0 3 * * *"))
    return Settings(home=tmp_path, pairings={"a_b": nightly, "other": Pairing()})


def test_the_clock_and_the_hint_are_what_starts_a_look(settings: Settings) -> None:
    made = {one.flow_name: one for one in deployments(settings, 60.0)}
    assert set(made) == {*LIGHT, *HEAVY}
    (trigger,) = made["watch"].triggers
    assert set(trigger.expect) == {HINT}  # type: ignore[union-attr]  # the one kind that we make
    assert not made["retrain"].triggers
    assert all(tag() in one.tags for one in made.values())


def test_a_pairing_with_a_cron_line_is_refreshed_by_it_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIGHT", ("watch", "refresh"))
    when = schedules(settings, 5.0)
    assert [one.interval for one in when["watch"]] == [timedelta(seconds=5)]
    (nightly,) = when["refresh"]
    assert (nightly.cron, nightly.parameters) == ("0 3 * * *", {"pairing": "a_b"})


@pytest.mark.usefixtures("prefect_server")
def test_what_is_not_wanted_any_more_goes_and_what_is_somebody_elses_stays(
    settings: Settings,
) -> None:
    with get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("old")
        client.create_deployment(flow_id=flow, name="old", tags=[tag()])
        client.create_deployment(flow_id=flow, name="theirs", tags=["paceline:other"])
    assert remove_gone(deployments(settings, 60.0)) == ["old"]
    assert remove_gone(deployments(settings, 60.0)) == []
    with get_client(sync_client=True) as client:
        assert client.read_deployment_by_name("old/theirs").name == "theirs"
