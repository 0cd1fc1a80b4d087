"""The small real model behind the server: swaps under load, clients that leave, the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serving.settings import ServeSettings
from tests.serving.children import child
from tests.serving.registry_stand_in import PAIRING, StandIn, stand_in
from tests.serving.served import serving
from tests.serving.test_main import COMPLETIONS, Stream
from tests.serving.test_swap import swap_under_load
from training.smollm2 import unpack

HEAD = Path(__file__).parents[2] / "examples" / "docstrings" / "draft"
STREAMS, LEAVING, TOKENS = 8, 4, 40

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "registry") as registry:
        yield registry


def test_swaps_of_its_draft_under_load_fail_no_request(
    model: Path, registry: StandIn, tmp_path: Path
) -> None:
    versions = [registry.register(model, draft) for draft in (HEAD, "ngram", "none")]
    registry.promote(versions[0])
    settings = ServeSettings(
        home=tmp_path,
        pairing=PAIRING,
        registry=registry.url,
        poll_seconds=0.2,
        max_slots=4,
        max_context=300,
    )
    with serving(settings) as served:
        answers = swap_under_load(served, registry, versions, swaps=6, requests=40)
    assert all(answer["usage"]["completion_tokens"] for answer in answers)


def leaves(url: str) -> None:
    """A client that reads the beginning of a long answer and goes away."""
    body = {"prompt": [9], "max_tokens": 1000, "temperature": 0, "stream": True}
    with httpx.stream("POST", url + COMPLETIONS, json=body, timeout=60) as answer:
        assert next(answer.iter_lines()).startswith("data: ")


def test_clients_that_leave_free_their_slots_and_sigterm_truncates_nobody(
    model: Path, tmp_path: Path
) -> None:
    settings = {"draft": str(HEAD), "max_slots": 4, "max_context": 1100, "grace_seconds": 120.0}
    with child(model, tmp_path, **settings) as served:
        leaving = [threading.Thread(target=leaves, args=(served.url,)) for _ in range(LEAVING)]
        for one in leaving:
            one.start()
        for one in leaving:
            one.join()
        served.until_running(0)  # a thousand tokens of each would take minutes
        streams = [Stream(served.url, TOKENS) for _ in range(STREAMS)]
        served.until_running(STREAMS)
        served.process.send_signal(signal.SIGTERM)
        for stream in streams:
            stream.join()
        assert served.process.wait(30) == 0
    # An answer may end by itself, and says so.
    ends = [(stream.error, stream.lines[-1]) for stream in streams]
    assert ends == [(None, "data: [DONE]")] * STREAMS
