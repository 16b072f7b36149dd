"""Columns of a finished test: segments and covariates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect
from privateer_core.errors import SpecError, printable
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import LEVELS_MAX, OTHER
from privateer_core.spec.features import Numeric
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn, sort_names
from privateer_lab.tables.data_table import TableRows
from privateer_server.conclusions.texts import format_difference

Array: TypeAlias = NDArray[np.float64]
Segments: TypeAlias = Mapping[str, Sequence[str] | Sequence[float]]
"""Columns of segments, with the values that are segments, or the cuts of a number."""
PUBLIC: Final = "give those that you know without looking at the rows"
_MISSING: Final = "missing"


def read_segments(segments: Segments | Sequence[str]) -> dict[str, list[str] | list[float]]:
    """Return the columns of segments with their given values or cuts; refuse a single name."""
    if isinstance(segments, str):
        remedy = f"write segments=[{segments!r}]"
        raise SpecError("must be a list of names of columns", field="segments", remedy=remedy)
    segment_values = segments if isinstance(segments, Mapping) else dict.fromkeys(segments, ())
    return {name: cast("list[str] | list[float]", list(values)) for name, values in segment_values.items()}


def build_feature(rows: TableRows, name: str, values: list[str] | list[float], *, is_private: bool) -> dict[str, Any]:
    """Return the spec's feature for a column of segments; refuse private rows without values, and many levels."""
    column = rows.column(name)
    if values and not any(isinstance(segment_value, str) for segment_value in values):
        # Numbers beyond the outer cuts are clipped to a bound in the same segment.
        gaps = {"missing": True} if column.gaps and not is_private else {}
        return {"low": min(map(float, values)) - 1, "high": max(map(float, values)) + 1, **gaps}
    if values and is_private:
        return {"levels": values}
    if is_private:
        raise SpecError("needs values or cuts with epsilon: segments are public", field=name, remedy=PUBLIC)
    levels = values or sort_names(column.counts) + ([_MISSING] if column.gaps else [])
    if len(levels) > LEVELS_MAX:
        detail = f"has {len(levels):,} values, and at most {LEVELS_MAX} make segments"
        raise SpecError(detail, field=name, remedy="give its cuts if it is a number, or leave it out")
    is_shared = len(levels).bit_count() == 1 and len(levels) < LEVELS_MAX and OTHER not in levels
    # Without a level of their own, other values would share the code of the last level.
    return {"levels": [*levels, OTHER] if is_shared else levels}


def encode_segments(
    rows: TableRows, spec: ArmsSpec, parts: Mapping[str, list[str] | list[float]], *, is_private: bool
) -> Array:
    """Encode segments as devices do, (n, columns); a gap is `_MISSING`, a private unreadable number below all cuts."""
    values = []
    for name in parts:
        column, feature = rows.column(name), spec.features[name]
        if isinstance(feature, Numeric):
            numbers = np.append(column.quantities, np.nan)[column.codes]
            filled = np.where(np.isfinite(numbers), numbers, feature.low)
            values.append(filled if is_private else column.read_as(feature))
        else:
            gap = feature.read(name, _MISSING)
            each = np.array([*(feature.read(name, text) for text in column.values), gap])
            values.append(each[column.codes])
    return encode_contexts(np.stack(values, axis=1), spec) if values else np.zeros((rows.n_rows, 0 if parts else 1))


_LEVELS_MAX: Final = 20
_ROWS_MIN: Final = 10
"""Rows of an arm for each slope, at least."""
_MIN_LENGTH_CHANGE: Final = 0.005
"""Smallest relative change of an interval's length that is reported."""
_UNBALANCED: Final = 1e-3
"""Probability by chance below which a covariate differs by arm."""
_BEFORE: Final = (
    "Columns of --adjust must have been measured before anybody got an arm: what an arm changes hides its effect."
)


def covariate_columns(rows: TableRows, names: Sequence[str]) -> Array:
    """Return covariates as numbers or indicators of levels, (n, k); gaps have indicators, and the mean as number."""
    columns = [column for name in names for column in _iterate_numeric_columns(rows.column(name))]
    return np.stack(columns, axis=1) if columns else np.zeros((rows.n_rows, 0))


def _iterate_numeric_columns(column: DataColumn) -> Iterator[Array]:
    """Yield the numeric columns of a covariate, (n,); refuse a constant covariate, or too many levels."""
    field = f"--adjust {shorten(column.name)}"
    if len(column.counts) < 2:
        raise SpecError("has the same value in all rows", field=field, remedy="name another column")
    is_gap = column.codes < 0
    if column.numbers is not None:
        values = np.append(column.quantities, np.nan)[column.codes]
        yield np.where(is_gap, column.numbers.mean(), values)
    elif len(column.counts) > _LEVELS_MAX:
        detail = f"has {len(column.counts):,} levels, and at most {_LEVELS_MAX} adjust"
        raise SpecError(detail, field=field, remedy="make it a number, or join levels")
    else:
        for text in sorted(column.counts)[1:]:
            yield np.asarray(column.codes == column.values.index(text), float)
    if is_gap.any():
        yield is_gap.astype(float)


