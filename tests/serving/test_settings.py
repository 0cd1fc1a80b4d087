"""Settings that contradict each other are refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.settings import ServeSettings, SettingsError

HOME, TARGET = Path("home"), Path("models/toy")
ARMS = {"candidate": "draft", "none": "none"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to serve"),
        ({"pairing": "docstrings"}, "--registry"),
        ({"pairing": "docstrings", "registry": "http://x", "target": TARGET}, "beside a target"),
        ({"target": TARGET, "trial": True}, "--arm"),
        ({"target": TARGET, "arms": ARMS}, "--trial"),
        ({"target": TARGET, "trial": True, "arms": ARMS, "host": "0.0.0.0"}, "127.0.0.1 only"),
        ({"target": TARGET, "trial": True, "arms": ARMS, "host": "example.org"}, "127.0.0.1 only"),
        ({"target": TARGET, "port": 70_000}, "port 70000"),
        ({"target": TARGET, "draft_len": 17}, "draft_len 17"),
        ({"target": TARGET, "max_slots": 0}, "max_slots 0"),
        ({"target": TARGET, "adapters": {"toy": TARGET}}, "an adapter named 'toy'"),
        (
            {"pairing": "a", "registry": "http://x", "adapters": {"x": TARGET}},
            "adapters beside a pairing",
        ),
        ({"target": TARGET, "keys": {"alice": "a" * 20}}, "PACELINE_ADMIN_KEYS"),
        ({"target": TARGET, "admin_port": 70_000}, "admin_port 70000"),
        ({"target": TARGET, "admin_port": 8000}, "the port itself"),
        ({"target": TARGET, "hook_secret": "short"}, "hook secret of 5"),
        ({"target": TARGET, "alert_token": "short"}, "alert token of 5"),
        ({"target": TARGET, "alert_token": "with a space in it"}, "without spaces"),
        ({"target": TARGET, "connections": 0}, "connections 0"),
        ({"target": TARGET, "coalesce_tokens": -1}, "coalesce_tokens -1"),
        ({"target": TARGET, "keep_exchanges_seconds": 0}, "keep_exchanges_seconds 0"),
        ({"target": TARGET, "deadline_seconds": 0}, "deadline_seconds 0"),
        ({"target": TARGET, "poll_seconds": float("nan")}, "poll_seconds nan"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ServeSettings(home=HOME, **given)


def test_clients_ask_for_the_pairing_or_the_targets_folder(tmp_path: Path) -> None:
    assert ServeSettings(home=HOME, target=TARGET).model == "toy"
    (tmp_path / "release-7").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "release-7")
    assert ServeSettings(home=HOME, target=tmp_path / "release-7" / "..").model == tmp_path.name
    assert ServeSettings(home=HOME, target=tmp_path / "current").model == "current"
    assert ServeSettings(home=HOME, pairing="docstrings", registry="http://x").model == "docstrings"


def test_a_secret_is_not_shown() -> None:
    settings = ServeSettings(
        home=HOME,
        pairing="docstrings",
        registry="http://x",
        registry_token="hush-1",
        keys={"alice": "hush-2" * 4},
        admin_keys=("hush-3" * 4,),
        hook_secret="hush-4" * 4,
        alert_token="hush-5" * 4,
    )
    assert "hush" not in repr(settings)


def test_a_registrys_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match="PACELINE_REGISTRY_TOKEN") as caught:
        ServeSettings(home=HOME, pairing="docstrings", registry="http://bob:hush@mlflow")
    assert "hush" not in str(caught.value)
