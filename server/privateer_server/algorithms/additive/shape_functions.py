"""The shape functions of an answer: what is known of the terms of the features that choose most, with intervals."""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cell_names import contents
from privateer_core.algorithms.additive.cells import Cells
from privateer_core.answer.facts import NAME_MAX
from privateer_core.answer.shapes import FeatureShape, ShapeCurve, Shapes
from privateer_core.spec.features import Feature
from privateer_server.algorithms.additive.posterior import TermPosterior

Array = NDArray[np.float64]
FEATURES_MOST: Final = 12
OPTIONS_MOST: Final = 6
CELLS_MOST: Final = 32
_FEW: Final = 0.005
"""Share of people below which a level is not shown: nothing is known of it, and its interval hides the others."""
_DIGITS: Final = 5
_WIDTH: Final = NormalDist().inv_cdf(0.975)


class CellShares(NamedTuple):
    """Whom terms are about."""

    # cells, features: the cells of all features, and these by name
    cells: Cells
    features: Mapping[str, Feature]
    masses: Array  # shape (terms,): shares of people by cell


def shapes_of(
    known: TermPosterior,
    told: TermPosterior,
    people: CellShares,
    options: tuple[str, ...],
    playable: NDArray[np.bool_],
    span: float,
) -> Shapes:
    """Return the shape functions of what reports tell, for options that people get.

    known: the posterior over terms, in rewards from 0 to 1: it says which features and options are shown.
    told: the one that is shown, whose intervals hold.
    people: whom they are about.
    options: all options, (arms,) of them.
    playable (arms,): which of them people get.
    span: what the unit of rewards is of their range.
    """
    arms = np.flatnonzero(playable)
    centred = [_centred(known.means[arms], people, place) for place in range(len(people.cells.features))]
    levels = _levels(known.means[arms], people)
    gains = np.array([_gain(levels, terms, _own(people, place)) for place, terms in enumerate(centred)])
    chosen = np.argsort(-gains, kind="stable")[:FEATURES_MOST]
    shown = arms[np.sort(_first(levels, centred, people))]
    functions = []
    for place in chosen.tolist():
        values, deviations = _curves(told, people, place, shown)
        curves = {options[arm]: (span * values[n], span * deviations[n]) for n, arm in enumerate(shown)}
        functions.append(_shape(people, place, span * gains[place], curves))
    return Shapes(tuple(functions), len(gains) - len(chosen), len(arms) - len(shown))


def _own(people: CellShares, place: int) -> Array:
    """Return the share of people in each cell of a feature, (cells,), which adds up to 1."""
    masses = np.maximum(people.masses[people.cells.of_feature(place)], 0.0)
    return np.asarray(masses / masses.sum() if masses.any() else np.full(len(masses), 1 / len(masses)))


def _centred(means: Array, people: CellShares, place: int) -> Array:
    """Return the terms of a feature, (arms, cells), of which people have 0 on average."""
    terms = means[:, people.cells.of_feature(place)]
    return np.asarray(terms - (terms @ _own(people, place))[:, None])


def _levels(means: Array, people: CellShares) -> Array:
    """Return the expected rewards of everybody, (arms,)."""
    rest = [means[:, people.cells.of_feature(n)] @ _own(people, n) for n in range(len(people.cells.features))]
    return np.asarray(means[:, 0] + np.sum(rest, axis=0))


def _gain(levels: Array, terms: Array, shares: Array) -> float:
    """Return what choosing by one feature is expected to gain over one option for all."""
    return float((levels[:, None] + terms).max(axis=0) @ shares - levels.max())


def _first(levels: Array, centred: list[Array], people: CellShares) -> NDArray[np.int64]:
    """Return the options that most people would get by some one feature, the best single one first."""
    wins = np.zeros(len(levels))
    for place, terms in enumerate(centred):
        best = (levels[:, None] + terms).argmax(axis=0)
        wins = np.maximum(wins, np.bincount(best, weights=_own(people, place), minlength=len(levels)))
    wins[levels.argmax()] = np.inf
    # Among those that nobody would get, the best ones come first.
    return np.lexsort((-levels, -wins))[:OPTIONS_MOST]


def _curves(told: TermPosterior, people: CellShares, place: int, arms: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return centred terms of arms and their standard deviations, each (arms, cells)."""
    own, shares = people.cells.of_feature(place), _own(people, place)
    centre = np.eye(len(shares)) - shares
    factors = centre @ told.factors[arms][:, own]
    return told.means[arms][:, own] @ centre.T, np.sqrt(np.square(factors).sum(axis=2))


def _shape(people: CellShares, place: int, gain: float, curves: Mapping[str, tuple[Array, Array]]) -> FeatureShape:
    """Return a feature's shape functions, with the values (cells,) of each option and their deviations."""
    name, cells, shares = list(people.features)[place], people.cells.features[place], _own(people, place)
    said = [one[:NAME_MAX] for one in contents(people.features[name], cells)]
    most = np.argsort(-shares, kind="stable")[:CELLS_MOST]
    kept = np.arange(len(said)) if cells.bins else np.sort(most[shares[most] >= min(_FEW, shares[most[0]])])
    return FeatureShape(
        name[:NAME_MAX],
        bool(cells.bins),
        cells.missing,
        tuple(said[cell] for cell in kept),
        _told(shares[kept]),
        round(float(gain), _DIGITS),
        tuple(_curve(option, values[kept], _WIDTH * spread[kept]) for option, (values, spread) in curves.items()),
        len(said) - len(kept),
    )


def _curve(option: str, values: Array, half: Array) -> ShapeCurve:
    return ShapeCurve(option, _told(values), _told(values - half), _told(values + half))


def _told(values: Array) -> tuple[float, ...]:
    return tuple(round(float(one), _DIGITS) for one in values)
