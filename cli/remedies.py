"""What the operating system refuses, in words that say what to do; and whether the caller named it.

Knows error numbers and the paths of a command line. Knows nothing of commands or exit codes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# What is wrong with a place: named by the caller, the caller has to name another or change it.
PLACES = {
    errno.ENOENT: "check the path",
    errno.EEXIST: "something else has that name: move it away, or choose another place",
    errno.ENOTDIR: "a file stands where a folder is wanted: choose another path",
    errno.EISDIR: "a folder stands where a file is wanted: choose another path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "its links lead in a circle: name the place itself",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "the system does not allow that there: choose another place",
    errno.EROFS: "it can only be read: choose a place that can be written",
    errno.EINVAL: "the file system cannot do that there: choose a place on a local disk",
    errno.EOPNOTSUPP: "the file system cannot do that there: choose a place on a local disk",
}
# What is wrong with the machine or the network, whatever was named.
FAULTS = {
    errno.ENOSPC: "free some space, or choose another folder with --home",
    errno.EDQUOT: "your quota of disk is used up: free some, or choose another folder with --home",
    errno.EFBIG: "the file system holds no larger file: choose another folder with --home",
    errno.EIO: "the disk does not read or write: see what the system's log says of it",
    errno.ESTALE: "a network folder went away: mount it again, and run the command again",
    errno.EBUSY: "another program holds it: end that one, and run the command again",
    errno.EMFILE: "raise the limit of open files with `ulimit -n`, and run the command again",
    errno.ENFILE: "the whole machine has too many files open: end what holds them",
    errno.ENOMEM: "free some memory, or ask for less at once",
    errno.EAGAIN: "the machine has no more processes or threads: end some, or raise `ulimit -u`",
    errno.ECONNREFUSED: "nothing listens there: start that server, or correct its address",
    errno.ECONNRESET: "the other side went away: see whether it still runs, and run this again",
    errno.EPIPE: "the other side went away: see whether it still runs, and run this again",
    errno.ETIMEDOUT: "no answer came: see whether it runs and can be reached, and run this again",
    errno.EHOSTUNREACH: "that host cannot be reached: correct its address or the network",
    errno.ENETUNREACH: "that network cannot be reached: correct the address or the network",
    errno.EADDRINUSE: "choose another with --port, or --port 0 for any free one",
    errno.EADDRNOTAVAIL: "this machine has no such address: choose another with --host",
}
UNKNOWN = "PACELINE_DEBUG=1 shows where"


def remedy(error: OSError) -> str:
    """What to do about it."""
    code = error.errno or 0
    if not error.filename and code in (errno.EACCES, errno.EPERM):
        return "this user may not do that here: ask for the right to"
    return PLACES.get(code) or FAULTS.get(code) or UNKNOWN


def misnamed(error: OSError, named: Sequence[Path]) -> bool:
    """Whether it is the fault of a place that the caller named, and no fault of the machine's.

    The place may be the path that was named, a folder above it, or one made below it; but a file
    that is missing below it is ours to have put there.
    """
    if error.errno not in PLACES or not isinstance(error.filename, (str, bytes)):
        return False
    place = Path(os.path.abspath(os.fsdecode(error.filename)))
    for path in named:
        if path.is_relative_to(place):
            return True
        if place.is_relative_to(path) and error.errno != errno.ENOENT:
            return True
    return False


def named_paths(arguments: Sequence[str], environ: Mapping[str, str]) -> list[Path]:
    """Whatever a command line may have named as a path, and the home of the environment."""
    words = [word.partition("=")[2] if word.startswith("-") else word for word in arguments]
    words.append(environ.get("PACELINE_HOME", ""))
    return [Path(os.path.abspath(word)) for word in words if word]
