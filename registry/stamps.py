"""Whether a model folder's files are still the ones that were looked at, without reading them.

Between a fingerprint and a load lie seconds, or minutes where requests have to end first; a folder
that is written in that time would be served as what it was. Knows files; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from registry.errors import ChangedFolderError

# What a fingerprint and a load read. A trainer's log beside the weights may go on.
READ = (".json", ".safetensors", ".jinja", ".model", ".txt")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A folder's files by size, times and place on the disk."""

    folder: Path
    files: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, folder: Path) -> Stamp:
        """Take it before the files are read. A folder that is not there has none."""
        found = {}
        for path in folder.glob("*"):
            if path.suffix in READ:
                try:
                    seen = path.stat()
                except OSError:
                    continue
                times = (seen.st_mtime_ns, seen.st_ctime_ns)
                found[path.name] = (seen.st_size, *times, seen.st_ino, seen.st_dev)
        return cls(folder, found)

    def check(self) -> None:
        """Raises ChangedFolderError, with the name of a file that is not as it was."""
        now = Stamp.of(self.folder).files
        for name in sorted(self.files.keys() | now.keys()):
            if self.files.get(name) != now.get(name):
                raise ChangedFolderError(
                    f"{self.folder}: {name} was changed after it was looked at and before it was "
                    "loaded: put a release's files in place before it is served, in a folder that "
                    "is then left alone"
                )


@contextmanager
def unchanged(stamp: Stamp | None) -> Iterator[None]:
    """Raises ChangedFolderError where the files that were read in the block, successfully or not,
    are not those of the stamp. None: there were no files."""
    try:
        yield
    except Exception:
        if stamp is not None:
            stamp.check()  # half a file is no fault of the model's
        raise
    if stamp is not None:
        stamp.check()
