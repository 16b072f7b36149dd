"""Signs that a feature was measured after the choice: it depends on randomized arms, or explains rewards too well."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f, rankdata

from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_lab.analysis.clusters import cluster_standard_error
from privateer_lab.drafting.outcome_model import LoggedRows
from privateer_lab.planning.feature_sets.outcomes import FeatureCodes, encode_cells
from privateer_lab.tables import shorten

Array = NDArray[np.float64]
_FALSE_ALARM_RATE: Final = 1e-3
"""Probability that any feature seems to depend on arms that were assigned at random."""
_MIN_ROWS_PER_ARM: Final = 8
"""Fewest rows of a level for each arm; rarer levels count together."""
_MAX_SHARE: Final = 0.3
"""Largest share of how rewards of an arm vary that one feature known beforehand usually explains."""
_MIN_UNEXPLAINED_SHARE: Final = 1e-12
"""Lower bound of the unexplained share, which rounding can make negative if a feature determines the arm."""
_MIN_STANDARD_ERRORS: Final = 3.0
"""Standard errors by which a feature differs less between arms than what came of rewards does."""


@dataclass(frozen=True)
class LateSigns:
    """Features with signs that they were measured after the choice."""

    strong: Mapping[str, float]  # those that explain most of how rewards vary, with the share
    dependent: tuple[str, ...]  # those that depend on the arm
    known_features: frozenset[str]  # those that are known before the choice, whatever the signs

    @classmethod
    def find(
        cls, features: Mapping[str, Feature], rows: LoggedRows, propensities: Array | None, known: Collection[str]
    ) -> "LateSigns":
        """Find the signs in a log's rows."""
        dependent = find_dependent_features(features, rows, propensities)
        strong = find_strong_features(encode_cells(features, rows.contexts), rows)
        return cls(strong, tuple(dependent), frozenset(known))

    @property
    def suspects(self) -> tuple[str, ...]:
        """Features that a spec leaves out unless the operator calls them known, by the share of rewards explained."""
        return tuple(name for name in dict.fromkeys((*self.strong, *self.dependent)) if name not in self.known_features)

    def explain(self) -> Iterator[str]:
        """Name the suspects, the signs, and what to do if they are known before the choice."""
        differ = "between options, by more than chance does in one randomized log of 1,000"
        strong = [name for name in self.suspects if name in self.strong]
        for name in strong:
            and_differs = f", and it differs {differ}" if name in self.dependent else ""
            yield (
                f"{shorten(name)} may be known only after the choice, and is left out: by itself it explains "
                f"{100 * self.strong[name]:.0f} % of how rewards of the same option vary, which is rare{and_differs}. "
                f"If it is known before, add --known {shorten(name)}."
            )
        if names := ", ".join(shorten(name) for name in self.suspects if name not in strong):
            yield (
                f"{names}: values differ {differ}. What options changed was measured after the choice, and no device "
                "knows it in time: it is left out. If it is known before, options were given by it: add --known, or "
                "the model takes what differs between these people for what options do."
            )


def find_dependent_features(features: Mapping[str, Feature], rows: LoggedRows, propensities: Array | None) -> list[str]:
    """Return the names of features that depend on the arm, given the log's propensities, (n,), if it has them."""
    columns = zip(features.items(), rows.contexts.T, strict=True)
    threshold = _FALSE_ALARM_RATE / max(len(features), 1)
    return [
        name
        for (name, feature), values in columns
        if _independence_p_value(_build_balance_columns(feature, values, rows), rows, propensities) < threshold
    ]


def find_strong_features(cells: Mapping[str, FeatureCodes], rows: LoggedRows) -> dict[str, float]:
    """Return the features whose cells explain most of the variance within arms, cross-fitted over halves: its share.

    Without those that rows clear, since they differ less between arms than what comes of rewards does.
    """
    halves, centred = rows.folds % 2, rows.rewards - rows.rewards.mean()
    means = np.bincount(rows.arms, rows.rewards) / np.maximum(np.bincount(rows.arms), 1)
    residuals, shares = rows.rewards - means[rows.arms], dict[str, float]()
    for name, feature in cells.items():
        _, expected = _cross_fitted_means(feature.codes, halves, residuals)
        unexplained = np.square(residuals - expected).sum() + _MIN_UNEXPLAINED_SHARE
        share = 1 - float(unexplained / (np.square(residuals).sum() + _MIN_UNEXPLAINED_SHARE))
        if share > _MAX_SHARE and not _is_cleared(_cross_fitted_means(feature.codes, halves, centred)[1], share, rows):
            shares[name] = share
    return {name: shares[name] for name in sorted(shares, key=lambda name: -shares[name])}


