"""The home's own servers stay up for a command that stays, whoever ran them first."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli import keeping
from cli.keeping import kept
from cli.stack import HomeInUse
from evaluation.endpoints import EndpointError
from registry.errors import StoreError


class Home:
    """Which servers of a home run, and by whom."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.starts = 0
        self.locked = False
        self.broken: Exception | None = None  # what a start raises
        self.dead = threading.Event()  # one of ours is gone

    def running(self, home: Path) -> Mapping[str, str]:
        return dict(self.urls)


class OurStack:
    """As cli.stack.Stack, without processes."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def __enter__(self) -> OurStack:
        if self.home.locked:
            raise HomeInUse("in use by process 1")
        if self.home.broken is not None:
            raise self.home.broken
        return self

    def __exit__(self, *error: object) -> None:
        self.home.urls = {}

    def create_schemas(self) -> None: ...

    def start_mlflow(self) -> str:
        self.home.starts += 1
        self.home.urls = {"mlflow": f"http://ours-{self.home.starts}"}
        return self.home.urls["mlflow"]

    def start_prefect(self) -> str:
        return ""

    def check(self) -> None:
        if self.home.dead.is_set():
            self.home.dead.clear()
            raise EndpointError("mlflow was ended by SIGKILL")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home()
    monkeypatch.setattr(keeping, "running", made.running)
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("cli.stack.Stack", lambda folder, environ: OurStack(made))
    return made


def until_starts(home: Home, starts: int, announced: threading.Semaphore) -> None:
    for _ in range(starts):
        assert announced.acquire(timeout=10)
    assert home.starts >= starts


def test_servers_of_another_command_are_used_and_taken_over_when_it_ends(
    home: Home, tmp_path: Path
) -> None:
    home.urls, home.locked = {"mlflow": "http://theirs"}, True
    announced = threading.Semaphore(0)
    with kept(tmp_path, announced.release) as registry:
        assert registry() == "http://theirs"
        home.urls = {}  # theirs go down before they let go of the home
        assert registry() == "http://theirs"
        assert home.starts == 0
        home.locked = False
        until_starts(home, 1, announced)
        assert registry() == "http://ours-1"
    assert home.urls == {}


def test_a_server_of_ours_that_dies_is_brought_up_again(home: Home, tmp_path: Path) -> None:
    announced = threading.Semaphore(0)
    with kept(tmp_path, announced.release) as registry:
        until_starts(home, 1, announced)
        home.dead.set()
        until_starts(home, 1, announced)
        assert registry() == "http://ours-2"


def test_servers_that_cannot_be_brought_up_at_first_are_a_fault(home: Home, tmp_path: Path) -> None:
    home.broken = EndpointError("no space")
    with pytest.raises(EndpointError, match="no space"), kept(tmp_path):
        pass


def test_who_can_do_without_them_begins_at_once_and_has_them_once_they_are_there(
    home: Home, tmp_path: Path
) -> None:
    home.broken, announced = EndpointError("no space"), threading.Semaphore(0)
    with kept(tmp_path, announced.release, waited_for=False) as registry:
        with pytest.raises(StoreError, match="does not run yet"):
            registry()
        home.broken = None
        until_starts(home, 1, announced)
        assert registry() == "http://ours-1"
