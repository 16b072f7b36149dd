"""Tests of hypotheses with one stated false-alarm rate: seeds are fixed, so an alarm once is an alarm always."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

FALSE_ALARM = 1e-6
"""Chance, over the choice of seed, that one comparison fails though the code is right."""


def is_compatible(observed: ArrayLike, expected: ArrayLike) -> bool:
    """Whether counts fit expected counts (chi-square); the smallest cells are pooled until they expect 5."""
    counts, hoped = np.ravel(observed).astype(float), np.ravel(expected).astype(float)
    if (counts[hoped == 0] > 0).any():
        return False
    order = np.argsort(hoped)
    counts, hoped = counts[order], hoped[order]
    n_pooled = int((np.cumsum(hoped) < 5).sum())
    counts, hoped = (np.append(values[: n_pooled + 1].sum(), values[n_pooled + 1 :]) for values in (counts, hoped))
    if len(hoped) == 1:
        return bool(counts[0] == hoped[0])
    statistic = float(((counts - hoped) ** 2 / hoped).sum())
    return float(stats.chi2.sf(statistic, len(hoped) - 1)) > FALSE_ALARM


def independent(left: ArrayLike, right: ArrayLike) -> bool:
    """Whether two label vectors are independent (chi-square of their contingency table)."""
    a, b = np.ravel(left), np.ravel(right)
    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), 1)
    return float(stats.chi2_contingency(table, correction=False).pvalue) > FALSE_ALARM


def same_law(left: ArrayLike, right: ArrayLike) -> bool:
    """Whether two samples of columns (draws, quantities) share location, spread and quantiles, quantity by quantity."""
    a, b = np.atleast_2d(left), np.atleast_2d(right)
    alarm = FALSE_ALARM / (3 * a.shape[1])
    rounding = 1e-9 * (1 + abs(a[0]))
    is_constant = (np.ptp(a, axis=0) < rounding) & (np.ptp(b, axis=0) < rounding)
    if (abs(a[0] - b[0]) > rounding)[is_constant].any():
        return False
    if is_constant.all():
        return True
    a, b = a[:, ~is_constant], b[:, ~is_constant]
    squares = (a - a.mean(axis=0)) ** 2, (b - b.mean(axis=0)) ** 2
    with warnings.catch_warnings():
        # Of a quantity that is constant in one sample alone the other tells.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        pvalues = [stats.ttest_ind(*pair, equal_var=False).pvalue for pair in ((a, b), squares)]
    if (np.array(pvalues) <= alarm).any():
        return False
    people = round(len(a) * len(b) / (len(a) + len(b)))
    return float(stats.kstwo.sf(_widest_gap(a, b), people)) > alarm


def _widest_gap(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """The largest Kolmogorov-Smirnov statistic of all columns: all are sorted at once, a call for each takes longer."""
    joint = np.concatenate([left, right])
    order = np.argsort(joint, axis=0)
    values = np.take_along_axis(joint, order, axis=0)
    gaps = np.abs(np.cumsum(np.where(order < len(left), 1 / len(left), -1 / len(right)), axis=0))
    is_last = np.vstack([values[1:] != values[:-1], np.ones((1, values.shape[1]), bool)])
    return float(gaps[is_last].max())


def centred(sample: ArrayLike, expected: ArrayLike) -> bool:
    """Whether the means of columns (draws, quantities) are ``expected``."""
    values = np.atleast_2d(sample)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    gap = np.abs(values.mean(axis=0) - np.ravel(expected))
    limit = float(stats.t.isf(FALSE_ALARM / (2 * values.shape[1]), len(values) - 1))
    return bool((gap <= limit * error + 1e-12).all())


def realised_epsilon(left: ArrayLike, right: ArrayLike) -> float:
    """Epsilon that two samples of outcomes prove, at confidence ``FALSE_ALARM``: 0 if they prove nothing.

    The largest log ratio of Clopper-Pearson bounds, over single outcomes and both directions.
    """
    a, b = np.ravel(left), np.ravel(right)
    outcomes = np.unique(np.concatenate([a, b]))
    alarm = FALSE_ALARM / (4 * len(outcomes))
    proved = 0.0
    for outcome in outcomes:
        hits = int((a == outcome).sum()), int((b == outcome).sum())
        for (x, n), (y, m) in (((hits[0], len(a)), (hits[1], len(b))), ((hits[1], len(b)), (hits[0], len(a)))):
            low = float(stats.beta.ppf(alarm, x, n - x + 1)) if x else 0.0
            high = float(stats.beta.isf(alarm, y + 1, m - y)) if y < m else 1.0
            if low > high:
                proved = max(proved, float(np.log(low / high)))
    return proved
