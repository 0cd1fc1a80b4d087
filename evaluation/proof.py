"""The proof that the gate can be trusted: what it says of drafts whose truth is known.

Reports are drawn (simulation.py) in which the candidate is as good as the incumbent, worse by the
margin exactly, better or worse by known amounts, dead on a slice, or in which the figures are no
figures. The gate judges them, and so do rules that others use (rivals.py). It is held to bounds,
and so is the proof: one that a broken rule passes too shows nothing. Knows rules as functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context

import numpy as np
from scipy import stats

from evaluation import rivals
from evaluation.faulty import FAULTY, OPEN
from evaluation.gate import judge
from evaluation.looks import strata_of
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.sequential import plan_looks, until_sure
from evaluation.simulation import Arm, arm_with, report, upto
from evaluation.slicing import prompt_tokens
from evaluation.statistics import ratio_difference
from speculation.records import Phase, Verdict

Rule = Callable[[Policy, Report], Phase]
Progress = Callable[[int, int, str], None]

PROMPTS = 160  # of a run
LAST = 40  # of these the task that comes last, where a file is sorted by task
ACCEPTANCE = 0.55  # alpha-hat of the incumbent, at 4 tokens a round
CORRELATIONS = (0.02, 0.10, 0.20)
DIFFERENCES = (-0.10, -0.05, -0.02, 0.0, 0.02, 0.05, 0.10)
CHUNK = 20  # runs that a worker does at a time
SLACK = 0.10  # of power, for the rules beside acceptance, for looks, and for t against normal
SURE = 0.99  # of a bound: a rule that keeps to alpha breaks it once in a hundred times


def gate(policy: Policy, measured: Report) -> Phase:
    """What ships, at one look."""
    return judge(policy, measured).phase


def sequential_gate(policy: Policy, measured: Report) -> Phase:
    """What ships, looking at growing data as `evaluate --until-sure` does. Prompts are taken in
    the order that they have, which `evaluate` mixes."""
    looks = plan_looks(len(measured.prompts) or 1, minimum=policy.minimum_prompts)

    def judged(seen: Report) -> Verdict:
        return judge(policy, seen)

    seen = until_sure(
        lambda look: upto(measured, look.planned[look.number - 1]),
        judged,
        looks,
        strata=strata_of(measured.prompts, prompt_tokens(measured)),
    )
    return seen.verdict.phase


SHIPPED: Mapping[str, Rule] = {"the gate": gate, "the gate at 4 looks": sequential_gate}
RIVALS: Mapping[str, Rule] = {
    "fixed threshold": rivals.fixed_threshold,
    "token interval": rivals.token_level,
    "pooled slices": rivals.pooled_slices,
    "Mann-Whitney": rivals.mann_whitney,
    "naive peeking": rivals.naive_peeking,
}


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true in the reports of one case."""

    name: str
    difference: float = 0.0  # of the candidate's alpha-hat from the incumbent's
    correlation: float = 0.10  # within a request
    dead: bool = False  # nothing is accepted on one of two tasks
    small: bool = False  # and that has too few prompts to be judged by itself
    in_order: bool = False  # that task is the last in the file, and all of it follows the other
    faulty: str | None = None  # which figures are no figures (faulty.py)
    wrong: Phase | None = None  # the verdict that would be false; None: only power is of interest
    never: bool = False  # not even as often as alpha
    known: bool = False  # to be open: nothing measured contradicts it; told, and held to no bound

    @property
    def plain(self) -> bool:
        """Whether the drafts differ in acceptance and in nothing else."""
        return self.faulty is None and not self.dead

    def bound(self, runs: int, alpha: float) -> int:
        """How many of so many runs may get the wrong verdict."""
        if self.known:
            return runs
        return 0 if self.never else int(stats.binom.ppf(SURE, runs, alpha))


@dataclass(slots=True)
class Tally:
    """What became of one truth: verdicts of each rule, and the differences that were estimated."""

    truth: Truth
    runs: int = 0
    verdicts: dict[str, Counter[Phase]] = field(default_factory=dict)
    estimates: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.estimates += other.estimates
        for rule, counted in other.verdicts.items():
            self.verdicts.setdefault(rule, Counter()).update(counted)

    def wrong(self, rule: str) -> int:
        """How many verdicts of `rule` were false."""
        return 0 if self.truth.wrong is None else self.verdicts[rule][self.truth.wrong]


