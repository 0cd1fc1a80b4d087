"""The home's own MLflow and Prefect for a command that stays, by whoever runs them just now.

Another command of this home may have brought them up, and takes them down when it ends; then this
one brings them up in its turn, and again where one of them died. Addresses change with that, so
they are asked for and not kept.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.home import need_control, running
from registry.errors import StoreError

log = logging.getLogger("paceline.servers")

LOOK_SECONDS = 2.0  # between two looks at whether they are there
AGAIN_SECONDS = 30.0  # after a start that failed


@dataclass
class Keeper:
    """Sees that the home's servers run. `watch` is a thread's: they live and die with that one."""

    home: Path
    started: Callable[[], None] = lambda: None  # after every start of ours
    waited_for: bool = True  # else a first start that fails is tried again, as any other
    ready: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    failed: Exception | None = None  # the first start; later ones are tried again
    _registry: str = field(default="", init=False)

    def address(self) -> str:
        """MLflow's URL now, or the last one known. The registry's reader says where it is away.

        Raises StoreError before any is known.
        """
        self._registry = running(self.home).get("mlflow") or self._registry
        if not self._registry:
            raise StoreError(f"the MLflow of {self.home} does not run yet")
        return self._registry

    def watch(self) -> None:
        while not self.ended.is_set():
            if there := running(self.home):
                self._registry = there["mlflow"]
                self.ready.set()
                self.ended.wait(LOOK_SECONDS)
                continue
            try:
                self._run()
            except Exception as error:  # the edge of this thread: told, and tried again
                if self.waited_for and not self.ready.is_set():
                    self.failed = error
                    self.ready.set()
                    return
                log.warning("the home's own servers: %s", error)
                self.ended.wait(AGAIN_SECONDS)

    def _run(self) -> None:
        """Bring them up and stay until the end, or until one of them is gone."""
        from cli.stack import HomeInUse, Stack

        try:
            with Stack(self.home, os.environ) as stack:
                log.info("starting the home's own MLflow and Prefect")
                stack.create_schemas()
                self._registry = stack.start_mlflow()
                stack.start_prefect()
                self.started()
                self.ready.set()
                while not self.ended.wait(LOOK_SECONDS):
                    stack.check()
        except HomeInUse:  # another command is about to bring them up, or to take them down
            self.ended.wait(LOOK_SECONDS)


@contextmanager
def kept(
    home: Path, started: Callable[[], None] = lambda: None, *, waited_for: bool = True
) -> Iterator[Callable[[], str]]:
    """Where the home's MLflow answers, asked anew each time, for as long as the block runs.

    `started` is called after each start by this command. Raises EndpointError, or
    ModuleNotFoundError for a library that is not installed, where they cannot be brought up at
    first; later faults are logged and tried again. Not `waited_for`, the block begins at once, for
    whoever can do without them for a while, and a first fault is like a later one.
    """
    need_control()
    keeper = Keeper(home, started, waited_for)
    thread = threading.Thread(target=keeper.watch, name="home's servers", daemon=True)
    thread.start()
    try:
        if waited_for:
            keeper.ready.wait()
        if keeper.failed is not None:
            raise keeper.failed
        yield keeper.address
    finally:
        keeper.ended.set()
        thread.join()
