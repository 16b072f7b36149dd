"""Covariates that were measured before arms were given: rewards adjusted by them, which vary less."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from privateer_core.answer import Answer
from privateer_core.errors import SpecError, printable
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows
from privateer_server.conclusions.wording import signed

Array = NDArray[np.float64]
_LEVELS_MAX: Final = 20
_ROWS_MIN: Final = 10
"""Rows of an arm for each slope, at least."""
_ALIKE: Final = 0.005
"""Part of a width that is not worth a figure."""
_UNBALANCED: Final = 1e-3
"""Probability by chance below which a covariate differs by arm."""
_BEFORE: Final = (
    "Columns of --adjust must have been measured before anybody got an arm: what an arm changes hides its effect."
)


def covariate_columns(rows: TableRows, names: Sequence[str]) -> Array:
    """Return columns of numbers, (n, k): numbers as they are, an indicator of each other level but one, and of gaps.

    A gap counts as the mean of the others.
    """
    columns = [column for name in names for column in _columns(rows.column(name))]
    return np.stack(columns, axis=1) if columns else np.zeros((rows.kept, 0))


def _columns(column: DataColumn) -> Iterator[Array]:
    field = f"--adjust {shortened(column.name)}"
    if len(column.counts) < 2:
        raise SpecError("has the same value in all rows", field=field, remedy="name another column")
    is_gap = column.places < 0
    if column.numbers is not None:
        values = np.append(column.quantities, np.nan)[column.places]
        yield np.where(is_gap, column.numbers.mean(), values)
    elif len(column.counts) > _LEVELS_MAX:
        detail = f"has {len(column.counts):,} levels, and at most {_LEVELS_MAX} adjust"
        raise SpecError(detail, field=field, remedy="make it a number, or join levels")
    else:
        for text in sorted(column.counts)[1:]:
            yield np.asarray(column.places == column.values.index(text), float)
    if is_gap.any():
        yield is_gap.astype(float)


def adjusted_rewards(rewards: Array, columns: Array, arms: NDArray[np.int64], groups: NDArray[np.int64]) -> Array:
    """Return rewards, (n,), as they would be if each arm of a group had the covariates of the whole group.

    The means of arms are those of a regression with an intercept and slopes of each arm's own (Lin 2013, *Agnostic
    notes on regression adjustments*), which is what CUPED estimates (Deng et al. 2013) with a slope an arm. Deviations
    are scaled for the slopes that were fitted, so that their variance is the residual one of the arm.

    columns (n, k): covariates.
    arms, groups (n,): places of arms, and of segments.
    """
    deviations = columns.std(axis=0)
    columns = columns / np.where(deviations > 0, deviations, 1.0)
    centred = columns - _means(columns, groups)
    cells = groups * (int(arms.max()) + 1) + arms
    within, residuals = columns - _means(columns, cells), rewards - _means(rewards[:, None], cells)[:, 0]
    adjusted = np.empty(len(rewards))
    for arm in range(int(arms.max()) + 1):
        rows = arms == arm
        slopes, _, rank, _ = np.linalg.lstsq(within[rows], residuals[rows], rcond=None)
        if rows.sum() < _ROWS_MIN * (int(rank) + 1):
            detail = (
                f"make {int(rank)} slopes, and an arm has {int(rows.sum()):,} rows: {_ROWS_MIN} for each are needed"
            )
            raise SpecError(detail, field="--adjust", remedy="name fewer columns")
        n_cells = len(np.unique(cells[rows]))
        errors = residuals[rows] - within[rows] @ slopes
        scale = np.sqrt((rows.sum() - n_cells) / (rows.sum() - n_cells - rank))
        means = rewards[rows] - residuals[rows] - (centred[rows] - within[rows]) @ slopes
        adjusted[rows] = means + scale * errors
    return adjusted


def _means(columns: Array, cells: NDArray[np.int64]) -> Array:
    """Return the means of columns, (n, k), in each row's cell."""
    counts = np.maximum(np.bincount(cells), 1)
    means = np.stack([np.bincount(cells, column) / counts for column in columns.T], axis=1)
    return np.asarray(means[cells])


def balance_warnings(columns: Array, arms: NDArray[np.int64], names: Sequence[str]) -> tuple[str, ...]:
    """Warn if covariates differ by arm more than by chance: they were measured too late, or arms not at random."""
    between = _means(columns, arms)
    freedom, rest = int(arms.max()), len(arms) - int(arms.max()) - 1
    explained = np.square(between - columns.mean(axis=0)).sum(axis=0) / freedom
    unexplained = np.square(columns - between).sum(axis=0) / rest
    p_values = np.where(
        unexplained > 0, fdtrc(freedom, rest, explained / np.where(unexplained > 0, unexplained, 1.0)), 0.0
    )
    if p_values.min(initial=1.0) * columns.shape[1] >= _UNBALANCED:
        return ()
    listed = ", ".join(map(shortened, names))
    return (
        f"what adjusts ({listed}) differs by arm more than by chance: it was measured after arms were given, or they "
        "were not given at random; do not adjust by it",
    )


def compare_in_words(plain: Answer, adjusted: Answer, names: Sequence[str]) -> list[str]:
    """Say what effects are with and without the adjustment, and how much narrower it makes intervals."""
    sentences, plain_effects = [_BEFORE], {effect.option: effect for effect in plain.effects if effect.group is None}
    for effect in (one for one in adjusted.effects if one.group is None):
        plain_effect, option = plain_effects[effect.option], printable(effect.option)
        if plain_effect.value is None or effect.value is None:
            continue
        plain_figures, figures = (signed(one.value or 0.0, one.low, one.high) for one in (plain_effect, effect))
        sentence = f"{option}: {plain_figures} as it is, {figures} adjusted by {', '.join(map(shortened, names))}"
        if (
            plain_effect.low is not None
            and plain_effect.high is not None
            and effect.low is not None
            and effect.high is not None
        ):
            ratio = (effect.high - effect.low) / (plain_effect.high - plain_effect.low)
            changed = f"is {abs(1 - ratio):.0%} {'narrower' if ratio <= 1 else 'wider'}"
            people = f", as with {ratio**-2:.3g} times as many people"
            sentence += f". The interval {changed}{people}" if abs(1 - ratio) >= _ALIKE else ". Its length is the same"
        sentences.append(f"{sentence}.")
    return sentences
