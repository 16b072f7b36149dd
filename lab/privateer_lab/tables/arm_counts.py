"""Counts of rows by arm: how rows were split, how many lack an outcome, and whether chance explains either."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtr

from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.marks import in_order

Array = NDArray[np.float64]
_LEAST_P: Final = 1e-6
"""Below, a p-value is said to be smaller."""
_SURPRISING: Final = 1e-3
"""A p-value of shares of arms that is no chance."""
_DIFFERENT: Final = 0.01
"""A p-value of shares of gaps from which on effects may be biased."""
_SHOWN: Final = 6
_FEW: Final = 5.0
"""Expected rows of a cell below which Pearson's test has no chi-squared law."""
_SAME: Final = 1e-9
_DRAWS: Final = 20_000
"""Tables that are drawn in its place."""


def _p_value(counts: NDArray[Any], expected: Array, freedom: int) -> float:
    """Return the p-value of Pearson's test of counts (Pearson 1900)."""
    return float(chdtrc(freedom, float((np.square(counts - expected) / expected).sum())))


def _p_of_gaps(gaps: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Return the p-value of shares of gaps that differ between arms: by draws of tables alike, where gaps are few."""
    total = int(rows.sum())
    expected = np.outer((gaps.sum(), total - gaps.sum()), rows / total)
    if expected.min() >= _FEW:
        return _p_value(np.stack([gaps, rows - gaps]), expected, len(rows) - 1)
    drawn = np.random.default_rng(0).multivariate_hypergeometric(rows, int(gaps.sum()), _DRAWS, method="marginals")
    distances = (np.square(np.vstack([gaps, drawn]) - expected[0]) / rows).sum(axis=1)
    return float((distances[1:] >= distances[0] * (1 - _SAME)).sum() + 1) / (_DRAWS + 1)


def _p_by_cluster(arms: NDArray[np.int64], clusters: NDArray[np.int64], share: float) -> float:
    """Return the p-value of the share of the second of two arms, where rows of a cluster depend on each other."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], (arms == 1) - share)
    error = float(np.sqrt(np.square(sums).sum() * len(sums) / max(1, len(sums) - 1)))
    return float(2 * stdtr(max(1, len(sums) - 1), -abs(sums.sum()) / error)) if error else 1.0


def _chance(p_value: float) -> str:
    return f"p {'below 1e-6' if p_value < _LEAST_P else f'{p_value:.2g}'}"


def split_in_words(
    counts: NDArray[np.int64],
    arms: Sequence[str],
    meant: Mapping[str, float] | None,
    mixed: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> str:
    """Say how people were split among arms, and whether chance explains how far that is from what was meant.

    counts (arms,): people of each.
    meant: shares that were meant; None: nobody said.
    mixed: rows' places of two arms and of clusters, (rows,) each, where some clusters are in both.
    """
    people = int(counts.sum())
    shares = np.array([meant[arm] for arm in arms]) if meant else np.full(len(arms), 1 / len(arms))
    shares = shares / shares.sum()
    p_value = _p_by_cluster(*mixed, shares[1]) if mixed else _p_value(counts, people * shares, len(arms) - 1)
    got = ", ".join(f"{arm} {count / people:.1%}" for arm, count in zip(arms, counts.tolist(), strict=True))
    intended = "as given" if meant else "the same for all"
    if p_value >= _SURPRISING:
        fit = f"Counts fit the shares that were meant, {intended}" if meant else "Counts fit an equal split"
        ask = "" if meant else " --share says what was meant, if it was another."
        return f"{fit} ({_chance(p_value)}): {got}.{ask}"
    if meant:
        remedy = "People are missing, or counted twice: find out why before you believe an effect"
        return f"People were not split as meant, as given ({_chance(p_value)}): {got}. {remedy}."
    remedy = "Give the shares that were meant; if all were meant to be the same, find out who is missing"
    return f"People were not split evenly ({_chance(p_value)}): {got}. {remedy}."


def gaps_in_words(arm: DataColumn, reward: DataColumn, unit: DataColumn | None) -> tuple[list[str], list[str]]:
    """Say how many rows of each arm have no reward, and warn if these shares differ more than by chance.

    With a column of people, or of what else depends on each other, these are counted: who has no reward in any row.
    """
    unit_name = "Rows"
    if unit is not None:
        _, first, units = np.unique(unit.places, return_index=True, return_inverse=True)
        places = np.full(len(first), -1)
        np.maximum.at(places, units, reward.places)
        arm, reward = arm.of_rows(first), replace(reward, places=places)
        unit_name = f"Units by {shortened(unit.name)}"
    arms = in_order(arm.counts)
    rows = np.array([arm.counts[text] for text in arms])
    gap_arms = arm.places[(reward.places < 0) & (arm.places >= 0)]
    gaps = np.bincount(gap_arms, minlength=len(arm.values))[[arm.values.index(text) for text in arms]]
    if not gaps.any():
        return [], []
    parts = [f"{shortened(text)}: {n_gaps:,} of {n:,}" for text, n_gaps, n in zip(arms, gaps, rows, strict=True)]
    name, of = shortened(reward.name), shortened(arm.name)
    remarks = [f"{unit_name} without {name}, by {of}: {', '.join(parts)}."] if len(arms) <= _SHOWN else []
    if len(arms) < 2 or gaps.sum() == rows.sum():
        return remarks, []
    p_value = _p_of_gaps(gaps, rows)
    if p_value >= _DIFFERENT:
        return [*remarks, f"That these shares differ by {of} cannot be told from chance ({_chance(p_value)})."], []
    warning = (
        f"the share of {unit_name[:1].lower()}{unit_name[1:]} without {name} differs by {of} ({_chance(p_value)}), so "
        "that effects compare different people and may be biased: find out who is missing; analyze with --missing-as "
        "low, then high"
    )
    return remarks, [warning]
