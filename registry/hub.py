"""Releases in a repository of the Hugging Face hub: the commit that a branch or tag names, fetched.

Whatever speaks the hub's API will do. A commit is fetched by its own hash, so a branch that moves
meanwhile changes nothing. Knows no pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry.arrivals import Arrival
from registry.errors import NotFoundError, SourceAwayError

WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")  # nothing that runs code
LOOK_SECONDS = 20.0  # for one look: it is one request
AT_ONCE = 2  # files; more would take a link from others


def head(
    name: str, revision: str, *, endpoint: str | None = None, token: str | None = None
) -> Arrival:
    """The commit that the revision of owner/name names now.

    Raises NotFoundError where there is no such repository or revision, or none for this token, and
    SourceAwayError where the hub does not answer.
    """
    from huggingface_hub import HfApi

    with _speaking(name, revision):
        told = HfApi(endpoint=endpoint, token=token or False).model_info(
            name, revision=revision, timeout=LOOK_SECONDS
        )
    made = told.last_modified
    return Arrival(
        place=f"{name}@{told.sha}",
        signature=str(told.sha),
        created=0.0 if made is None else made.timestamp(),
        pointed=True,
    )


def fetch_commit(
    place: str, into: Path, *, endpoint: str | None = None, token: str | None = None
) -> Path:
    """The files of owner/name@commit in the folder `into`; asked again after it broke off, it goes
    on. Raises as `head` does, and OSError for a full disk."""
    from huggingface_hub import snapshot_download

    name, _, commit = place.partition("@")
    with _speaking(name, commit):
        snapshot_download(
            name,
            revision=commit,
            local_dir=into,
            allow_patterns=list(WANTED),
            max_workers=AT_ONCE,
            endpoint=endpoint,
            token=token or False,
        )
    shutil.rmtree(into / ".cache", ignore_errors=True)  # the client's notes on what it fetched
    return into


@contextmanager
def _speaking(name: str, revision: str) -> Iterator[None]:
    """Run calls to the hub; its client lets many kinds of exceptions through."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    what = f"{name} at {revision}"
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status < 500 and status not in (408, 429):
            gone = isinstance(error, RepositoryNotFoundError)
            raise NotFoundError(
                f"the hub has no {name if gone else what} for us (HTTP {status}): check the name "
                "and the revision, or set PACELINE_HUB_TOKEN for one that is not public"
            ) from error
        raise SourceAwayError(f"the hub did not give {what} (HTTP {status})") from error
    except HFValidationError as error:
        raise NotFoundError(f"{name} can be no repository's name: {error}") from error
    except Exception as error:  # of whichever HTTP client it found, and its own
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's
        raise SourceAwayError(f"the hub did not give {what}: {error!r}") from error