def _cross_fitted_means(codes: NDArray[np.int64], halves: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
    """Return each row's mean of values with its code, (n,), in its own half and in the other."""
    keys = 2 * codes + halves
    sums, counts = (np.bincount(keys, weights, 2 * (int(codes.max()) + 1)) for weights in (values, None))
    means = sums / (counts + 1)
    return means[keys], means[keys ^ 1]


def _is_cleared(expected: Array, share: float, rows: LoggedRows) -> bool:
    """Whether what a feature lets expect clearly differs less between arms than if it came of the reward.

    Given the reward that would not depend on the arm: the mean expectation of an arm is then above that of all by
    ``share`` of what its mean reward is.
    """
    half_means, other_half_means = _cross_fitted_means(rows.arms, rows.folds % 2, rows.rewards - rows.rewards.mean())
    products = other_half_means * (expected - expected.mean() - share * (half_means - half_means.mean()))
    return bool(products.mean() < -_MIN_STANDARD_ERRORS * cluster_standard_error(products, rows.units))


def _build_balance_columns(feature: Feature, values: Array, rows: LoggedRows) -> Array:
    """Return columns to compare between arms, (n, columns): levels; or a number's gaps, rank and squared rank."""
    if isinstance(feature, Numeric | Ranked):
        ranks = np.nan_to_num(rankdata(values, nan_policy="omit") / max(len(values), 1) - 1 / 2)
        return np.column_stack([np.isnan(values), ranks, ranks**2])
    levels, counts = np.unique(values, return_counts=True, equal_nan=True)
    frequent = levels[counts >= _MIN_ROWS_PER_ARM * (int(rows.arms.max()) + 1)]
    return np.asarray((values[:, None] == frequent[~np.isnan(frequent)][:-1]).astype(np.float64))


def _independence_p_value(scores: Array, rows: LoggedRows, propensities: Array | None) -> float:
    """Return a p-value of independence of the arm: Pearson's test for levels, Kruskal and Wallis's for ranks."""
    arms = (rows.arms[:, None] == np.arange(int(rows.arms.max()) + 1)).astype(np.float64)
    arms = arms[:, :-1] - arms[:, :-1].mean(axis=0) if propensities is None else arms / propensities[:, None] - 1
    scores = scores - scores.mean(axis=0)
    if propensities is not None or rows.clusters is not None:
        return _clustered_p_value((scores[:, :, None] * arms[:, None]).reshape(len(scores), -1), rows.units)
    products, inner, outer = scores.T @ arms, scores.T @ scores, arms.T @ arms
    distance = (np.linalg.pinv(inner) @ products * (products @ np.linalg.pinv(outer))).sum() * len(scores)
    degrees_of_freedom = np.linalg.matrix_rank(inner) * np.linalg.matrix_rank(outer) if scores.size else 0
    return float(chi2.sf(distance, degrees_of_freedom)) if degrees_of_freedom else 1.0


def _clustered_p_value(products: Array, units: NDArray[np.int64]) -> float:
    """Return the p-value of Hotelling's test that sums of products by unit, which are independent, have mean 0."""
    sums = np.stack([np.bincount(units, score) for score in products.T], axis=1) if products.size else np.empty((1, 0))
    inner, total, count = sums.T @ sums, sums.sum(axis=0), len(sums)
    rank = int(np.linalg.matrix_rank(inner)) if sums.size else 0
    if not 0 < rank < count:
        return 1.0
    share = float(total @ np.linalg.pinv(inner) @ total) / count
    odds = share / max(1 - share, _MIN_UNEXPLAINED_SHARE)
    return float(f.sf(odds * (count - rank) / rank, rank, count - rank))
