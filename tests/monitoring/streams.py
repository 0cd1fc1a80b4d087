"""The simulated requests that `paceline bench monitor` is run with, for tests."""

from __future__ import annotations

from monitoring.simulation import HEAD, HEALTHY, Shift, stream

__all__ = ["HEAD", "HEALTHY", "Shift", "stream"]
