"""Counts of rows by arm: tests of the split between arms, and of missing outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtr

from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn, sort_names

Array = NDArray[np.float64]
_MIN_P_VALUE: Final = 1e-6
"""Smallest p-value that is printed."""
_SPLIT_ALPHA: Final = 1e-3
"""Level of the test of the split between arms."""
_GAPS_ALPHA: Final = 0.01
"""Level of the test of missing outcomes, below which effects may be biased."""
_MAX_SHOWN: Final = 6
_MIN_EXPECTED_COUNT: Final = 5.0
"""Smallest expected count of a cell for the chi-squared approximation of Pearson's test."""
_RELATIVE_TOLERANCE: Final = 1e-9
_N_SAMPLES: Final = 20_000
"""Number of tables of the Monte Carlo test."""


def _pearson_p_value(counts: NDArray[Any], expected: Array, freedom: int) -> float:
    """Return the p-value of Pearson's test of counts (Pearson 1900)."""
    return float(chdtrc(freedom, float((np.square(counts - expected) / expected).sum())))


def _missingness_p_value(gaps: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Return the p-value of equal shares of gaps in all arms: Pearson's, or a Monte Carlo test for small counts."""
    total = int(rows.sum())
    expected = np.outer((gaps.sum(), total - gaps.sum()), rows / total)
    if expected.min() >= _MIN_EXPECTED_COUNT:
        return _pearson_p_value(np.stack([gaps, rows - gaps]), expected, len(rows) - 1)
    draws = np.random.default_rng(0).multivariate_hypergeometric(rows, int(gaps.sum()), _N_SAMPLES, method="marginals")
    distances = (np.square(np.vstack([gaps, draws]) - expected[0]) / rows).sum(axis=1)
    return float((distances[1:] >= distances[0] * (1 - _RELATIVE_TOLERANCE)).sum() + 1) / (_N_SAMPLES + 1)


def _clustered_p_value(arms: NDArray[np.int64], clusters: NDArray[np.int64], share: float) -> float:
    """Return the p-value of the share of the second of two arms, with clustered rows."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], (arms == 1) - share)
    error = float(np.sqrt(np.square(sums).sum() * len(sums) / max(1, len(sums) - 1)))
    return float(2 * stdtr(max(1, len(sums) - 1), -abs(sums.sum()) / error)) if error else 1.0


def _write_p(p_value: float) -> str:
    return f"p {'below 1e-6' if p_value < _MIN_P_VALUE else f'{p_value:.2g}'}"


def describe_split(
    counts: NDArray[np.int64],
    arms: Sequence[str],
    intended: Mapping[str, float] | None,
    by_cluster: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> str:
    """Describe the split of people between arms; test it against the intended shares, or equal ones, by cluster."""
    n = int(counts.sum())
    shares = np.array([intended[arm] for arm in arms]) if intended else np.full(len(arms), 1 / len(arms))
    shares = shares / shares.sum()
    if by_cluster:
        p_value = _clustered_p_value(*by_cluster, shares[1])
    else:
        p_value = _pearson_p_value(counts, n * shares, len(arms) - 1)
    observed = ", ".join(f"{arm} {count / n:.1%}" for arm, count in zip(arms, counts.tolist(), strict=True))
    description = "as given" if intended else "the same for all"
    if p_value >= _SPLIT_ALPHA:
        fit = f"Counts fit the shares that were meant, {description}" if intended else "Counts fit an equal split"
        hint = "" if intended else " --share says what was meant, if it was another."
        return f"{fit} ({_write_p(p_value)}): {observed}.{hint}"
    if intended:
        remedy = "People are missing, or counted twice: find out why before you believe an effect"
        return f"People were not split as meant, as given ({_write_p(p_value)}): {observed}. {remedy}."
    remedy = "Give the shares that were meant; if all were meant to be the same, find out who is missing"
    return f"People were not split evenly ({_write_p(p_value)}): {observed}. {remedy}."


def describe_gaps(arm: DataColumn, reward: DataColumn, unit: DataColumn | None) -> tuple[list[str], list[str]]:
    """Describe how many rows of each arm have no reward, and warn if these shares differ significantly.

    With a column of participants or clusters, units without a reward in any row are counted.
    """
    unit_name = "Rows"
    if unit is not None:
        _, first_rows, units = np.unique(unit.codes, return_index=True, return_inverse=True)
        codes = np.full(len(first_rows), -1)
        np.maximum.at(codes, units, reward.codes)
        arm, reward = arm.select_rows(first_rows), replace(reward, codes=codes)
        unit_name = f"Units by {shorten(unit.name)}"
    arms = sort_names(arm.counts)
    rows = np.array([arm.counts[text] for text in arms])
    gap_arms = arm.codes[(reward.codes < 0) & (arm.codes >= 0)]
    gaps = np.bincount(gap_arms, minlength=len(arm.values))[[arm.values.index(text) for text in arms]]
    if not gaps.any():
        return [], []
    shares = [f"{shorten(text)}: {n_gaps:,} of {n:,}" for text, n_gaps, n in zip(arms, gaps, rows, strict=True)]
    name, arm_name = shorten(reward.name), shorten(arm.name)
    remarks = [f"{unit_name} without {name}, by {arm_name}: {', '.join(shares)}."] if len(arms) <= _MAX_SHOWN else []
    if len(arms) < 2 or gaps.sum() == rows.sum():
        return remarks, []
    p_value = _missingness_p_value(gaps, rows)
    if p_value >= _GAPS_ALPHA:
        remarks.append(f"That these shares differ by {arm_name} cannot be told from chance ({_write_p(p_value)}).")
        return remarks, []
    warning = (
        f"the share of {unit_name[:1].lower()}{unit_name[1:]} without {name} differs by {arm_name} "
        f"({_write_p(p_value)}), so that effects compare different people and may be biased: find out who is missing; "
        "analyze with --missing-as low, then high"
    )
    return remarks, [warning]
