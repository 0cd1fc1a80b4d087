"""Runs one server until it is told to end. The process' edge: socket, signals, environment.

Heavy libraries are imported when `serve` runs, after the environment has told them to be quiet.

    SIGTERM, SIGINT   take no more requests, finish those that run, end (exit code 0, 130)
    a second one      cut them short and end (exit code 143, 130)
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack

from configuration.quiet import quieten
from registry.folders import config_of, weights_of
from serving.home_lock import home_lock
from serving.settings import ServeSettings, is_loopback

log = logging.getLogger("paceline.serving")

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}  # a server fetches nothing
BACKLOG = 2048


class PortInUseError(ValueError):
    """Somebody listens there already."""


def serve(
    settings: ServeSettings,
    *,
    registry: Callable[[], str] | None = None,  # where it is now; None: where the settings say
    environ: MutableMapping[str, str] = os.environ,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Call in the main thread, for the signals.

    Raises PortInUseError and HomeInUseError, and for a static or a trial server whatever its
    folders are refused with (ValueError subclasses). A following server that finds nothing to serve
    yet waits for it.
    """
    quieten(environ)
    environ.update(OFFLINE)
    with ExitStack() as ending:
        listening, admin = listen(settings.host, settings.port), None
        ending.callback(listening.close)
        if settings.admin_port is not None:
            admin = listen(settings.host, settings.admin_port, option="--admin-port")
            ending.callback(admin.close)
        if not settings.keys and not is_loopback(settings.host):
            log.warning(
                "no key is wanted from whoever reaches %s: set PACELINE_KEYS and "
                "PACELINE_ADMIN_KEYS, unless something in front of it asks for one",
                settings.host,
            )
        if settings.target is not None:  # a folder that is no model is said, and makes no home
            config_of(settings.target)
            weights_of(settings.target)
            from serving.room import check_start, free_bytes

            check_start(settings, free_bytes(settings.device))
        ending.enter_context(home_lock(settings.home / "serving"))
        from serving.running import Running

        # What is imported stays: looking through it at each swap would stop the engine for 0.2 s.
        gc.freeze()
        log.info("listening on %s", _url(listening))
        if admin is not None:
            log.info("the admin side listens on %s", _url(admin))
        return asyncio.run(Running(settings, listening, registry, admin=admin).main())


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """A listening socket. Raises PortInUseError, or ValueError for a host that is none of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP, so that asyncio sends each write at once: a chunk of a stream must not wait
    # for the acknowledgement of the one before, which takes up to 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            what = "is in use" if error.errno == errno.EADDRINUSE else "may not be taken"
            raise PortInUseError(
                f"port {port} on {host} {what}: choose another with {option}, or 0 for any free one"
            ) from error
        raise ValueError(f"cannot listen on host {host!r}: {error.strerror or error}") from error
    return listening
