"""What a pair was registered with: Python, the machine, and every installed distribution.

Stored with the pair, so that a draft can be made again in a like place. Reads no variable of the
environment: those hold secrets.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

FILE = "environment.json"


def environment() -> dict[str, Any]:
    """Plain data; distributions as {name: version}, names as they spell themselves."""
    found = {
        str(name): str(one.version)
        for one in metadata.distributions()
        if (name := one.metadata["Name"])
    }
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "distributions": dict(sorted(found.items(), key=lambda item: item[0].lower())),
    }


def write_environment(folder: Path) -> Path:
    """Write environment.json into the folder, in the place of one that is there."""
    path = folder / FILE
    path.write_text(json.dumps(environment(), indent=2) + "\n", encoding="utf-8")
    return path
