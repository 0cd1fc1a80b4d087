"""Commands that stay: `serve` answers requests, `monitor` watches the server that does."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated

import typer

from cli.home import DEFAULT_HOME, HomeFolder, Registry, running, settings_of
from cli.output import Json, machine
from configuration.settings import Pairing, Settings


def serve(
    target: Annotated[
        Path | None,
        typer.Argument(help="The model folder to serve; not with --pairing.", file_okay=False),
    ] = None,
    draft: Annotated[
        str, typer.Option(help="The draft beside TARGET: `ngram`, `none`, or a folder.")
    ] = "ngram",
    draft_len: Annotated[
        int | None,
        typer.Option(min=0, help="K: tokens drafted a round; left out, the pairing's, else 4."),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(help="Serve the pair that this pairing's alias `champion` names, and follow."),
    ] = None,
    registry: Registry = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Serve unvalidated drafts on loopback, to measure them.")
    ] = False,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DRAFT", help="One draft of a trial; may be repeated."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address; left out, as configured.")] = None,
    port: Annotated[
        int | None, typer.Option(help="0 takes a free one and says which; left out, as configured.")
    ] = None,
    max_slots: Annotated[int | None, typer.Option(help="Requests decoded at once.")] = None,
    max_context: Annotated[int | None, typer.Option(help="Prompt and answer, in tokens.")] = None,
    prefix_tokens: Annotated[
        int,
        typer.Option(
            min=0,
            help="Tokens of prompt beginnings kept for prompts that begin alike; 0 keeps none.",
        ),
    ] = 4096,
    dtype: Annotated[str, typer.Option(help="`auto` is what the weights are stored in.")] = "auto",
    device: Annotated[str, typer.Option(help="`cpu`, or `cuda` for a GPU.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; left out, torch chooses.")
    ] = None,
    capture: Annotated[
        bool,
        typer.Option("--capture", help="Keep prompts and answers, as token ids, in the log."),
    ] = False,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Serve a target with a draft, over OpenAI's HTTP API.

    Three ways: TARGET with --draft serves that pair. --pairing serves whatever pair is champion in
    the registry, and swaps to the next one without dropping a request. TARGET with --trial and one
    --arm a draft serves several side by side, for `paceline evaluate`.

    --pairing without a registry, named or configured, sees that the home's own MLflow and Prefect
    run for as long as it serves; the other commands of this home use them meanwhile.

    SIGTERM or Ctrl-C takes no more requests, finishes those that run, and ends.
    """
    from cli.keeping import kept
    from evaluation.endpoints import free_port
    from serving.main import serve as run
    from serving.settings import ServeSettings

    settings = settings_of(home, registry)
    if pairing is not None and settings.registry.startswith("sqlite:"):
        raise typer.BadParameter(
            f"got {settings.registry}, which a server cannot follow: wanted the http(s) URL of an "
            "MLflow server",
            param_hint="--registry",
        )
    configured = settings.serving
    log_to(sys.stderr, machine())
    asked = ServeSettings(
        home=home.absolute(),
        host=configured.host if host is None else host,
        port=configured.port if port is None else port,
        target=target,
        draft=draft,
        trial=trial,
        arms=arms_of(arm or ()),
        pairing=pairing,
        registry=None if pairing is None else settings.registry or "the home's own",
        registry_token=settings.registry_token,
        draft_len=drafted(settings, pairing) if draft_len is None else draft_len,
        max_slots=configured.max_slots if max_slots is None else max_slots,
        max_context=configured.max_context if max_context is None else max_context,
        prefix_tokens=prefix_tokens,
        dtype=dtype,
        device=device,
        threads=threads,
        capture=capture,
    )
    if pairing is None or settings.registry:
        raise typer.Exit(run(asked))
    settings.pairing(pairing)  # a mistyped one would wait for ever
    asked = replace(asked, port=asked.port or free_port())
    with kept(settings.home, lambda: announce(home, asked.host, asked.port)) as registry_now:
        code = run(asked, registry=registry_now)
    raise typer.Exit(code)


def drafted(settings: Settings, pairing: str | None) -> int:
    """K where the command line names none."""
    return settings.pairings.get(pairing or "", Pairing()).draft_len


def announce(home: Path, host: str, port: int) -> None:
    """Say beside the home's own servers where this one answers, for `monitor` and `status`."""
    path = home / "run" / "stack.json"
    reached = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    urls = {**json.loads(path.read_text()), "server": f"http://{reached}:{port}"}
    path.write_text(json.dumps(urls, indent=1))


def monitor(
    server: Annotated[
        str | None,
        typer.Option(
            help="URL of the server; left out, the one that runs in this home with its own MLflow."
        ),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(help="Compare with what this pairing's champion was measured at."),
    ] = None,
    registry: Registry = None,
    every_seconds: Annotated[float, typer.Option(min=0.1, help="Between two looks.")] = 2.0,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Watch a server: acceptance and speed over time, and an alarm when its draft falls behind.

    Writes monitoring/series.jsonl under the home folder, and alarms into monitoring/outbox, from
    where the watch flow takes them. Runs until SIGTERM or Ctrl-C.
    """
    from cli.expected import Expectations
    from monitoring.monitor import nothing_expected, watch_server

    settings = settings_of(home, registry)
    there = running(home)
    url = server or there.get("server")
    if url is None:
        raise typer.BadParameter(
            f"got none, and no server runs in {home} with its own MLflow: name the URL of one",
            param_hint="--server",
        )
    expected = nothing_expected
    if pairing is not None:

        def stored() -> str | None:
            return settings.registry or running(home).get("mlflow")

        expected = Expectations(stored, pairing, token=settings.registry_token).of
    log_to(sys.stderr, machine())
    watch_server(url, home, expected=expected, every_seconds=every_seconds)


def arms_of(given: Sequence[str]) -> dict[str, str]:
    """The arms of a trial by name. Raises typer.BadParameter for one that is not NAME=DRAFT."""
    arms: dict[str, str] = {}
    for written in given:
        name, _, draft = written.partition("=")
        if not name or not draft or name in arms:
            raise typer.BadParameter(
                f"got {written!r}, wanted NAME=DRAFT with a name of its own, such as "
                "candidate=drafts/new",
                param_hint="--arm",
            )
        arms[name] = draft
    return arms


def log_to(people: IO[str], programs: IO[str] | None) -> None:
    """What Paceline logs: text on stderr, and lines of JSON on stdout where programs read it."""
    logger = logging.getLogger("paceline")
    logger.setLevel(logging.INFO)
    logger.handlers.clear()
    text = logging.StreamHandler(people)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(text)
    logger.propagate = False
    if programs is not None:
        lines = logging.StreamHandler(programs)
        lines.setFormatter(Lines())
        logger.addHandler(lines)


class Lines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"at": record.created, "level": record.levelname.lower(), "from": record.name}
        return json.dumps({**told, "message": record.getMessage()})
