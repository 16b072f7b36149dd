"""The shape functions of an answer: the terms of the most important features, with intervals."""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from privateer_core.algorithms.additive.cells import Cells
from privateer_core.algorithms.additive.spec import describe_cells
from privateer_core.answer.facts import NAME_MAX
from privateer_core.answer.policy_view import FeatureShape, ShapeCurve, Shapes
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.spec.features import Feature
from privateer_server.algorithms.additive.posterior import TermPosterior

MAX_FEATURES: Final = 12
MAX_OPTIONS: Final = 6
MAX_CELLS: Final = 32
_MIN_LEVEL_SHARE: Final = 0.005
"""Share of people below which a level is not shown: nothing is known of it, and its interval hides the others."""
_DIGITS: Final = 5
_CONFIDENCE_QUANTILE: Final = NormalDist().inv_cdf(0.975)


class CellShares(NamedTuple):
    """The cells of features and their shares of participants."""

    # cells, features: the cells of all features, and these by name
    cells: Cells
    features: Mapping[str, Feature]
    masses: Array  # shape (terms,): shares of people by cell


def build_shapes(
    posterior: TermPosterior,
    unshrunk: TermPosterior,
    people: CellShares,
    options: tuple[str, ...],
    playable: Bools,
    span: float,
) -> Shapes:
    """Return the shapes of playable options: ``posterior`` selects what is shown, ``unshrunk`` has its intervals."""
    arms = np.flatnonzero(playable)
    centred = [_centre_terms(posterior.means[arms], people, index) for index in range(len(people.cells.features))]
    levels = _expected_levels(posterior.means[arms], people)
    best_rewards = [(levels[:, None] + terms).max(axis=0) for terms in centred]
    # The gain of a feature is that of choosing by it alone over one option for all.
    gains = np.array([best @ _cell_shares(people, n) - levels.max() for n, best in enumerate(best_rewards)])
    top_features = np.argsort(-gains, kind="stable")[:MAX_FEATURES]
    shown_arms = arms[np.sort(_rank_options(levels, centred, people))]
    functions = []
    for index in top_features.tolist():
        values, deviations = _centred_curves(unshrunk, people, index, shown_arms)
        curves = {options[arm]: (span * values[n], span * deviations[n]) for n, arm in enumerate(shown_arms)}
        functions.append(_build_shape(people, index, span * gains[index], curves))
    return Shapes(tuple(functions), len(gains) - len(top_features), len(arms) - len(shown_arms))


def _cell_shares(people: CellShares, index: int) -> Array:
    """Return the share of participants in each cell of a feature, (cells,), which adds up to 1."""
    masses = np.maximum(people.masses[people.cells.feature_slice(index)], 0.0)
    return np.asarray(masses / masses.sum() if masses.any() else np.full(len(masses), 1 / len(masses)))


def _centre_terms(means: Array, people: CellShares, index: int) -> Array:
    """Return the terms of a feature, (arms, cells), centred to a mean of 0 over participants."""
    terms = means[:, people.cells.feature_slice(index)]
    return np.asarray(terms - (terms @ _cell_shares(people, index))[:, None])


def _expected_levels(means: Array, people: CellShares) -> Array:
    """Return the mean expected rewards of the arms, (arms,)."""
    cells = people.cells
    feature_means = [means[:, cells.feature_slice(n)] @ _cell_shares(people, n) for n in range(len(cells.features))]
    return np.asarray(means[:, 0] + np.sum(feature_means, axis=0))


def _rank_options(levels: Array, centred: list[Array], people: CellShares) -> Ints:
    """Return the options by the largest share of participants for whom they are best by a single feature."""
    wins = np.zeros(len(levels))
    for index, terms in enumerate(centred):
        best = (levels[:, None] + terms).argmax(axis=0)
        wins = np.maximum(wins, np.bincount(best, weights=_cell_shares(people, index), minlength=len(levels)))
    wins[levels.argmax()] = np.inf
    # Among those that nobody would get, the best ones come first.
    return np.lexsort((-levels, -wins))[:MAX_OPTIONS]


def _centred_curves(posterior: TermPosterior, people: CellShares, index: int, arms: Ints) -> tuple[Array, Array]:
    """Return centred terms of arms and their standard deviations, each (arms, cells)."""
    columns, shares = people.cells.feature_slice(index), _cell_shares(people, index)
    centre = np.eye(len(shares)) - shares
    factors = centre @ posterior.factors[arms][:, columns]
    return posterior.means[arms][:, columns] @ centre.T, np.sqrt(np.square(factors).sum(axis=2))


def _build_shape(
    people: CellShares, index: int, gain: float, curves: Mapping[str, tuple[Array, Array]]
) -> FeatureShape:
    """Return a feature's shape functions, from each option's values (cells,) and their standard deviations."""
    name, cells, shares = list(people.features)[index], people.cells.features[index], _cell_shares(people, index)
    labels = [label[:NAME_MAX] for label in describe_cells(people.features[name], cells)]
    by_share = np.argsort(-shares, kind="stable")[:MAX_CELLS]
    shown_levels = by_share[shares[by_share] >= min(_MIN_LEVEL_SHARE, shares[by_share[0]])]
    shown_cells = np.arange(len(labels)) if cells.bins else np.sort(shown_levels)
    return FeatureShape(
        name[:NAME_MAX],
        bool(cells.bins),
        cells.missing,
        tuple(labels[cell] for cell in shown_cells),
        _round_values(shares[shown_cells]),
        round(float(gain), _DIGITS),
        tuple(
            _build_curve(option, values[shown_cells], _CONFIDENCE_QUANTILE * deviations[shown_cells])
            for option, (values, deviations) in curves.items()
        ),
        len(labels) - len(shown_cells),
    )


def _build_curve(option: str, values: Array, radii: Array) -> ShapeCurve:
    return ShapeCurve(option, _round_values(values), _round_values(values - radii), _round_values(values + radii))


def _round_values(values: Array) -> tuple[float, ...]:
    return tuple(round(float(number), _DIGITS) for number in values)
