"""What holds for every test: few threads, no network, no telemetry, a device that can be named.

The environment is set before anything heavy is imported: most libraries read it once.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from configuration.quiet import QUIET

TESTS = {
    **QUIET,
    "OMP_NUM_THREADS": "1",  # two cores are shared by servers and tests
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "false",
    "NO_COLOR": "1",  # output is compared as text
    "TERM": "dumb",
    "COLUMNS": "100",
}
for name in [name for name in os.environ if name.startswith("PACELINE_")]:
    del os.environ[name]  # a developer's own settings are not the tests' business
os.environ.update(TESTS)
# A script that runs the tests in its background has Ctrl-C ignored, by all that they start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HOMES = Path(tempfile.mkdtemp(prefix="paceline-tests-"))
os.environ["PREFECT_HOME"] = str(_HOMES / "prefect")
os.environ["MPLCONFIGDIR"] = str(_HOMES / "matplotlib")
os.environ["HF_HOME"] = str(_HOMES / "huggingface")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="the device of tests that use the fixture")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.device)


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOMES, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that a test runs sets up the log of its process, which is the next test's too."""
    logger = logging.getLogger("paceline")
    level, handlers, propagate = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.setLevel(level)
    logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The torch device that `--device` names; `make gpu-check` passes cuda."""
    name = str(request.config.getoption("--device"))
    if name.startswith("cuda"):
        torch = pytest.importorskip("torch", reason="the device cuda needs torch")
        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA GPU on this machine")
    return name
