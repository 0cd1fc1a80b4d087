"""Commands that stay: `serve` answers requests, `monitor` watches the server that does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.home import DEFAULT_HOME, HomeFolder, Registry, running, settings_of
from cli.logs import log_to
from cli.models import known_draft
from cli.output import Json, machine
from configuration.serving import Serving
from configuration.settings import Pairing, Settings

if TYPE_CHECKING:
    from monitoring.exporting import Exporter
    from serving.settings import ServeSettings

DAY_SECONDS = 24 * 3600.0


def _configured(dial: str) -> str:
    """What help says of an option that paceline.toml has a dial for."""
    return f"left out, as configured, {getattr(Serving(), dial)} as shipped"


def serve(
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET", help="The model folder to serve; not with --pairing.", file_okay=False
        ),
    ] = None,
    target_option: Annotated[
        Path | None,
        typer.Option("--target", metavar="DIR", help="The same as TARGET.", file_okay=False),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="DRAFT",
            help="The draft beside TARGET: `ngram` (left out), `none`, or a folder.",
            callback=known_draft,
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="A LoRA adapter of TARGET, asked for as the model NAME; may be repeated.",
        ),
    ] = None,
    draft_len: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"K: tokens drafted a round; left out, the pairing's, else {Pairing().draft_len}.",
        ),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Serve the pair that this pairing's alias `champion` names, and follow it.",
        ),
    ] = None,
    registry: Registry = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Serve unvalidated drafts on loopback, to measure them.")
    ] = False,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DRAFT", help="One draft of a trial; may be repeated."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help=f"Who may connect; {_configured('host')}."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help=f"0 takes a free one and says which; {_configured('port')}."),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            help="Of /admin and /metrics alone; 0 has them beside /v1. Left out, as configured."
        ),
    ] = None,
    max_slots: Annotated[
        int | None, typer.Option(help=f"Requests decoded at once; {_configured('max_slots')}.")
    ] = None,
    max_context: Annotated[
        int | None,
        typer.Option(help=f"Prompt and answer, in tokens; {_configured('max_context')}."),
    ] = None,
    prefix_tokens: Annotated[
        int,
        typer.Option(
            min=0,
            help="Tokens of prompt beginnings kept for prompts that begin alike; 0 keeps none.",
        ),
    ] = 4096,
    dtype: Annotated[
        str, typer.Option(metavar="DTYPE", help="`auto` is what the weights are stored in.")
    ] = "auto",
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="`cpu`, or `cuda` for a GPU.")
    ] = "cpu",
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

    Three ways: TARGET with --draft serves that pair, with --adapter the target's adapters too.
    --pairing serves whatever pair is champion in the registry, and swaps to the next one without
    dropping a request. TARGET with --trial and one --arm a draft serves several side by side, for
    `paceline evaluate`.

    --pairing without a registry, named or configured, sees that the home's own MLflow and Prefect
    run for as long as it serves; the other commands of this home use them meanwhile.

    SIGTERM or Ctrl-C takes no more requests, finishes those that run, and ends.
    """
    from cli.keeping import kept
    from evaluation.endpoints import free_port
    from serving.journal import Journal
    from serving.main import serve as run
    from serving.settings import ServeSettings

    if target is not None and target_option is not None:
        raise typer.BadParameter("got two targets, wanted one", param_hint="--target")
    if draft is not None and (trial or pairing is not None):
        beside, own = ("--trial", "--arm") if trial else ("--pairing", "the champion's own draft")
        raise typer.BadParameter(
            f"got {draft} beside {beside}, which serves {own}: wanted --draft with a TARGET only",
            param_hint="--draft",
        )
    settings = settings_of(home, registry)
    if pairing is not None and settings.registry.startswith("sqlite:"):
        raise typer.BadParameter(
            f"got {settings.registry}, which a server cannot follow: wanted the http(s) URL of an "
            "MLflow server",
            param_hint="--registry",
        )
    arms = named(arm or (), "--arm", "NAME=DRAFT, such as candidate=drafts/new")
    for one in arms.values():
        known_draft(one)
    configured = settings.serving
    log_to(sys.stderr, machine())
    asked = ServeSettings(
        home=home.absolute(),
        host=configured.host if host is None else host,
        port=configured.port if port is None else port,
        target=target or target_option,
        draft=draft or "ngram",
        trial=trial,
        arms=arms,
        adapters=folders(named(adapter or (), "--adapter", "NAME=DIR, such as law=adapters/law")),
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
        capture=capture or configured.capture,
        # Whoever measures a trial finds all of it at its one address.
        admin_port=(0 if trial else configured.admin_port) or None
        if admin_port is None
        else admin_port or None,
        hosts=configured.hosts,
        keys=settings.keys,
        admin_keys=settings.admin_keys,
        hook_secret=settings.hook_secret,
        alert_token=settings.alert_token,
        together={"auto": None, "always": True, "never": False}[configured.together],
        queue_tokens=configured.queue_tokens,
        body_bytes=configured.body_megabytes * 2**20,
        most_messages=configured.most_messages,
        connections=configured.connections,
        poll_seconds=configured.poll_seconds,
        probe_seconds=configured.probe_seconds,
        deadline_seconds=configured.deadline_seconds,
        grace_seconds=configured.grace_seconds,
        coalesce_tokens=configured.coalesce_tokens,
        keep_exchanges_seconds=configured.keep_exchanges_days * DAY_SECONDS,
        keep_exchanges_bytes=configured.keep_exchanges_megabytes * 2**20,
    )
    if pairing is None or settings.registry:
        raise typer.Exit(run(asked))
    settings.pairing(pairing)  # a mistyped one would wait for ever
    asked = replace(asked, port=asked.port or free_port())
    # With a pair on the disk it answers before its registry does, and without it.
    served_before = Journal(settings.home / "serving" / "journal.jsonl", pairing=pairing)
    copied = served_before.last_good is not None
    with kept(settings.home, lambda: announce(home, asked), waited_for=not copied) as registry_now:
        code = run(asked, registry=registry_now)
    raise typer.Exit(code)


