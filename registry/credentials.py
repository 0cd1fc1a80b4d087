"""How a registry's secret is shown to it: a token, or NAME:PASSWORD where MLflow guards itself.

MLflow's own guard (`--app-name basic-auth`) knows names and passwords only; a proxy in front of it
usually wants a token. A token never holds a colon (RFC 6750), so one setting does for both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping


def header(secret: str | None) -> dict[str, str]:
    """The header of a request; none without a secret."""
    if not secret:
        return {}
    if ":" in secret:
        return {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode("ascii")}
    return {"Authorization": f"Bearer {secret}"}


def for_mlflow(secret: str | None) -> Mapping[str, str]:
    """The environment in which MLflow's own client shows it."""
    if not secret:
        return {}
    name, colon, password = secret.partition(":")
    if not colon:
        return {"MLFLOW_TRACKING_TOKEN": secret}
    return {"MLFLOW_TRACKING_USERNAME": name, "MLFLOW_TRACKING_PASSWORD": password}
