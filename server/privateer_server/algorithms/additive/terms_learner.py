"""The base of learners of terms by cell: predictions, simulated contexts, and the shape functions of reports."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_core.algorithms.additive.policy import TERM_UNIT, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec, describe_cells
from privateer_core.answer import Answer
from privateer_core.answer.facts import NAME_MAX, Fact
from privateer_core.answer.parts import Figures
from privateer_core.answer.policy_view import FeatureShape, ShapeCurve, Shapes
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.spec.columns import MISSING_PLACE
from privateer_core.spec.features import Feature
from privateer_server.algorithms import RoundsLearner
from privateer_server.algorithms.additive.feature_products import mean_variances
from privateer_server.algorithms.additive.participant_shares import CellMasses
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.forgetting import ForgettingRule

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


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class LastValueCache(Generic[KeyT, ValueT]):
    """A function that caches its last value, and is called again only for another object than last time.

    Learning, policy, figures and answer of a round ask for the same things of the same state; ``part`` gives the part
    of it that decides, by default all.
    """

    def __init__(self, compute: Callable[[KeyT], ValueT], part: Callable[[KeyT], object] = lambda key: key) -> None:
        self._compute, self._part = compute, part
        self._last: tuple[object, ValueT] | None = None

    def __call__(self, key: KeyT) -> ValueT:
        """Return the function's value, from the cache if ``key`` is the same object as last time."""
        part = self._part(key)
        if self._last is None or self._last[0] is not part:
            self._last = (part, self._compute(key))
        return self._last[1]


def build_contexts(cells: Cells, masses: Array, columns: int, coordinates: Array) -> Array:
    """Return contexts (n, columns) of independent features by coordinates (n, features, 2): cells, and places there."""
    contexts = np.zeros((len(coordinates), columns))
    for index, feature in enumerate(cells.features):
        shares = np.maximum(masses[cells.feature_slice(index)], 0.0).cumsum()
        feature_cells = np.searchsorted(shares / shares[-1], coordinates[:, index, 0], side="right")
        _write_feature_columns(
            contexts, feature, np.minimum(feature_cells, feature.count - 1), coordinates[:, index, 1]
        )
    return contexts


def _write_feature_columns(contexts: Array, feature: ShapeCells, feature_cells: Ints, offsets: Array) -> None:
    """Write the columns of a feature for participants in ``feature_cells`` (n,), at ``offsets`` (n,) in the cells."""
    if feature.codes:
        powers = np.arange(feature.columns - 1, -1, -1)
        bits = (np.array(feature.codes)[feature_cells][:, None] >> powers) & 1
        contexts[:, feature.start : feature.start + feature.columns] = bits
        return
    is_missing = feature_cells == feature.bins
    contexts[:, feature.start] = np.where(is_missing, MISSING_PLACE, (feature_cells + offsets) / feature.bins)
    if feature.missing:
        contexts[:, feature.start + 1] = is_missing


StateT = TypeVar("StateT", bound=Any)


class TermsLearner(RoundsLearner[AdditiveSpec, StateT, AdditivePolicy]):
    """A learner of terms, whose states have ``reported``, the evidence ``masses`` of participants by cell, and others.

    Their ``discounted`` is what reports say of terms, under each half-life; without forgetting under the endless one.
    """

    publishes_result = False
    inherited_fields = ("algorithm", "experiment.arms", "experiment.retired_arms", "context.features", "reward")

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self.questions = spec.questions
        self.cells = self.questions.cells
        self.shape_features: Mapping[str, Feature] = spec.features
        half_lives = spec.algorithm.half_lives or (math.inf,)
        self.forgetting = ForgettingRule(half_lives, chooses=spec.algorithm.half_life == "auto")
        self.shares: LastValueCache[CellMasses, Array] = LastValueCache(lambda masses: masses.means(self.cells))
        """What masses tell of the shares of people by cell, (terms,)."""

    @abstractmethod
    def posterior(self, state: StateT) -> TermPosterior:
        """Return the posterior of terms."""

    @abstractmethod
    def statistics(self, state: StateT) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of all rounds."""

    @override
    def keep_evidence_only(self, state: StateT) -> StateT:
        return replace(state, reported=0, discounted=self.forgetting.restart(state.discounted))

    @override
    def figures(self, state: StateT) -> dict[str, float]:
        """Return the standard error of a mean reward, averaged over arms and participants."""
        variances = mean_variances(self.cells, self.shares(state.masses), self.posterior(state).factors)
        return {"uncertainty": self.spec.reward.span * float(np.sqrt(variances).mean())}

    @override
    def answer(self, state: StateT) -> Answer:
        if not state.reported:
            return self.build_answer(state)
        error = Fact("typical error of a mean reward", round(self.figures(state)["uncertainty"], 4), "number")
        parts = self._build_shapes(state), Figures("what is known", (error,))
        half_lives = (self.forgetting.build_result(state.discounted),) if self.spec.has_half_life else ()
        return self.build_answer(state, parts=parts + half_lives)

    def _build_shapes(self, state: StateT) -> Shapes:
        """Return the shape functions of the features in `shape_features`."""
        posterior, masses = self.posterior(state), self.shares(state.masses)
        cell_shares = CellShares(self.cells, self.shape_features, masses)
        unshrunk = posterior.unshrunk(*self.statistics(state), self.cells, masses)
        playable = np.array(self.spec.playable)
        return build_shapes(posterior, unshrunk, cell_shares, self.spec.options, playable, self.spec.reward.span)

    @override
    def build_expected_rewards(self, state: StateT) -> ExpectedRewards | None:
        if not state.reported:
            return None
        posterior, reward = self.posterior(state), self.spec.reward
        covariances = posterior.covariances

        def predict(contexts: Array) -> tuple[Array, Array]:
            x = build_indicators(self.cells, contexts)
            variances = np.einsum("nd,kde,ne->nk", x, covariances, x, optimize=True)
            deviations = reward.span * np.sqrt(np.maximum(variances, 0.0))
            return reward.unscaled(np.clip(x @ posterior.means.T, 0.0, 1.0)), deviations

        def standard_error(contexts: Array, weights: Array) -> float:
            sums = weights.T @ build_indicators(self.cells, contexts)
            return reward.span * float(np.sqrt(max(0.0, np.einsum("kd,kde,ke->", sums, covariances, sums))))

        masses = self.shares(state.masses)

        def draw_contexts(coordinates: Array) -> Array:
            return build_contexts(self.cells, masses, self.spec.dimension, coordinates)

        return ExpectedRewards.from_single_box(self.spec.dimension, predict, standard_error, draw_contexts)


def build_indicators(cells: Cells, contexts: Array) -> Array:
    """Return which terms the expected reward of each context adds up, (n, terms): 1 for the intercept and its cells."""
    indicators = np.zeros((len(contexts), cells.count))
    indicators[:, 0] = 1.0
    np.put_along_axis(indicators, cells.locate(contexts), 1.0, axis=1)
    return indicators


def quantize_terms(values: Array) -> NDArray[np.int16]:
    """Return terms rounded to whole steps of `TERM_UNIT`; none is beyond 4."""
    return np.asarray(np.clip(np.rint(values / TERM_UNIT), -32767, 32767), np.int16)
