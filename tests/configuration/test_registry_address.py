"""A registry's address may be shown: what is secret of it has a place of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from configuration.faults import ConfigurationError
from configuration.reading import read_settings


@pytest.mark.parametrize("scheme", ["http", "https", "postgresql"])
def test_a_registrys_address_with_a_password_is_refused_without_showing_it(
    tmp_path: Path, scheme: str
) -> None:
    address = f"{scheme}://bob:hush@mlflow.example"
    with pytest.raises(ConfigurationError) as caught:
        read_settings(tmp_path, environ={"PACELINE_REGISTRY": address})
    assert "PACELINE_REGISTRY_TOKEN_FILE" in str(caught.value)
    assert "mlflow.example" in str(caught.value)
    assert "hush" not in str(caught.value)
