"""Intervals for ratios of counts, with the request (or the block) as the independent unit.

Tokens of one request resemble each other, so nothing here ever counts a token as a trial. Every
figure of the gate is a function of column sums over requests, for example acceptance =
sum(accepted) / sum(judged). Its interval is the delete-one jackknife over requests: the
cluster-robust variance, a little wide for few requests, which is the right side to err on.
Knows arrays of numbers; knows nothing of reports, rules or margins.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from speculation.records import Interval

RESAMPLES = 4_999  # bootstrap; its own noise in a 5 % bound is then about 1 % of the half width
SEED = 20_251_129  # the same samples always give the same interval

Floats = NDArray[np.float64]


def clustered(
    columns: Sequence[ArrayLike],
    statistic: Callable[..., Floats],
    *,
    alpha: float,
    log: bool = False,
) -> Interval | None:
    """`statistic` of the column sums, with one-sided 1 - alpha bounds on either side.

    `columns` are equally long, one number a cluster. `statistic` takes the sums, one argument a
    column, as arrays. `log` puts a positive ratio's interval on the log scale, where it is closer
    to symmetric. None where the figure or its spread cannot be told: fewer than two clusters, a
    zero denominator, NaN.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 11.
    """
    table = np.asarray(columns, dtype=np.float64)
    clusters = table.shape[1] if table.ndim == 2 else 0
    if clusters < 2:
        return None
    with np.errstate(all="ignore"):
        sums = table.sum(axis=1)
        whole, without_one = statistic(*sums), statistic(*(sums[:, None] - table))
        if log:
            whole, without_one = np.log(whole), np.log(without_one)
    if not (np.isfinite(whole) and np.isfinite(without_one).all()):
        return None
    deviations = without_one - without_one.mean()
    spread = math.sqrt((clusters - 1) / clusters * float((deviations**2).sum()))
    reach = float(stats.t.ppf(1 - alpha, clusters - 1)) * spread
    bounds = np.array([whole, whole - reach, whole + reach], dtype=np.float64)
    estimate, low, high = (float(bound) for bound in (np.exp(bounds) if log else bounds))
    return Interval(estimate, low, high, clusters)


def ratio(above: ArrayLike, below: ArrayLike, *, alpha: float) -> Interval | None:
    """sum(above) / sum(below), clustered."""
    return clustered([above, below], lambda a, b: a / b, alpha=alpha)


def ratio_difference(
    above: ArrayLike,
    below: ArrayLike,
    other_above: ArrayLike,
    other_below: ArrayLike,
    *,
    alpha: float,
) -> Interval | None:
    """One ratio less another, paired by cluster: what both share cancels."""
    return clustered(
        [above, below, other_above, other_below], lambda a, b, c, d: a / b - c / d, alpha=alpha
    )


def ratio_of_ratios(
    above: ArrayLike,
    below: ArrayLike,
    other_above: ArrayLike,
    other_below: ArrayLike,
    *,
    alpha: float,
) -> Interval | None:
    """One positive ratio over another, paired by cluster, on the log scale."""
    return clustered(
        [above, below, other_above, other_below],
        lambda a, b, c, d: (a / b) / (c / d),
        alpha=alpha,
        log=True,
    )


def mean_difference(values: ArrayLike, others: ArrayLike, *, alpha: float) -> Interval | None:
    """mean(values) - mean(others) by a BCa bootstrap over prompts; NaN marks what was not measured.

    For scores that pile up at one end (most answers equal, a few far off), where a symmetric
    interval would promise more than the bound of the scale allows. What befalls fewer than about
    3 in n prompts may be in none of n, and then no interval knows of it.
    Source: Efron, Better Bootstrap Confidence Intervals, JASA 82, 1987; widened for few prompts.
    """
    first, second = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    known = int(min(np.isfinite(first).sum(), np.isfinite(second).sum()))
    if known < 2:
        return None
    estimate = float(np.nanmean(first) - np.nanmean(second))
    differences = first - second
    paired = np.isfinite(differences)
    alike = (paired == np.isfinite(first)).all() and (paired == np.isfinite(second)).all()
    constant = alike and np.ptp(differences[paired]) < 1e-12  # of scores of 0 to 1: rounding
    if constant or (np.nanstd(first) == 0 and np.nanstd(second) == 0):
        return Interval(estimate, estimate, estimate, known)

    def difference(a: Floats, b: Floats, axis: int = -1) -> Floats:
        counted_a, counted_b = np.isfinite(a).sum(axis), np.isfinite(b).sum(axis)
        with np.errstate(all="ignore"):  # a resample may hold nothing of the sparser column
            return np.asarray(np.nansum(a, axis) / counted_a - np.nansum(b, axis) / counted_b)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # data too degenerate for BCa give NaN bounds: None, below
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (first, second),
            difference,
            paired=True,
            vectorized=True,
            confidence_level=1 - 2 * _widened(alpha, known),
            n_resamples=RESAMPLES,
            method="BCa",
            rng=np.random.default_rng(SEED),
        )
    low, high = (float(bound) for bound in result.confidence_interval)
    return Interval(estimate, low, high, known) if math.isfinite(low + high) else None


def quantile_ratio(
    values: Sequence[ArrayLike], others: Sequence[ArrayLike], *, quantile: float, alpha: float
) -> Interval | None:
    """One quantile over another's, of requests that were timed in paired blocks.

    `values` and `others` hold the seconds of each block's requests, one array a block, blocks in
    the same order; blocks are drawn again, together, since what disturbs a machine disturbs a
    block. A percentile bootstrap, widened for few blocks: a quantile is no smooth function, so
    that neither the jackknife nor BCa would be right. It knows nothing of a tail that the sample
    happened to miss, so each bound is at least as far out as the order statistic that bounds that
    arm's own quantile (Conover, Practical Nonparametric Statistics, 1999, section 3.2).
    None where it cannot be told: NaN, a block without requests, fewer than two blocks, or fewer
    requests of an arm than `requests_to_bound` says.
    """
    first = [np.asarray(block, dtype=np.float64) for block in values]
    second = [np.asarray(block, dtype=np.float64) for block in others]
    blocks = len(first)
    if blocks < 2 or len(second) != blocks or any(not b.size for b in (*first, *second)):
        return None
    fewest = min(sum(b.size for b in side) for side in (first, second))
    whole = np.concatenate([*first, *second])
    if not (np.isfinite(whole).all() and (whole > 0).all()):
        return None
    if fewest < requests_to_bound(quantile, alpha):
        return None
    times = _times(blocks)
    once = np.ones((1, blocks), dtype=times.dtype)
    ratios = [
        _quantile(first, drawn, quantile) / _quantile(second, drawn, quantile)
        for drawn in (once, times)
    ]
    tail = _widened(alpha, blocks)
    low, high = np.quantile(ratios[1], [tail, 1 - tail], method="inverted_cdf")
    ours, theirs = (_own_bounds(side, quantile, alpha) for side in (first, second))
    low, high = min(low, ours.low / theirs.estimate), max(high, ours.high / theirs.estimate)
    low, high = min(low, ours.estimate / theirs.high), max(high, ours.estimate / theirs.low)
    return Interval(float(ratios[0][0]), float(low), float(high), blocks)


def requests_to_bound(quantile: float, alpha: float) -> int:
    """The fewest requests of which the slowest (or the fastest) is beyond the quantile but for a
    chance of alpha: 59 for a p95 at 0.05. Of fewer the tail may be all that was not seen."""
    return math.ceil(math.log(alpha) / math.log(max(quantile, 1 - quantile)))


def _own_bounds(blocks: Sequence[Floats], quantile: float, alpha: float) -> Interval:
    """One arm's quantile between order statistics, whatever the law of the requests."""
    ordered = np.sort(np.concatenate(blocks))
    count = len(ordered)
    below, beyond = stats.binom.ppf([alpha, 1 - alpha], count, quantile)
    return Interval(
        float(np.quantile(ordered, quantile, method="inverted_cdf")),
        float(ordered[max(0, int(below) - 1)]),
        float(ordered[min(count - 1, int(beyond))]),
        count,
    )


