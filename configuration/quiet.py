"""The environment in which libraries neither phone home nor draw over what we show.

Knows their variables; most read them once, when they are loaded. Knows no process: whoever starts
one sets them before it loads anything. The one list of them: the registry alone, which is below
this folder, says once more that MLflow is not to count its users.
"""

from __future__ import annotations

from collections.abc import MutableMapping

QUIET = {
    "DO_NOT_TRACK": "1",  # Prefect's client
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # Prefect's server does not read the line above
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eleven idle processes less
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    # their own bars and notes would tear the progress that we show
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # transformers' too
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def quieten(environ: MutableMapping[str, str]) -> None:
    """Set them where the user has not: who asks for a library's own words gets them."""
    for name, value in QUIET.items():
        environ.setdefault(name, value)