def truths(correlations: Sequence[float] = CORRELATIONS) -> Iterator[Truth]:
    """The cases of the proof."""
    margin = Policy().acceptance_margin
    wrong = {0.0: Phase.FAIL, -margin: Phase.PASS}
    for correlation, difference in product(correlations, DIFFERENCES):
        name = {0.0: "as good", -margin: "at margin"}.get(difference, "apart")
        yield Truth(name, difference, correlation, wrong=wrong.get(difference))
    yield Truth("dead slice", 0.20, dead=True, wrong=Phase.PASS, never=True)
    yield Truth("dead small slice", 0.20, dead=True, small=True, wrong=Phase.PASS, never=True)
    yield Truth("dead at the end", 0.20, dead=True, in_order=True, wrong=Phase.PASS, never=True)
    for faulty in FAULTY:
        yield Truth(faulty, 0.10, faulty=faulty, wrong=Phase.PASS, never=True)
    for lie in OPEN:
        yield Truth(lie, -0.10, faulty=lie, wrong=Phase.PASS, known=True)


def drawn(truth: Truth, seed: int) -> Report:
    """One report of a truth."""
    draft_len = 4
    old = arm_with(ACCEPTANCE, correlation=truth.correlation, draft_len=draft_len)
    new = arm_with(
        ACCEPTANCE + truth.difference, correlation=truth.correlation, draft_len=draft_len
    )
    measured = report(
        {"candidate": new, "incumbent": old, "ngram": Arm(0.15, truth.correlation)},
        seed=seed,
        prompts=PROMPTS,
        draft_len=draft_len,
        tasks=_tasks(truth),
        dead="summary" if truth.dead else None,
    )
    return measured if truth.faulty is None else {**FAULTY, **OPEN}[truth.faulty](measured)


def _tasks(truth: Truth) -> tuple[str, ...]:
    """The tasks of the prompts, over and over."""
    if truth.in_order:  # not mixed as `evaluate` does, so that looks alone have to hold
        return (*["docstring"] * (PROMPTS - LAST), *["summary"] * LAST)
    # dead on 32 of 160: just enough to be judged by itself, and easily lost in the mean; or on 16
    return (*["docstring"] * (9 if truth.small else 4 if truth.dead else 1), "summary")


def tally(truth: Truth, seeds: Sequence[int], rules: Mapping[str, Rule], policy: Policy) -> Tally:
    """Draw reports of one truth and let every rule judge each."""
    found = Tally(truth, len(seeds), {rule: Counter() for rule in rules})
    for seed in seeds:
        measured = drawn(truth, seed)
        for name, rule in rules.items():
            found.verdicts[name][rule(policy, measured)] += 1
        if truth.plain:
            found.estimates.append(difference(measured))
    return found


def difference(measured: Report) -> float:
    """The estimated difference in alpha-hat."""
    columns = [
        [getattr(r.counts, of) for r in measured.of(arm)]
        for arm in ("candidate", "incumbent")
        for of in ("accepted", "judged")
    ]
    interval = ratio_difference(*columns, alpha=0.05)
    return math.nan if interval is None else interval.estimate