def _widened(alpha: float, n: int) -> float:
    """The tail to cut off a bootstrap distribution over `n` units so that alpha of the truth is.

    Resamples vary less than samples by n / (n - 1), and their law has no t's tails (Hesterberg,
    What Teachers Should Know About the Bootstrap, Am. Statistician 69, 2015: "expanded").
    """
    reach = math.sqrt(n / (n - 1)) * float(stats.t.ppf(1 - alpha, n - 1))
    return float(stats.norm.cdf(-reach))


@lru_cache(maxsize=16)
def _times(blocks: int) -> NDArray[np.int32]:
    """[resamples, blocks]: how often each block is drawn. The same ones for every quantile."""
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(np.int32)
    drawn.flags.writeable = False
    return drawn


def _quantile(blocks: Sequence[Floats], times: NDArray[np.int32], quantile: float) -> Floats:
    """The quantile of what blocks hold, were each there as often as a row of `times` says.

    The smallest value that at least the share `quantile` of all is not above.
    """
    values = np.concatenate(blocks)
    order = np.argsort(values, kind="stable")
    owner = np.repeat(np.arange(len(blocks)), [block.size for block in blocks])[order]
    reached = np.cumsum(times[:, owner], axis=1, dtype=np.int32)
    # A little less than the share: 0.95 * 20 must not be more than 19 by rounding.
    first = (reached >= reached[:, -1:] * quantile * (1 - 1e-12)).argmax(axis=1)
    return np.asarray(values[order][first], dtype=np.float64)


