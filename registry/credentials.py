"""How a registry's secret is shown to it: a token, or NAME:PASSWORD where MLflow guards itself.

MLflow's own guard (`--app-name basic-auth`) knows names and passwords only; a proxy in front of it
usually wants a token. A token never holds a colon (RFC 6750), so one setting does for both.
"""

from __future__ import annotations

import base64
from collections.abc import MutableMapping

NAME, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
TOKEN = "MLFLOW_TRACKING_TOKEN"


def header(secret: str | None) -> dict[str, str]:
    """The header of a request; none without a secret."""
    if not secret:
        return {}
    if ":" in secret:
        return {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode("ascii")}
    return {"Authorization": f"Bearer {secret}"}


def for_mlflow(secret: str | None, environ: MutableMapping[str, str]) -> None:
    """Have MLflow's own client show it, and nothing that the environment held for another: MLflow
    would show a name and a password rather than a token. Without a secret nothing is changed."""
    if not secret:
        return
    for variable in (NAME, PASSWORD, TOKEN):
        environ.pop(variable, None)
    name, colon, password = secret.partition(":")
    environ.update({NAME: name, PASSWORD: password} if colon else {TOKEN: secret})
