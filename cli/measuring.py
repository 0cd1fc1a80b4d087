"""`evaluate`: measures a draft on a real server."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from cli.exits import Exit
from cli.gating import PHASES
from cli.home import DEFAULT_HOME, HomeFolder, Registry, settings_of_existing
from cli.measured import figure_lines, figures
from cli.measuring_alone import measuring_alone
from cli.models import measured_draft
from cli.output import Json, emit, progress_bars, visible
from cli.planning import Earlier, PlanOnly, PolicyFile, as_object, planned
from cli.servers import folders, named
from cli.until_sure import LOOKS, MostLooks, UntilSure, looked
from cli.wanted import Wanted, of_pairing
from configuration.prompts import EXAMPLE
from configuration.serving import Serving
from configuration.settings import Measuring, Pairing

if TYPE_CHECKING:
    pass

Tokenizer = Literal["words", "code"]
Given = TypeVar("Given")
DRAFT = "A draft's folder, or `ngram`."
IN_ITS_TABLE = (  # what a pairing's own table says of a measurement
    *("target", "draft", "incumbent"),
    *("draft_len", "max_tokens", "temperature", "concurrency", "speed_concurrency", "tokenizer"),
    *("adapter", "max_slots", "max_context", "consecutive_errors", "policy_file"),
)


def evaluate(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Made if need be: report.json, report.html with its figures, and what a run that "
            "is cut short has measured, from which the same command goes on.",
            file_okay=False,
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(
            help="A model folder in Hugging Face form; with --pairing, the pairing's release.",
            exists=True,
            file_okay=False,
            metavar="TARGET",
        ),
    ] = None,
    draft: Annotated[
        str | None, typer.Option(metavar="DRAFT", help=DRAFT, callback=measured_draft)
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"JSONL, a prompt a line: {EXAMPLE}", exists=True, dir_okay=False
        ),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="In place of TARGET, --draft, --incumbent and --prompts: this pairing's candidate "
            "beside its champion, as the registry has them, measured as its table says.",
        ),
    ] = None,
    incumbent: Annotated[
        str | None,
        typer.Option(
            metavar="DRAFT",
            help="The draft that serves now, to be compared with.",
            callback=measured_draft,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "--most-prompts", min=1, help="Only the first so many prompts."),
    ] = None,
    draft_len: Annotated[int, typer.Option(min=1, max=16, help="K: tokens drafted a round.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 96,
    temperature: Annotated[
        list[float] | None,
        typer.Option(min=0, max=2, help="0, the default, decodes greedily. May be given again."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Requests at once while acceptance is measured.")
    ] = 4,
    speed_concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Requests at once while speed is measured, 1 by default. May be given again.",
        ),
    ] = None,
    tokenizer: Annotated[
        Tokenizer, typer.Option(help="Of ROUGE-L; code counts symbols and case too.")
    ] = "words",
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="A LoRA adapter of TARGET, for prompts whose `adapter` is NAME; may be repeated.",
        ),
    ] = None,
    max_slots: Annotated[
        int, typer.Option(min=1, help="Requests decoded at once, as the draft will be served.")
    ] = Serving().max_slots,
    max_context: Annotated[
        int, typer.Option(min=1, help="Prompt and answer, in tokens, as the draft will be served.")
    ] = Serving().max_context,
    consecutive_errors: Annotated[
        int, typer.Option(min=1, help="Failures in a row of one request that end a measurement.")
    ] = Measuring().consecutive_errors,
    policy_file: PolicyFile = None,
    plan_only: PlanOnly = False,
    earlier: Earlier = None,
    until_sure: UntilSure = False,
    looks: MostLooks = LOOKS,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Measure a draft on a target, through the server that would serve it.

    Starts that server on loopback and sends every prompt to the draft, to the free n-gram draft and
    to plain decoding, and to the incumbent if one is given. Prints acceptance, tokens a round and
    speed, and keeps a report that `paceline gate` can judge. Where the server fails midway the
    report says why, the exit code is 3, and the same command goes on from there. With --plan it
    only says how many prompts the policy needs. With --until-sure it judges as it goes and ends as
    soon as the verdict is safe, which is then its exit code, as `paceline gate` has it.
    """
    from configuration.prompts import read_prompts
    from configuration.reading import read_policy
    from evaluation.gate import judge
    from evaluation.page import write
    from evaluation.plan import plan
    from evaluation.policy import Policy
    from evaluation.samples import asked_once, is_known
    from flows.lineage import learned
    from flows.looking import run_until_sure
    from flows.trial import run_trial
    from registry.compatibility import compare

    if pairing is None:
        wanted = Wanted(
            _needed(target, "TARGET"),
            _needed(draft, "--draft"),
            incumbent,
            _needed(prompts, "--prompts"),
            Pairing(
                draft_len=draft_len,
                measurement=Measuring(
                    max_tokens=max_tokens,
                    temperatures=tuple(temperature or (0.0,)),
                    concurrency=concurrency,
                    speed_concurrencies=tuple(speed_concurrency or (1,)),
                    tokenizer=tokenizer,
                    consecutive_errors=consecutive_errors,
                ),
                policy=Policy(must_gain=()),  # its own comes below
            ),
            Serving(max_slots=max_slots, max_context=max_context),
            folders(named(adapter or (), "--adapter", "NAME=DIR, such as law=lora/law")),
        )
        limits = Policy() if policy_file is None else read_policy(policy_file)
    else:
        _only_its_table(context, pairing)
        wanted = of_pairing(settings_of_existing(home, registry), pairing, out)
        wanted = replace(wanted, prompts=prompts or wanted.prompts)
        limits = wanted.line.policy
    line, target = wanted.line, wanted.target
    given = read_prompts(wanted.prompts)
    most = count if pairing is None else count or limits.prompts
    asked = asked_once(given)[:most]
    if repeats := len(given) - len(asked_once(given)):
        print(  # for people; stdout is the machine's
            f"{repeats} of {len(given)} prompts ask what one before them asks, which tells nothing "
            "new: they are left out",
            file=sys.stderr,
        )
    policy, loads = replace(limits, prompts=len(asked)), line.measurement.speed_concurrencies
    never = sorted(set(policy.must_gain) - set(loads))
    if never and (policy_file is not None or until_sure):
        raise typer.BadParameter(
            f"got {_listed(loads)}, and the policy wants a gain at {_listed(never)} requests at "
            "once, which nobody would measure: give each of these as well, or take it out of "
            "must_gain",
            param_hint="--speed-concurrency",
        )
    arms = {"candidate": wanted.draft}
    if wanted.incumbent is not None:
        arms["incumbent"] = wanted.incumbent
    for name, kind in arms.items():
        answer = compare(target, kind)
        if not answer.ok:
            emit({"arm": name, **_plain(answer)}, [f"the {name} cannot serve:", *answer.reasons])
            raise typer.Exit(Exit.NO)
    taught = {name: learned(kind) for name, kind in arms.items()}
    for name in [name for name, hashes in taught.items() if hashes is None]:
        print(  # for people, likewise
            f"what the {name} was trained on is not on record beside it: if these prompts are "
            "among it, its acceptance flatters it",
            file=sys.stderr,
        )
    known = frozenset[str]().union(*(hashes or () for hashes in taught.values()))
    met = {prompt.id for prompt in asked if is_known(prompt, known)}
    if met:
        print(
            f"{len(met)} of {len(asked)} prompts are among those that a draft learned from, on "
            "which it is better than on any other: "
            + ("leave them out to judge it" if pairing is None else "they are left out"),
            file=sys.stderr,
        )
    passed_over = 0
    if pairing is not None:  # as a retrain does, of as many as the policy wants
        left = [prompt for prompt in asked_once(given) if not is_known(prompt, known)]
        asked, passed_over = left[:most], len(asked_once(given)) - len(left)
        policy = replace(policy, prompts=max(1, len(asked)))
    draft_len, max_tokens = line.draft_len, line.measurement.max_tokens
    if plan_only:
        needed = planned(policy, earlier, out, draft_len=draft_len, answer_tokens=max_tokens)
        emit(as_object(needed), needed.sentences)
        return
    coming = plan(policy, draft_len=draft_len, answer_tokens=max_tokens)
    if until_sure and coming.too_few:  # it measures for a verdict, and for nothing else
        raise typer.BadParameter(coming.too_few, param_hint="--prompts")
    for told in coming.sentences:
        print(told, file=sys.stderr)
    all_arms = {**arms, "ngram": "ngram", "none": "none"}
    gaining = tuple(load for load in policy.must_gain if load in loads)
    line = replace(line, policy=replace(policy, must_gain=gaining))
    with measuring_alone(out), progress_bars() as progress:
        if until_sure:
            report = run_until_sure(
                target,
                all_arms,
                asked,
                out,
                line=line,
                policy=policy,
                looks=looks,
                serving=wanted.serving,
                adapters=wanted.adapters,
                passed_over=passed_over,
                seen=looked,
                progress=progress,
            ).report
        else:
            report = run_trial(
                target,
                all_arms,
                asked,
                out,
                line=line,
                speed_prompts=policy.speed_prompts,
                serving=wanted.serving,
                adapters=wanted.adapters,
                passed_over=passed_over,
                progress=progress,
            )
    verdict = judge(policy, report)
    shown = write(report, verdict, out)
    measured = figures(report)
    ending = [f"report: {out / 'report.json'}, to read: {shown}"]
    if report.incomplete is not None:
        ending.append(
            f"measuring ended early: {visible(report.incomplete)}; the same command goes on"
        )
    sure = {"phase": verdict.phase, "looks": report.looks} if until_sure else {}
    emit(
        {"report": out / "report.json", "page": shown, **sure, **measured},
        [*figure_lines(measured), *([visible(verdict.headline)] if sure else []), *ending],
    )
    if report.incomplete is not None:
        raise typer.Exit(Exit.INCONCLUSIVE)
    if until_sure:
        raise typer.Exit(PHASES[str(verdict.phase)])


def _needed(given: Given | None, name: str) -> Given:
    if given is None:
        raise typer.BadParameter("missing; give it, or --pairing NAME", param_hint=name)
    return given


def _only_its_table(context: typer.Context, pairing: str) -> None:
    """Raises typer.BadParameter where the command line says what the pairing says."""
    for name in IN_ITS_TABLE:
        if _typed(context, name):
            option = "TARGET" if name == "target" else "--" + name.replace("_", "-")
            raise typer.BadParameter(
                f"got it beside --pairing {pairing}, which says it itself: leave one of them out",
                param_hint=option.removesuffix("-file"),
            )


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given, and is not its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _plain(answer: Any) -> dict[str, Any]:
    return {"compatible": answer.ok, "reasons": answer.reasons, "notes": answer.notes}