def p_below(interval: Interval, limit: float, *, alpha: float, log: bool = False) -> float:
    """The p-value of "truly below `limit`": how often an estimate as low or lower would be met if
    the truth were the limit.

    Of the t statistic that `clustered` made its interval from, at the same `alpha` and `log`; so
    it is below alpha exactly where the interval lies wholly below the limit. 1 where that cannot
    be told.
    """
    low, high, estimate = interval.low, interval.high, interval.estimate
    if log:
        if min(low, estimate, limit) <= 0:
            return 1.0
        low, high, estimate, limit = (math.log(x) for x in (low, high, estimate, limit))
    if not math.isfinite(low + high + estimate + limit) or interval.n < 2:
        return 1.0
    spread = (high - low) / 2 / float(stats.t.ppf(1 - alpha, interval.n - 1))
    if spread == 0:
        return 0.0 if estimate < limit else 1.0
    return float(stats.t.cdf((estimate - limit) / spread, interval.n - 1))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values: to reject those at or below alpha is wrong about any of them with a chance
    of at most alpha, however they depend on each other.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6,
    1979. Raises ValueError for what is no p-value.
    """
    for p_value in p_values:
        if not 0 <= p_value <= 1:
            raise ValueError(f"got p = {p_value!r}, wanted 0 to 1")
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return tuple(adjusted)


def correlation(accepted: ArrayLike, judged: ArrayLike) -> float | None:
    """How alike the tokens of one request are: the intra-request correlation of being accepted.

    The analysis-of-variance estimator for binary clusters of unequal size (Donner and Koval, The
    estimation of intraclass correlation in the analysis of family data, Biometrics 36, 1980).
    0: no more alike than tokens of different requests; may be a little below. None where unknown.
    """
    sizes = np.asarray(judged, dtype=np.float64)
    hits = np.asarray(accepted, dtype=np.float64)[sizes > 0]
    sizes = sizes[sizes > 0]
    clusters, total = len(sizes), sizes.sum()
    if clusters < 2 or total <= clusters:
        return None
    mean = hits.sum() / total
    within = (hits - hits**2 / sizes).sum() / (total - clusters)
    between = (sizes * (hits / sizes - mean) ** 2).sum() / (clusters - 1)
    typical = (total - (sizes**2).sum() / total) / (clusters - 1)
    whole = between + (typical - 1) * within
    return float((between - within) / whole) if whole > 0 else None


def prompts_needed(
    spread: float, distance: float, *, alpha: float, power: float = 0.9
) -> int | None:
    """Prompts after which a one-sided test at `alpha` sees `distance` with chance `power`.

    `spread` is the standard deviation of one prompt's value. None where the distance is 0, or next
    to it: no number of prompts shows a difference that is not there.
    """
    if distance == 0 or not math.isfinite(spread / distance):
        return None
    times = distance_seen(spread, 1, alpha=alpha, power=power) / distance
    return math.ceil(times * times) if math.isfinite(times * times) else None


def distance_seen(spread: float, prompts: int, *, alpha: float, power: float = 0.9) -> float:
    """The smallest true distance that such a test sees on `prompts` prompts: the way back."""
    reach = float(stats.norm.isf(alpha) + stats.norm.ppf(power))  # 1 - alpha may round to 1
    return reach * spread / math.sqrt(prompts)


def more_needed(interval: Interval, limit: float, *, alpha: float, log: bool = False) -> int | None:
    """How many more clusters would decide on which side of `limit` the truth is, if the estimate
    and its spread stay as they are. None where that cannot be told."""
    low, high, estimate = interval.low, interval.high, interval.estimate
    if log:
        if min(low, estimate, limit) <= 0:
            return None
        low, high, estimate, limit = (math.log(x) for x in (low, high, estimate, limit))
    reach = float(stats.t.ppf(1 - alpha, interval.n - 1))
    spread = (high - low) / 2 / reach * math.sqrt(interval.n)
    needed = prompts_needed(spread, estimate - limit, alpha=alpha)
    return None if needed is None else max(1, needed - interval.n)