@dataclass(frozen=True, slots=True)
class Proof:
    """All tallies, and what follows from them."""

    policy: Policy
    shipped: tuple[str, ...]
    rivals: tuple[str, ...]
    tallies: tuple[Tally, ...]

    def theory(self, truth: Truth, phase: Phase) -> float:
        """How often a one-sided normal test of acceptance alone would say PASS or FAIL of it.

        Its spread is that of the estimates drawn at the same correlation, each about its own mean.
        """
        alike = [
            np.asarray(t.estimates)
            for t in self.tallies
            if t.truth.correlation == truth.correlation and t.truth.plain
        ]
        squares = sum(float(((e - e.mean()) ** 2).sum()) for e in alike)
        spread = math.sqrt(squares / sum(len(e) - 1 for e in alike))
        away = (truth.difference + self.policy.acceptance_margin) / spread
        reach = float(stats.norm.ppf(1 - self.policy.alpha))
        return float(stats.norm.cdf((away if phase is Phase.PASS else -away) - reach))

    def broken(self, rule: str) -> list[Tally]:
        """The truths of which `rule` gave the wrong verdict too often."""
        alpha = self.policy.alpha
        return [t for t in self.tallies if t.wrong(rule) > t.truth.bound(t.runs, alpha)]

    def caught(self, rule: str) -> list[Tally]:
        """Of the truths it broke, those whose figures are figures: whether they are, no rival asks,
        and each would be caught by that alone."""
        return [each for each in self.broken(rule) if each.truth.faulty is None]

    def undecided(self, rule: str) -> list[Tally]:
        """The truths that a test with the same figures would have told and `rule` did not: a rule
        that never decides errs never, and is no rule."""
        found = []
        for each in self.tallies:
            if not each.truth.plain:
                continue
            for phase in (Phase.PASS, Phase.FAIL):
                chance = self.theory(each.truth, phase)
                least = stats.binom.ppf(1 - SURE, each.runs, max(0.0, chance - SLACK))
                if chance > 0.5 and each.verdicts[rule][phase] < least:
                    found.append(each)
        return found

    @property
    def open(self) -> list[Tally]:
        """What is known to get past: no rule can tell it from these figures."""
        return [each for each in self.tallies if each.truth.known]

    @property
    def faults(self) -> list[str]:
        """Why the proof fails; nothing where it holds."""
        said = [
            f"{rule!r} is wrong too often: {told(each.truth)}, {each.wrong(rule)} of {each.runs}"
            for rule in self.shipped
            for each in self.broken(rule)
        ]
        said += [
            f"{rule!r} leaves open what it could tell: {told(each.truth)}"
            for rule in self.shipped
            for each in self.undecided(rule)
        ]
        return said + [
            f"the rival {rule!r} breaks nothing, so that these cases cannot tell it from the gate"
            for rule in self.rivals
            if not self.caught(rule)
        ]


def told(truth: Truth) -> str:
    """A case for people."""
    if not truth.plain:
        return truth.name
    return f"{truth.name} ({truth.difference:+.2f}), correlation {truth.correlation:.2f}"


def prove(
    *,
    runs: int = 200,
    power_runs: int = 100,  # of the truths that no verdict about is false: what is decided of them
    faulty_runs: int = 20,  # there is no chance in most of these
    cases: Iterable[Truth] | None = None,  # None: `truths`
    shipped: Mapping[str, Rule] | None = None,  # None: SHIPPED
    others: Mapping[str, Rule] | None = None,  # None: RIVALS; {}: none
    policy: Policy | None = None,
    workers: int = 1,
    progress: Progress = lambda done, total, what: None,
) -> Proof:
    """Judge every case with every rule. The same arguments give the same figures, however many
    processes (`workers`) share the work; rules have to be functions of a module for more than one.
    """
    ours = SHIPPED if shipped is None else shipped
    theirs = RIVALS if others is None else others
    rules, limits = {**ours, **theirs}, policy or Policy(prompts=PROMPTS)
    tallies = [
        Tally(truth, verdicts={rule: Counter() for rule in rules})
        for truth in (truths() if cases is None else cases)
    ]
    work = [
        (place, range(first, min(first + CHUNK, count)))
        for place, each in enumerate(tallies)
        for count in [_count(each.truth, runs, power_runs, faulty_runs)]
        for first in range(0, count, CHUNK)
    ]
    total = sum(len(part) for _, part in work)
    done = 0

    def finish(place: int, found: Tally) -> None:
        nonlocal done
        tallies[place].add(found)
        done += found.runs
        progress(done, total, "drawing and judging")

    def seeds(place: int, part: range) -> list[int]:
        return [1_000_003 * place + run for run in part]

    if workers == 1:
        for place, part in work:
            finish(place, tally(tallies[place].truth, seeds(place, part), rules, limits))
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            asked: dict[Future[Tally], int] = {
                pool.submit(tally, tallies[place].truth, seeds(place, part), rules, limits): place
                for place, part in work
            }
            for future in as_completed(asked):
                finish(asked[future], future.result())
    return Proof(limits, tuple(ours), tuple(theirs), tuple(tallies))


def _count(truth: Truth, runs: int, power_runs: int, faulty_runs: int) -> int:
    if truth.never or truth.known:
        return faulty_runs
    return power_runs if truth.wrong is None else runs