def drafted(settings: Settings, pairing: str | None) -> int:
    """K where the command line names none."""
    return settings.pairings.get(pairing or "", Pairing()).draft_len


def announce(home: Path, asked: ServeSettings) -> None:
    """Say beside the home's own servers where this one answers, for `monitor` and `status`."""
    path, host = home / "run" / "stack.json", asked.host
    reached = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    urls = {**json.loads(path.read_text()), "server": f"http://{reached}:{asked.port}"}
    if asked.admin_port is not None:
        urls["admin"] = f"http://{reached}:{asked.admin_port}"
    path.write_text(json.dumps(urls, indent=1))


def monitor(
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the server, or of its admin side where that has a port of its own; left "
            "out, the one that runs in this home with its own MLflow.",
        ),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Compare with what this pairing's champion was measured at."
        ),
    ] = None,
    registry: Registry = None,
    every_seconds: Annotated[
        float | None,
        typer.Option(min=0.1, help="Between two looks; left out, monitoring.every_seconds."),
    ] = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Watch servers: acceptance and speed over time, and an alarm that says why it fell.

    Watches the server of this home and every source of [monitoring.sources] in paceline.toml.
    Writes monitoring/series.jsonl under the home folder, and notices into monitoring/outbox, from
    where the watch flow takes them. Runs until SIGTERM or Ctrl-C.
    """
    from cli.expected import Expectations
    from evaluation.version import code_version
    from monitoring.monitor import nothing_expected, watch_server

    settings = settings_of(home, registry)
    found = settings.monitoring
    there = running(home)
    url = server or there.get("admin") or there.get("server")
    if url is None and not found.sources:
        raise typer.BadParameter(
            f"got none, and no server runs in {home} with its own MLflow: name the URL of one, or "
            "sources in paceline.toml",
            param_hint="--server",
        )
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter(
            f"got {url!r}, wanted the http(s) URL of a server, such as http://127.0.0.1:8000",
            param_hint="--server",
        )
    expected = nothing_expected
    if pairing is not None:

        def stored() -> str | None:
            return settings.registry or running(home).get("mlflow")

        expected = Expectations(stored, pairing, token=settings.registry_token).of
    log_to(sys.stderr, machine())
    scrape, prometheus = settings.scrape_token, settings.prometheus_token
    tokens = {"vllm": scrape, "sglang": scrape, "prometheus": prometheus}
    with _shown(found.metrics_port) as exporter:
        watch_server(
            url,
            home,
            expected=expected,
            settings=found,
            every_seconds=found.every_seconds if every_seconds is None else every_seconds,
            timeout_seconds=found.timeout_seconds,
            headers=settings.operator_headers,
            tokens={kind: token for kind, token in tokens.items() if token},
            code_version=code_version(),
            exporter=exporter,
        )


@contextmanager
def _shown(port: int) -> Iterator[Exporter | None]:
    """The monitor's own metrics on that port of loopback; 0: none."""
    if not port:
        yield None
        return
    from prometheus_client import CollectorRegistry

    from monitoring.exporting import Exporter
    from monitoring.exporting import serve as answer

    registry = CollectorRegistry()
    exporter = Exporter(registry)
    end = answer(registry, port)
    try:
        yield exporter
    finally:
        end()


def named(given: Sequence[str], option: str, wanted: str) -> dict[str, str]:
    """What NAME=VALUE options say, by name. Raises typer.BadParameter for one that is not so."""
    found: dict[str, str] = {}
    for written in given:
        name, _, value = written.partition("=")
        if not name or not value or name in found:
            got = f"got {written!r}, wanted each with a name of its own, {wanted}"
            raise typer.BadParameter(got, param_hint=option)
        found[name] = value
    return found


def folders(named: Mapping[str, str]) -> dict[str, Path]:
    return {name: Path(folder) for name, folder in named.items()}
