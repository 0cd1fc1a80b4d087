"""The command `paceline`: one function a command, each imported with little and loading the rest
when it runs, so that `--help` is quick and a host needs only what its commands use."""

from __future__ import annotations

import typer

from cli import (
    bench,
    demo,
    doctor,
    gating,
    measuring,
    models,
    pairs,
    pin,
    prune,
    resume,
    servers,
    setup,
    state,
    travel,
    up,
    worker,
)
from cli.exits import Commands

app = typer.Typer(
    cls=Commands,
    name="paceline",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # paragraphs flow
    pretty_exceptions_enable=False,
    help=(
        "Keep a draft model in step with its target. A target is released, its draft is made, the "
        "pair is measured, judged, registered and served, and watched until the next release.\n\n"
        "Exit codes: 0 yes or done, 1 no, 2 bad usage or input, 3 inconclusive, 4 fault, 130 and "
        "143 interrupted. Every command takes --json."
    ),
)

app.command()(demo.demo)
app.command()(setup.init)
app.command()(doctor.doctor)
app.command()(models.release)
app.command()(pairs.retrain)
app.command()(measuring.evaluate)
app.command()(gating.gate)
app.command()(pairs.promote)
app.command()(pairs.rollback)
app.command()(pin.pin)
app.command()(resume.resume)
app.command()(servers.serve)
app.command()(servers.monitor)
app.command()(worker.worker)
app.command()(up.up)
app.command()(state.status)
app.command()(prune.prune)
app.command()(models.check)
app.command()(models.fingerprint)
app.command("export")(travel.export)
app.command("import")(travel.import_)
app.add_typer(bench.app, name="bench")

if __name__ == "__main__":
    app()
