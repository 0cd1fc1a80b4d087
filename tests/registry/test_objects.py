"""Releases in an object store, against one on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.errors import FolderError, SourceAwayError
from registry.fingerprint import fingerprint
from registry.objects import fetch_objects, listing
from tests.registry import tiny

pytestmark = pytest.mark.slow  # starts a server that speaks S3


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = "b" + str(abs(hash(request.node.name)))
    made = boto3.resource("s3").Bucket(name)
    made.create()
    return made


def put(bucket: Any, folder: Path, prefix: str) -> None:
    for path in sorted(folder.iterdir()):
        bucket.upload_file(str(path), prefix + path.name)


def test_the_folders_of_a_prefix_are_releases_and_fetched_as_they_are(
    bucket: Any, target: Path, tmp_path: Path
) -> None:
    place = f"s3://{bucket.name}/models"
    assert listing(place) == []
    put(bucket, target, "models/1/")
    put(bucket, tiny.target(tmp_path / "2", seed=1), "models/2/")
    bucket.put_object(Key="models/2/model.py", Body=b"print()")
    bucket.put_object(Key="models/half/config.json", Body=b"{}")
    first, second, half = listing(place)
    assert (first.waits, second.waits) == ("", "")
    assert half.waits == "its weights are not there yet"
    for arrival, folder in ((first, target), (second, tmp_path / "2")):
        fetched = fetch_objects(arrival, tmp_path / arrival.id)
        assert fingerprint(fetched) == fingerprint(folder)
        assert not (fetched / "model.py").exists()


def test_a_prefix_that_is_a_model_is_written_over_and_another_one_then(
    bucket: Any, target: Path, tmp_path: Path
) -> None:
    place = f"s3://{bucket.name}/current/"
    put(bucket, target, "current/")
    (before,) = listing(place)
    put(bucket, tiny.target(tmp_path / "2", seed=1), "current/")
    (after,) = listing(place)
    assert before.pointed
    assert before.id != after.id
    with pytest.raises(FolderError, match="was written to"):
        fetch_objects(before, tmp_path / "fetched")


def test_a_marker_is_waited_for(bucket: Any, target: Path) -> None:
    put(bucket, target, "m/1/")
    (arrival,) = listing(f"s3://{bucket.name}/m", marker="_SUCCESS")
    assert arrival.waits == "_SUCCESS is not there yet"
    bucket.put_object(Key="m/1/_SUCCESS", Body=b"")
    (whole,) = listing(f"s3://{bucket.name}/m", marker="_SUCCESS")
    assert whole.waits == ""


def test_a_store_that_does_not_answer_is_away(bucket: Any) -> None:
    with pytest.raises(SourceAwayError, match="is not to be read"):
        listing("s3://no-such-bucket-here/m")
