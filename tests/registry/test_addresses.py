from __future__ import annotations

import pytest

from registry.addresses import names_a_user, sayable


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://bob:hush@mlflow.example:80/x?y=z@w#v", "http://mlflow.example:80/x?y=z@w#v"),
        ("https://hush@[::1]:5000", "https://[::1]:5000"),
        ("http://bob:hu@sh@mlflow.example", "http://mlflow.example"),
        ("postgresql+psycopg://bob:hush@db/mlflow", "postgresql+psycopg://db/mlflow"),
        ("bob:hush@mlflow.example", "mlflow.example"),
    ],
)
def test_a_name_and_a_password_are_seen_and_left_out(url: str, said: str) -> None:
    assert names_a_user(url)
    assert sayable(url) == said


@pytest.mark.parametrize(
    "url", ["http://mlflow.example/a@b", "sqlite:///home/a@b.db", "the home's own", "", "http://["]
)
def test_an_address_without_them_is_said_as_it_is(url: str) -> None:
    assert not names_a_user(url)
    assert sayable(url) == url
