"""Where a pairing's releases come from: a record for each place that is watched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
BUCKET = re.compile(r"s3://[^/\s]+(/\S*)?")
PLACES = {  # by kind: what a place has to look like, and the same in words
    "mlflow": (re.compile(r"\S(.*\S)?"), "a registered model's name"),
    "folder": (re.compile(r".*\S.*"), "a folder's path"),
    "store": (BUCKET, "s3://bucket/prefix"),
    "hub": (HUB_NAME, "a repository's owner/name"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A place that releases of the target come from."""

    kind: Literal["mlflow", "folder", "store", "hub"]  # of place; store is S3 or speaks like it
    place: str  # a registered model's name, a folder, s3://bucket/prefix or the hub's owner/name
    alias: str = "champion"  # mlflow: the alias that is followed
    every_version: bool = False  # mlflow: each new version is a release, whatever aliases name
    revision: str = "main"  # hub: the branch, tag or commit that is followed
    base: str = ""  # of LoRA adapters: the folder of their base; empty: the pairing's target
    settle_seconds: float = 10.0  # folder, store: unchanged for so long before it counts as whole
    marker: str = ""  # folder, store: the file that says it is whole; empty: its content says so

    def __post_init__(self) -> None:
        pattern, wanted = PLACES[self.kind]
        if not pattern.fullmatch(self.place):
            raise ValueError(
                f"got place = {self.place!r}, wanted {wanted} for the kind {self.kind}"
            )
        for name in ("alias", "revision"):
            if not getattr(self, name).strip():
                raise ValueError(f"got {name} = {getattr(self, name)!r}, wanted a name")
        if not 0 <= self.settle_seconds <= 86_400:
            raise ValueError(f"got settle_seconds = {self.settle_seconds}, wanted 0 to 86400")
        if "/" in self.marker or self.marker in (".", ".."):
            raise ValueError(f"got marker = {self.marker!r}, wanted a file's name, or nothing")
