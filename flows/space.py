"""Whether there is room to compute: a disk that fills up in the middle of it costs hours.

Said as the system would say it, so that the work waits as in any outage and goes on by itself.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

LEAST_BYTES = 256 * 2**20  # free, before anything heavy begins
SHARE = 1.0  # of what the target takes: states and probabilities of its answers, and a draft


def check_room(home: Path, target: Path) -> None:
    """OSError ENOSPC where the home's disk has too little free for a retrain of that target."""
    free = shutil.disk_usage(home).free
    takes = sum(path.stat().st_size for path in target.glob("*.safetensors"))
    wanted = LEAST_BYTES + int(SHARE * takes)
    if free < wanted:
        told = f"{free / 1e9:.1f} GB are free, wanted {wanted / 1e9:.1f} GB for a retrain"
        raise OSError(errno.ENOSPC, f"{told}: free some", str(home))
