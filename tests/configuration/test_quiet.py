"""Libraries that would count their users are told not to, in words that they read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from configuration.quiet import QUIET
from registry.door import SETTINGS

ASK = """
import json, os
from configuration.quiet import quieten
quieten(os.environ)
from huggingface_hub import constants
from mlflow.telemetry.utils import is_telemetry_disabled
from prefect._internal.analytics.enabled import is_telemetry_enabled
from prefect.settings import get_current_settings
print(json.dumps({
    "mlflow": is_telemetry_disabled(),
    "huggingface_hub": constants.HF_HUB_DISABLE_TELEMETRY,
    "prefect": not is_telemetry_enabled(),
    "prefect server": not get_current_settings().server.analytics_enabled,
}))
"""


def test_no_library_counts_its_users_once_it_is_told_to_be_quiet(tmp_path: Path) -> None:
    # all but this: they are quiet in tests and CI by themselves, and ours has told them already
    bare = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=Path(__file__).parents[2],
        env={**bare, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(asked.stdout.splitlines()[-1])
    assert told == dict.fromkeys(("mlflow", "huggingface_hub", "prefect", "prefect server"), True)


def test_what_the_registry_says_to_mlflow_is_what_the_list_says() -> None:
    assert SETTINGS["MLFLOW_DISABLE_TELEMETRY"] == QUIET["MLFLOW_DISABLE_TELEMETRY"]
    assert {name: QUIET.get(name, value) for name, value in SETTINGS.items()} == SETTINGS
