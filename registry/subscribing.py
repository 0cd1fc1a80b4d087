"""Has MLflow post to us when somebody else's model changes: a webhook, made once, kept in step."""

from __future__ import annotations

from typing import Any

from registry.door import speaking
from registry.store import Store

NAME = "paceline"


def ensure_webhook(store: Store, url: str, secret: str, *, name: str = NAME) -> str:
    """See that MLflow has the webhook of that name, active, to `url`, signed with `secret`; its id.

    Raises StoreError where MLflow refuses it: one that is not its own home's wants https and a
    host that is not private.
    """
    from mlflow.entities.webhook import WebhookStatus

    events: list[Any] = ["model_version_alias.created", "model_version.created"]
    with speaking(store.url, f"making the webhook to {url}"):
        token = None
        while True:
            page = store.client.list_webhooks(page_token=token)
            for found in page:
                if found.name == name:
                    # its secret is never shown, so it is always said again
                    kept = store.client.update_webhook(
                        found.webhook_id,
                        url=url,
                        events=events,
                        secret=secret,
                        status=WebhookStatus.ACTIVE,
                    )
                    return str(kept.webhook_id)
            token = page.token
            if not token:
                break
        made = store.client.create_webhook(name, url, events, secret=secret)
    return str(made.webhook_id)
