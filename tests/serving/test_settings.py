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
        ({"target": TARGET, "deadline_seconds": 0}, "deadline_seconds 0"),
        ({"target": TARGET, "poll_seconds": float("nan")}, "poll_seconds nan"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ServeSettings(home=HOME, **given)


def test_clients_ask_for_the_pairing_or_the_targets_folder() -> None:
    assert ServeSettings(home=HOME, target=TARGET).model == "toy"
    assert ServeSettings(home=HOME, pairing="docstrings", registry="http://x").model == "docstrings"


def test_a_secret_is_not_shown() -> None:
    settings = ServeSettings(
        home=HOME, pairing="docstrings", registry="http://x", registry_token="hush"
    )
    assert "hush" not in repr(settings)
