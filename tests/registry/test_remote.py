from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from registry.door import check_answers
from registry.errors import DigestError, IncompatibleError, ManifestError, NotFoundError, StoreError
from registry.fingerprint import fingerprint_draft
from registry.promotion import Outcome, promote, rollback
from registry.remote import RemotePair, champion, download, report
from registry.store import Store
from speculation.records import Phase
from tests.registry import tiny
from tests.registry.conftest import registered


@pytest.fixture(scope="module")
def served(server: str, tmp_path_factory: pytest.TempPathFactory) -> RemotePair:
    """A champion with a head, on the real server."""
    place = tmp_path_factory.mktemp("served")
    store = Store(server)
    registered(store, tiny.target(place / "target"), place / "pair", pairing="served")
    promote(store, "served", 1, expect=None)
    found = champion(server, "served")
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_the_champion_is_what_the_store_says_it_is(server: str, served: RemotePair) -> None:
    pair = Store(server).champion("served")
    assert pair is not None
    assert (served.version, served.pair_id, served.release) == (
        pair.version,
        pair.pair_id,
        pair.release,
    )
    assert served.model_id == pair.model_id
    assert served.draft_kind == "head"
    assert not served.unfit


def test_no_pairing_and_no_champion_are_none(server: str, target: Path, tmp_path: Path) -> None:
    assert champion(server, "unheard-of") is None
    registered(Store(server), target, tmp_path / "pair", "ngram", pairing="unpromoted")
    assert champion(server, "unpromoted") is None


def test_a_download_holds_the_manifest_and_the_draft_and_nothing_else(
    served: RemotePair, tmp_path: Path
) -> None:
    place = download(served, tmp_path)
    assert place == tmp_path / served.pair_id
    assert names(place) == ["draft/config.json", "draft/model.safetensors", "pair.json"]
    assert (
        fingerprint_draft(place / "draft").digest
        == json.loads((place / "pair.json").read_text())["draft"]["digest"]
    )
    assert [p.name for p in tmp_path.iterdir() if p.suffix in (".partial", ".broken")] == []


def test_what_is_whole_is_not_downloaded_again_and_what_is_broken_is(
    served: RemotePair, tmp_path: Path
) -> None:
    place = download(served, tmp_path)
    broken = httpx.MockTransport(lambda request: httpx.Response(500))
    away = httpx.Client(base_url=served.url, transport=broken)
    assert download(served, tmp_path, client=away) == place
    weights = place / "draft" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(StoreError, match="answers 500"):
        download(served, tmp_path, client=away)
    assert download(served, tmp_path) == place
    assert weights.read_bytes() == content


def test_what_a_killed_process_left_is_cleared_away(served: RemotePair, tmp_path: Path) -> None:
    beside = tmp_path / f".{served.pair_id}.partial"
    (beside / "draft").mkdir(parents=True)
    (beside / "draft" / "stale.safetensors").write_bytes(b"half")
    assert "draft/stale.safetensors" not in names(download(served, tmp_path))
    assert not beside.exists()


def test_a_pair_without_weights_is_its_manifest(server: str, target: Path, tmp_path: Path) -> None:
    registered(Store(server), target, tmp_path / "pair", "ngram", pairing="weightless")
    promote(Store(server), "weightless", 1, expect=None)
    found = champion(server, "weightless")
    assert found is not None
    assert names(download(found, tmp_path / "pairs")) == ["pair.json"]


Change = Callable[[httpx.Request, httpx.Response], httpx.Response]


@pytest.fixture
def meddled(server: str) -> Iterator[Callable[[Change], httpx.Client]]:
    """A client of the real server whose answers pass through a function."""
    with httpx.Client(base_url=server) as real:

        def client(change: Change) -> httpx.Client:
            def answer(request: httpx.Request) -> httpx.Response:
                got = real.request(request.method, request.url)
                return change(request, got)

            return httpx.Client(base_url=server, transport=httpx.MockTransport(answer))

        yield client


