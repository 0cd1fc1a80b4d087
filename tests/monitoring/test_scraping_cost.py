"""A look at many replicas is measured as it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.scraping_cost import measure


@pytest.mark.slow  # starts a process
def test_every_replica_is_read_at_every_look(tmp_path: Path) -> None:
    cost = measure(tmp_path, replicas=12, looks=2, one_core=False)
    assert cost.windows == 12 * 2
    assert cost.page_bytes > 10_000
    assert cost.cpu_seconds > 0
