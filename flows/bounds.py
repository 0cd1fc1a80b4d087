"""Ties a flow run to the worker that started it: it must not train on when the worker is gone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


WORKER = "FLOWS_WORKER_PID"  # environment: set by the worker for the runs it starts


def end_with_worker() -> None:
    """Have Linux end this process with its parent. Only where our worker started it.

    Elsewhere nothing is done: the lock on the work folder still keeps two from computing at once.
    """
    worker = os.environ.get(WORKER)
    if worker is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != worker:
        sys.exit(f"the worker {worker} ended before its flow run began")
