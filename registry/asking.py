"""What MLflow is asked for, a question a function: a registered model, its versions, one of them.

None where there is none; `StoreError` where MLflow is away or refuses. Knows no pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry.door import speaking

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

PAGE = 1000


def registered_model(client: MlflowClient, url: str, name: str) -> RegisteredModel | None:
    """The registered model of that name."""
    from mlflow.exceptions import MlflowException

    with speaking(url, f"looking for {name}"):
        try:
            return client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise


def versions(
    client: MlflowClient, url: str, name: str, *, where: str = "", limit: int | None = None
) -> list[ModelVersion]:
    """The versions of that registered model, newest first; empty where there is none."""
    found: list[ModelVersion] = []
    token: str | None = None
    with speaking(url, f"listing {name}"):
        while True:
            page = client.search_model_versions(
                f"name='{name}'{where}",
                max_results=min(limit or PAGE, PAGE),
                order_by=["version_number DESC"],
                page_token=token,
            )
            found += page
            token = page.token
            if not token or (limit is not None and len(found) >= limit):
                return found if limit is None else found[:limit]


def aliased(client: MlflowClient, url: str, name: str, alias: str) -> ModelVersion | None:
    """The version that the alias names."""
    from mlflow.exceptions import MlflowException

    with speaking(url, f"looking for the {alias} of {name}"):
        try:
            return client.get_model_version_by_alias(name, alias)
        except MlflowException as error:  # a missing alias is called an invalid parameter
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise


def version(client: MlflowClient, url: str, name: str, number: int) -> ModelVersion | None:
    """The version of that number."""
    from mlflow.exceptions import MlflowException

    with speaking(url, f"reading {name} v{number}"):
        try:
            return client.get_model_version(name, str(number))
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
