"""Releases in an object store that speaks S3: seen by their listing, fetched whole.

An object is there with its last byte or not at all, so what a prefix lacks shows in its listing; a
listing that is another one after the download was still being written to. Needs boto3, of the extra
`server`; knows no pairs.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from registry.arrivals import Arrival
from registry.errors import FolderError, SourceAwayError
from registry.incoming import ADAPTER_CONFIG, MEANT, MOST_FILES

SCHEME = "s3://"
Object = dict[str, Any]  # as boto3 lists it: Key, Size, ETag, LastModified


def listing(place: str, *, marker: str = "") -> list[Arrival]:
    """What may be releases below s3://bucket/prefix: the prefix itself where it is one, else the
    folders in it. Raises SourceAwayError."""
    bucket, prefix = _split(place)
    objects = _objects(bucket, prefix)
    if _is_one(objects, prefix):
        return [_arrival(bucket, prefix, objects, marker, pointed=True)]
    folders: dict[str, list[Object]] = {}
    for one in objects:
        name, inside, _ = one["Key"].removeprefix(prefix).partition("/")
        if inside and not name.startswith("."):
            folders.setdefault(f"{prefix}{name}/", []).append(one)
    return [
        _arrival(bucket, folder, held, marker, pointed=False) for folder, held in folders.items()
    ]


def fetch_objects(arrival: Arrival, into: Path) -> Path:
    """The files of what arrived in the folder `into`. Raises FolderError where they are others by
    now, SourceAwayError where the store does not answer, OSError for a disk."""
    bucket, prefix = _split(arrival.place)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for one in _objects(bucket, prefix):
        name = one["Key"].removeprefix(prefix)
        if "/" not in name and name.endswith(MEANT):
            with _speaking(arrival.place):
                _client().download_file(bucket, one["Key"], str(into / name))
    if _signature(_objects(bucket, prefix), prefix) != arrival.signature:
        raise FolderError(f"{arrival.place}: was written to while it was taken in")
    return into


def _arrival(
    bucket: str, prefix: str, objects: list[Object], marker: str, *, pointed: bool
) -> Arrival:
    names = {one["Key"].removeprefix(prefix) for one in objects}
    waits = ""
    if marker and marker not in names:
        waits = f"{marker} is not there yet"
    elif not _is_one(objects, prefix):
        waits = "config.json is not there yet"
    elif not any(name.endswith(".safetensors") for name in names):
        waits = "its weights are not there yet"
    made = max((one["LastModified"].timestamp() for one in objects), default=0.0)
    place = f"{SCHEME}{bucket}/{prefix}"
    return Arrival(place, _signature(objects, prefix), made, pointed, waits)


def _signature(objects: list[Object], prefix: str) -> str:
    told = hashlib.sha256()
    for one in sorted(objects, key=lambda each: str(each["Key"])):
        name = one["Key"].removeprefix(prefix)
        if "/" not in name and name.endswith(MEANT):
            told.update(f"{name}\0{one['Size']}\0{one['ETag']}\0{one['LastModified']}\0".encode())
    return told.hexdigest()


def _is_one(objects: list[Object], prefix: str) -> bool:
    names = {one["Key"] for one in objects}
    return bool(names & {f"{prefix}config.json", f"{prefix}{ADAPTER_CONFIG}"})


def _objects(bucket: str, prefix: str) -> list[Object]:
    found: list[Object] = []
    with _speaking(f"{SCHEME}{bucket}/{prefix}"):
        pages = _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            found += page.get("Contents", ())
            if len(found) > MOST_FILES:
                raise SourceAwayError(f"{SCHEME}{bucket}/{prefix}: more than {MOST_FILES} objects")
    return found


def _split(place: str) -> tuple[str, str]:
    bucket, _, prefix = place.removeprefix(SCHEME).partition("/")
    return bucket, prefix if not prefix or prefix.endswith("/") else prefix + "/"


def _client() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise SourceAwayError(
            "an object store is read with boto3: pip install 'paceline[server]'"
        ) from error
    return boto3.client("s3")  # who it is, and where, boto3 reads from AWS_… variables and files


@contextmanager
def _speaking(place: str) -> Iterator[None]:
    try:
        yield
    except SourceAwayError:
        raise
    except Exception as error:  # boto3 makes its classes as it goes
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's
        raise SourceAwayError(f"{place} is not to be read: {error}") from error
