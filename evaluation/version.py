"""Which code measured or judged, as reports and verdicts name it."""

from __future__ import annotations

from importlib import metadata


def code_version() -> str:
    """The installed version; "unknown" in a source tree that is not installed."""
    try:
        return metadata.version("paceline")
    except metadata.PackageNotFoundError:
        return "unknown"