def adjusted_rewards(rewards: Array, columns: Array, arms: NDArray[np.int64], groups: NDArray[np.int64]) -> Array:
    """Return regression-adjusted rewards, (n,), as if each arm of a group had the covariates of the whole group.

    The means of arms are those of a regression with an intercept and slopes for each arm (Lin 2013, *Agnostic
    notes on regression adjustments*), which is what CUPED estimates (Deng et al. 2013) with a slope an arm. Deviations
    are scaled for the slopes that were fitted, so that their variance is the residual one of the arm.

    columns (n, k): covariates.
    arms, groups (n,): indices of arms, and of segments.
    """
    deviations = columns.std(axis=0)
    columns = columns / np.where(deviations > 0, deviations, 1.0)
    centred = columns - _cell_means(columns, groups)
    cells = groups * (int(arms.max()) + 1) + arms
    within, residuals = columns - _cell_means(columns, cells), rewards - _cell_means(rewards[:, None], cells)[:, 0]
    adjusted = np.empty(len(rewards))
    for arm in range(int(arms.max()) + 1):
        rows = arms == arm
        slopes, _, rank, _ = np.linalg.lstsq(within[rows], residuals[rows], rcond=None)
        if rows.sum() < _ROWS_MIN * (int(rank) + 1):
            detail = f"make {rank} slopes, and an arm has {rows.sum():,} rows: {_ROWS_MIN} for each are needed"
            raise SpecError(detail, field="--adjust", remedy="name fewer columns")
        n_cells = len(np.unique(cells[rows]))
        errors = residuals[rows] - within[rows] @ slopes
        scale = np.sqrt((rows.sum() - n_cells) / (rows.sum() - n_cells - rank))
        means = rewards[rows] - residuals[rows] - (centred[rows] - within[rows]) @ slopes
        adjusted[rows] = means + scale * errors
    return adjusted


def _cell_means(columns: Array, cells: NDArray[np.int64]) -> Array:
    """Return the means of columns, (n, k), in each row's cell."""
    counts = np.maximum(np.bincount(cells), 1)
    means = np.stack([np.bincount(cells, column) / counts for column in columns.T], axis=1)
    return np.asarray(means[cells])


def balance_warnings(columns: Array, arms: NDArray[np.int64], names: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if an F-test finds that covariates differ by arm: the adjustment may then be biased."""
    arm_means = _cell_means(columns, arms)
    freedom, residual_freedom = int(arms.max()), len(arms) - int(arms.max()) - 1
    explained = np.square(arm_means - columns.mean(axis=0)).sum(axis=0) / freedom
    unexplained = np.square(columns - arm_means).sum(axis=0) / residual_freedom
    is_noisy = unexplained > 0
    p_values = fdtrc(freedom, residual_freedom, explained / np.where(is_noisy, unexplained, 1.0)) * is_noisy
    if p_values.min(initial=1.0) * columns.shape[1] >= _UNBALANCED:
        return ()
    columns_text = ", ".join(map(shorten, names))
    return (
        f"what adjusts ({columns_text}) differs by arm more than by chance: it was measured after arms were given, or "
        "they were not given at random; do not adjust by it",
    )


def describe_adjustment(plain: Answer, adjusted: Answer, names: Sequence[str]) -> list[str]:
    """Return sentences that compare effects and interval lengths with and without the adjustment."""
    sentences, plain_effects = [_BEFORE], {effect.arm: effect for effect in plain.effects if effect.group is None}
    for effect in (figure for figure in adjusted.effects if figure.group is None):
        plain_effect, option = plain_effects[effect.arm], printable(effect.arm)
        if plain_effect.value is None or effect.value is None:
            continue
        plain_figures = format_difference(plain_effect.value, plain_effect.low, plain_effect.high)
        figures = format_difference(effect.value, effect.low, effect.high)
        sentence = f"{option}: {plain_figures} as it is, {figures} adjusted by {', '.join(map(shorten, names))}"
        plain_length, length = _interval_length(plain_effect), _interval_length(effect)
        if plain_length is not None and length is not None:
            ratio = length / plain_length
            change = f"{abs(1 - ratio):.0%} {'narrower' if ratio <= 1 else 'wider'}"
            note = f"The interval is {change}, as with {ratio**-2:.3g} times as many people"
            sentence += f". {note if abs(1 - ratio) >= _MIN_LENGTH_CHANGE else 'Its length is the same'}"
        sentences.append(f"{sentence}.")
    return sentences


def _interval_length(effect: Effect) -> float | None:
    return None if effect.low is None or effect.high is None else effect.high - effect.low
