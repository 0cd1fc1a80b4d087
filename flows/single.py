"""One retrain as a process of its own: python -m flows.single PAIRING RELEASE OUT.

For the command that wants it now and has no worker. Whoever starts it can end it at any moment:
what is finished stays finished. Writes into the file OUT, as JSON, {"outcome": …} or
{"error": message, "fault": whether it is one, and no caller's mistake}.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from flows.flushing import flush
from flows.retrain import retrain
from flows.steps import write_json

TERMINATED = 143


def main(argv: list[str]) -> int:
    """Run the flow; 0, 2 for a caller's mistake, 4 for a fault, 143 where SIGTERM came."""
    if len(argv) != 4:
        print(f"got {len(argv) - 1} arguments, wanted PAIRING RELEASE OUT", file=sys.stderr)
        return 2
    pairing, release, out = argv[1], argv[2], Path(argv[3])
    signal.signal(signal.SIGTERM, _end)
    try:
        outcome = retrain(pairing, release, by_hand=True)
    except ValueError as error:
        write_json(out, {"error": str(error), "fault": False})
        return 2
    except Exception as error:  # the edge of the process: whoever started it is to know why
        write_json(out, {"error": f"{type(error).__name__}: {error}", "fault": True})
        return 4
    finally:
        flush()
    write_json(out, {"outcome": outcome})
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    """Unwinds, so that Prefect hears of it and the measured servers are ended."""
    sys.exit(TERMINATED)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
