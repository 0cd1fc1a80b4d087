"""What a drafter's exception is called when it is told: its kind and its place, never its words.

Knows exceptions; knows nothing of who raised them and of what is done about it.
"""

from __future__ import annotations

import torch

from speculation.breaker import FaultKind


def named(error: Exception) -> tuple[FaultKind, str]:
    """The kind of fault that `error` is, and a message in which nothing of any prompt is.

    An exception's own words may hold what was being decoded; its type and place do not.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}"
    short = isinstance(error, MemoryError | torch.OutOfMemoryError)
    short = short or "allocate memory" in str(error)  # torch's for the CPU is a RuntimeError
    return "memory" if short else "exception", f"{type(error).__name__}{place}"
