"""Webhooks: believed when the registry signed them lately, and once. No server runs here."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from registry.hooks import FRESH_SECONDS, HookError, Hooks

SECRET, NOW, BODY = "s" * 20, 1_700_000_000.0, b'{"entity": "model_version_alias"}'


def headers(
    body: bytes = BODY, *, sent: str = f"{NOW:.0f}", delivery: str = "d-1", secret: str = SECRET
) -> dict[str, str]:
    signed = f"{delivery}.{sent}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return {
        "x-mlflow-signature": "v1," + base64.b64encode(digest).decode(),
        "x-mlflow-delivery-id": delivery,
        "x-mlflow-timestamp": sent,
    }


def hooks() -> Hooks:
    return Hooks(SECRET, clock=lambda: NOW)


def test_a_delivery_is_believed_once() -> None:
    known = hooks()
    assert known.new(headers(), BODY)
    assert not known.new(headers(), BODY)
    assert known.new(headers(delivery="d-2"), BODY)


@pytest.mark.slow  # importing MLflow takes seconds
def test_what_the_registry_signs_is_believed() -> None:
    delivery = pytest.importorskip("mlflow.webhooks.delivery")
    signature = delivery._generate_hmac_signature(SECRET, "d-1", f"{NOW:.0f}", BODY.decode())
    assert headers()["x-mlflow-signature"] == signature


@pytest.mark.parametrize(
    ("given", "body", "said"),
    [
        ({}, BODY, "signature"),
        (headers(secret="t" * 20), BODY, "signature"),
        (headers(), BODY + b" ", "signature"),
        (headers() | {"x-mlflow-delivery-id": "d-2"}, BODY, "signature"),
        (headers() | {"x-mlflow-timestamp": f"{NOW + 1:.0f}"}, BODY, "signature"),
        (headers() | {"x-mlflow-signature": headers()["x-mlflow-signature"][3:]}, BODY, "signatu"),
        (headers() | {"x-mlflow-signature": "v1,\xff"}, BODY, "signature"),
        (headers(sent="soon"), BODY, "seconds since"),
        (headers(sent="9" * 400), BODY, "seconds since"),
        (headers(sent=f"{NOW - FRESH_SECONDS - 1:.0f}"), BODY, "301 s ago"),
        (headers(sent=f"{NOW + FRESH_SECONDS + 1:.0f}"), BODY, "-301 s ago"),
    ],
)
def test_a_delivery_that_is_not_signed_or_is_old_is_not_believed(
    given: dict[str, str], body: bytes, said: str
) -> None:
    with pytest.raises(HookError, match=said):
        hooks().new(given, body)


def test_deliveries_are_forgotten_when_they_could_not_come_again() -> None:
    now = NOW
    known = Hooks(SECRET, clock=lambda: now)
    for _ in range(5):
        assert known.new(headers(sent=f"{now:.0f}"), BODY)
        now += 2 * FRESH_SECONDS + 1
    assert len(known._seen) == 1
