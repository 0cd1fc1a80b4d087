"""The exchange log is tidied while the server runs, whatever the disk says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from monitoring.exchanges import ExchangeLog
from serving.retention import retained


class Stubborn(ExchangeLog):
    """A log on a disk that refuses twice."""

    asked = 0

    def expire(self) -> int:
        self.asked += 1
        if self.asked in (2, 3):
            raise OSError("read-only")
        return super().expire()


def test_it_is_tidied_again_and_again_and_a_disk_that_refuses_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 5:
            raise asyncio.CancelledError

    monkeypatch.setattr("serving.retention.asyncio.sleep", sleep)
    log = Stubborn(tmp_path, keep_seconds=320)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(retained(log))
    assert (log.asked, waited) == (5, [10.0] * 5)
    assert caplog.text.count("cannot be deleted") == 1