def flipped(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    if request.url.path.endswith(".safetensors"):
        return httpx.Response(200, content=got.content[:-1] + bytes([got.content[-1] ^ 1]))
    return got


def cut(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    if request.url.path.endswith(".safetensors"):
        return httpx.Response(200, content=got.content[:-7])
    return got


def gone(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    return httpx.Response(404) if request.url.path.endswith("pair.json") else got


def forgotten(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    if "logged-models" in request.url.path:
        return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"})
    return got


def elsewhere(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    if "logged-models" in request.url.path:
        body = got.json()
        body["model"]["info"]["artifact_uri"] = "s3://bucket/models"
        return httpx.Response(200, json=body)
    return got


def in_pair_json(**fields: object) -> Change:
    def change(request: httpx.Request, got: httpx.Response) -> httpx.Response:
        if request.url.path.endswith("pair.json"):
            return httpx.Response(200, json={**got.json(), **fields})
        return got

    return change


def no_json(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    return httpx.Response(200, text="<html>a proxy's log-in page</html>")


def breaks_off(request: httpx.Request, got: httpx.Response) -> httpx.Response:
    if request.url.path.endswith(".safetensors"):
        raise httpx.ReadError("connection reset")
    return got


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (flipped, DigestError, "model.safetensors has sha256"),
        (cut, DigestError, "model.safetensors has sha256"),
        (gone, NotFoundError, "pair.json: is gone from the server"),
        (forgotten, NotFoundError, "its files were deleted from MLflow"),
        (elsewhere, StoreError, "its files are at s3://bucket/models"),
        (in_pair_json(files={"draft/../../../x": "0" * 64}), ManifestError, "wanted a path inside"),
        (in_pair_json(pair_id="p-" + "0" * 16), ManifestError, "pair_id: got"),
        (no_json, StoreError, "does not answer as MLflow does"),
        (breaks_off, StoreError, "connection reset"),
    ],
)
def test_whatever_is_wrong_with_a_download_nothing_is_put_in_place(
    served: RemotePair,
    tmp_path: Path,
    meddled: Callable[[Change], httpx.Client],
    change: Change,
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        download(served, tmp_path, client=meddled(change))
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == []


def test_the_report_is_the_registered_one(
    served: RemotePair, meddled: Callable[[Change], httpx.Client]
) -> None:
    assert report(served) == {"rows": []}

    def changed(request: httpx.Request, got: httpx.Response) -> httpx.Response:
        if request.url.path.endswith("report.json"):
            return httpx.Response(200, content=b'{"rows": [1]}')
        return got

    with pytest.raises(DigestError, match="not the one that was registered"):
        report(served, client=meddled(changed))


def test_the_files_of_another_pair_are_refused(served: RemotePair, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="its tags say p-0000000000000000"):
        download(replace(served, pair_id="p-" + "0" * 16), tmp_path)


def test_another_pairings_pair_is_not_fetched(
    server: str, served: RemotePair, target: Path, tmp_path: Path
) -> None:
    """A version copied by hand has a PASS in its tags, and files that are as registered."""
    other = tiny.target(tmp_path / "other", seed=9)
    registered(Store(server), other, tmp_path / "pair", "ngram", pairing="other")
    for pairing in ("other", "nobodys"):
        with pytest.raises(IncompatibleError, match=f"is none of {pairing}'s"):
            download(replace(served, pairing=pairing), tmp_path / "here")
    assert names(tmp_path / "here") == [f".{served.pair_id}.lock"]


def test_a_full_disk_is_told_and_leaves_nothing(
    served: RemotePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("registry.remote.os.fsync", full)
    with pytest.raises(StoreError, match="cannot be stored: No space left on device"):
        download(served, tmp_path)
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == []


def test_an_alias_moved_by_hand_is_seen(server: str, target: Path, tmp_path: Path) -> None:
    store = Store(server)
    files = tmp_path / "pair"
    pair = registered(store, target, files, "ngram", phase=Phase.FAIL, pairing="by-hand")
    store.client.set_registered_model_alias("by-hand", "champion", "1")
    unjudged = champion(server, "by-hand")
    assert unjudged is not None
    assert unjudged.unfit == "has the verdict FAIL"
    store.client.create_model_version(
        "by-hand", source=f"models:/{pair.model_id}", model_id=pair.model_id
    )
    store.client.set_registered_model_alias("by-hand", "champion", "2")
    with pytest.raises(StoreError, match="by-hand v2 carries the alias champion and is no pair"):
        champion(server, "by-hand")


def test_a_pair_that_was_rolled_back_is_not_followed_unless_it_is_forced_again(
    server: str, target: Path, tmp_path: Path
) -> None:
    """Servers, `status` and `promote` say the same of it, however its alias was moved."""
    store, name = Store(server), "left"
    for n, kind in enumerate(("ngram", "none")):
        registered(store, target, tmp_path / str(n), kind, pairing=name)

    def by_hand() -> str:
        store.client.set_registered_model_alias(name, "champion", "2")
        found = champion(server, name)
        assert found is not None
        return found.unfit

    assert promote(store, name, 1, expect=None).ok
    assert promote(store, name, 2, expect=1).ok
    assert rollback(store, name, reason="it was dead").ok
    assert by_hand() == "was rolled back (it was dead)"
    told = store.describe(name).warnings
    assert any("v2 was rolled back (it was dead) and was not forced since" in one for one in told)
    assert promote(store, name, 2, expect=1).outcome is Outcome.REFUSED

    assert promote(store, name, 2, expect=1, force="mended").ok
    assert by_hand() == ""
    assert store.describe(name).warnings == ()
    # A reason is for one time: it does not outlive the next rollback.
    assert rollback(store, name, reason="dead again").ok
    assert by_hand() == "was rolled back (dead again)"
    # What needs no weights may be gone back to all the same, and then its servers follow.
    assert promote(store, name, 1, expect=2).ok
    assert rollback(store, name, to=2, reason="v1 is worse").ok
    assert by_hand() == ""


def test_a_server_that_is_away_is_told_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"http://127.0.0.1:9.* does not answer"):
        champion("http://127.0.0.1:9", "served")
    assert time.monotonic() - started < 5


def test_the_token_is_sent_and_a_refusal_is_told() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(403)

    client = httpx.Client(base_url="http://registry", transport=httpx.MockTransport(answer))
    with pytest.raises(StoreError, match="answers 403 .*check the URL and the token"):
        champion("http://registry", "served", client=client)


def test_the_reader_of_a_serving_host_loads_neither_mlflow_nor_torch() -> None:
    code = (
        "import sys, registry.remote, registry.store, registry.promotion, registry.compatibility\n"
        "print([m for m in ('mlflow', 'torch', 'transformers', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:5000", True),
        ("http://localhost", True),
        ("http://[::1]:80", True),
        ("https://mlflow.example", False),
        ("http://10.0.0.7:5000", False),
    ],
)
def test_only_a_registry_elsewhere_is_asked_through_a_proxy(
    url: str, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def ask(url: str, *, trust_env: bool, **rest: object) -> httpx.Response:
        asked.append(trust_env)
        return httpx.Response(200)

    monkeypatch.setattr("registry.door.httpx.get", ask)
    check_answers(url)
    assert asked == [not here]


def answering(status: int, body: bytes) -> httpx.Client:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body))
    return httpx.Client(base_url="http://registry", transport=transport)


OTHER_ANSWERS = {
    "nothing": b"{}",
    "null": b"null",
    "a list": b"[]",
    "a page": b"<html>sign in</html>",
    "no text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "no version": b'{"model_version": {}}',
    "a version that is a word": b'{"model_version": {"version": "one", "source": "models:/m-1"}}',
    "a version that is text": b'{"model_version": "1"}',
    "tags without keys": b'{"model_version": {"version": "1", "source": "m", "tags": [{}]}}',
    "tags that are none": b'{"model_version": {"version": "1", "source": "m", "tags": null}}',
    "a source that is a number": b'{"model_version": {"version": "1", "source": 3, "tags": []}}',
    "a tag that is a number": b'{"model_version": {"version": "1", "source": "models:/m-1", "tags":'
    b' [{"key": "paceline.pair_id", "value": 7}]}}',
}


@pytest.mark.parametrize("body", OTHER_ANSWERS.values(), ids=OTHER_ANSWERS)
@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_that_is_none_of_mlflows_is_a_store_error(status: int, body: bytes) -> None:
    with answering(status, body) as client, pytest.raises(StoreError, match="http://registry|pair"):
        champion("http://registry", "docstrings", client=client)


def test_a_download_that_is_wanted_no_longer_ends_between_two_pieces(
    served: RemotePair, tmp_path: Path
) -> None:
    asked = []

    def stopped() -> bool:
        asked.append(True)
        return True

    with pytest.raises(StoreError, match="wanted no longer"):
        download(served, tmp_path, stopped)
    assert len(asked) == 1
    assert names(tmp_path) in ([], [f".{served.pair_id}.lock"])


@pytest.mark.parametrize("status", [None, 200, 403])
def test_no_fault_tells_the_password_of_an_address(status: int | None) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if status is None:
            raise httpx.ConnectError("no route to host")
        return httpx.Response(status, text="a page")

    transport = httpx.MockTransport(answer)
    client = httpx.Client(base_url="http://bob:hush@registry", transport=transport)
    with pytest.raises(StoreError, match="http://registry") as caught:
        champion("http://bob:hush@registry", "docstrings", client=client)
    assert "hush" not in str(caught.value)
    assert "bob" not in str(caught.value)


@pytest.mark.parametrize(("piece_bytes", "comes"), [(1000, False), (1_000_000, True)])
def test_a_download_that_drips_is_given_up_and_one_that_is_slow_is_not(
    served: RemotePair,
    tmp_path: Path,
    meddled: Callable[[Change], httpx.Client],
    piece_bytes: int,
    comes: bool,
) -> None:
    now = [0.0]

    def pieces(content: bytes) -> Iterator[bytes]:
        for _ in range(20):  # of a minute and a half
            now[0] += 5.0
            yield b"x" * piece_bytes
        yield content

    def drips(request: httpx.Request, got: httpx.Response) -> httpx.Response:
        if request.url.path.endswith(".safetensors"):
            return httpx.Response(200, content=pieces(got.content))
        return got

    given_up = pytest.raises(StoreError, match="comes at 12000 bytes a minute")
    other = pytest.raises(DigestError)  # it came, and is not what was registered
    with other if comes else given_up:
        download(served, tmp_path, client=meddled(drips), clock=lambda: now[0])
