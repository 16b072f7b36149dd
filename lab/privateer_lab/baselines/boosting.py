"""Boosting that others wrote, refitted as people come: trees without privacy, and DP-EBM by a curator who has all."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian, Parallel, Sequential
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.libraries import library
from privateer_lab.baselines.plain_columns import PlainColumns

Array = NDArray[np.float64]
ArmIndices = NDArray[np.int64]
EXPLORED: Final = 0.05
"""Share of the people who get an arm by lot."""
_UNKNOWN: Final = 0.5
"""The mean reward of an arm that nobody has reported on."""
_CATEGORIES_MAX: Final = 255
"""Levels that scikit-learn's trees tell apart; the numbers of more levels count as numbers."""


@dataclass(frozen=True)
class ReportedRows:
    """What some people reported."""

    table: Array  # shape (n, columns): their contexts, as `PlainColumns.table` returns them
    # shape (n,): arms, and rewards in [0, 1]
    arms: ArmIndices
    values: Array

    @classmethod
    def joined(cls, parts: list["ReportedRows"]) -> "ReportedRows":
        """Return the rows of all parts."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("table", "arms", "values")))


class Refitted(Baseline):
    """A model of each arm's mean reward, refitted from time to time; nine in ten people and more get the largest.

    Arms are by lot until the first fit, and for one person in twenty after it.
    """

    at_once = 500
    first: ClassVar[int]  # people before the first fit
    grown: ClassVar[float]  # by how much the people grow from one fit to the next

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.columns = PlainColumns(spec)
        self.rows: list[ReportedRows] = []
        self.seen, self.due, self.fits = 0, self.first, 0

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return the arms of the largest estimate, or by lot, (n,)."""
        lot = self.rng.integers(0, self.spec.arm_count, len(visitors))
        if not self.fits:
            return lot
        best = self.estimates(self.columns.table(visitors.contexts)).argmax(axis=1)
        return np.where(self.rng.random(len(visitors)) < EXPLORED, lot, best)

    def learn(self, visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Keep these people's reports, and refit if enough have come."""
        self.rows.append(ReportedRows(self.columns.table(visitors.contexts), arms, values))
        self.seen += len(arms)
        if self.seen >= self.due:
            self.fit(ReportedRows.joined(self.rows))
            self.fits += 1
            self.due = math.ceil(self.seen * self.grown)

    def fit(self, rows: ReportedRows) -> None:
        """Fit each arm's model to the rows that are kept."""
        raise NotImplementedError

    def estimates(self, table: Array) -> Array:
        """Return the estimated mean reward of every arm, (n, arms)."""
        raise NotImplementedError


class BoostedTrees(Refitted):
    """Boosted trees of scikit-learn, one learner an arm, refitted to all rows when these have grown by half.

    Notes
    -----
    Privacy: none.
    """

    first: ClassVar[int] = 500
    grown: ClassVar[float] = 1.5

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.models: list[Callable[[Array], Array]] = []

    def fit(self, rows: ReportedRows) -> None:
        """Fit 80 trees of 16 leaves an arm."""
        with threadpool_limits(1, user_api="openmp"):  # more threads for so few rows wait for each other
            self.models = [self._fitted(rows, arm) for arm in range(self.spec.arm_count)]

    def _fitted(self, rows: ReportedRows, arm: int) -> Callable[[Array], Array]:
        own = rows.arms == arm
        if not own.any():
            return lambda table: np.full(len(table), _UNKNOWN)
        named = np.concatenate([np.zeros(len(self.columns.numbers), np.bool_), self.columns.levels <= _CATEGORIES_MAX])
        seed = int(self.rng.integers(2**31))
        trees = HistGradientBoostingRegressor(
            max_iter=80, max_leaf_nodes=16, categorical_features=named, early_stopping=False, random_state=seed
        )
        found: Callable[[Array], Array] = trees.fit(rows.table[own], rows.values[own]).predict
        return found

    def estimates(self, table: Array) -> Array:
        """Return the trees' estimates, (n, arms)."""
        with threadpool_limits(1, user_api="openmp"):
            return np.stack([model(table) for model in self.models], axis=1)


@dataclass(frozen=True)
class EbmBudget:
    """What DP-EBM may be told, so that one fit keeps a promise by our accountant.

    The library spends a part of an epsilon on bins, the rest on boosting, and half of delta on each: basic composition.
    Both are normal noise, which composes exactly, so the epsilon that the library is told may be larger than the one
    that its fit keeps.
    """

    # what a fit keeps, for a row that is there or not
    epsilon: float
    delta: float

    BINS: ClassVar[float] = 0.1
    """The part for bins, the library's default."""

    @cached_property
    def told(self) -> float:
        """The largest epsilon that the library may be told, to four digits."""
        low, high = self.epsilon / 2, 4 * self.epsilon
        while high - low > 1e-4 * self.epsilon:
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(middle) else (low, middle)
        return low

    def _keeps(self, told: float) -> bool:
        return account(self.event(told)).delta(self.epsilon) <= self.delta

    def event(self, told: float) -> Event:
        """Return what a fit costs that is told so: a person's row is in one arm's fit, and in no other."""
        spent = (self.BINS * told, told - self.BINS * told)
        fit = Sequential(tuple(Gaussian(gaussian_standard_deviation(one, self.delta / 2)) for one in spent))
        return Parallel((fit,))


class PrivateBoosting(Refitted):
    """DP-EBM of the library interpret, which a curator fits to the rows of each arm that have come since the last fit.

    Each fit has the rows of as many people as all fits before, a row is in one fit, and estimates are those of all
    fits, by their rows. So a fit has the whole budget (parallel composition), and all that a person's row changes is
    the one fit's noise. A reward between 0 and 1 counts as a 1 with this chance: gradients of the logistic loss are
    between -1 and 1, which those of a regression are not once its estimates leave the rewards' range.

    Notes
    -----
    Privacy: the spec's epsilon and delta, central, for neighbours of whom one has a row more, by
    `privateer_core.accounting`. The library's noise here comes from a seed, and it takes the levels and the number of
    an arm's rows as they are. Source: Nori, Caruana, Bu, Shen and Kulkarni 2021, *Accuracy, interpretability and
    differential privacy via explainable boosting* (ICML).
    """

    first: ClassVar[int] = 1000
    grown: ClassVar[float] = 2.0

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.budget = EbmBudget(spec.privacy.bound, spec.privacy.delta)
        self.models: list[list[tuple[int, Any]]] = [[] for _ in range(spec.arm_count)]

    def fit(self, rows: ReportedRows) -> None:
        """Fit the rows that are new, and forget them."""
        for arm, models in enumerate(self.models):
            own = rows.arms == arm
            models.append((int(own.sum()), self._fitted(rows.table[own], rows.values[own])))
        self.rows = []

    def _fitted(self, table: Array, values: Array) -> Any:
        kinds = ["continuous"] * len(self.columns.numbers) + ["nominal"] * len(self.columns.levels)
        model = library("interpret.privacy").DPExplainableBoostingClassifier(
            feature_types=kinds,
            privacy_bounds=np.array([[0.0, 1.0]] * len(kinds)),
            epsilon=self.budget.told,
            delta=self.budget.delta,
            bin_budget_frac=self.budget.BINS,
            n_jobs=1,
            random_state=int(self.rng.integers(2**31)),
        )
        bits = self.rng.random(len(values)) < values
        # Two rows that nobody reported: so there are both classes, whatever people said.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a seed makes noise that can be foretold
            return model.fit(np.append(table, np.zeros((2, table.shape[1])), axis=0), np.append(bits, [False, True]))

    def estimates(self, table: Array) -> Array:
        """Return the mean of all fits' estimates, by their rows, (n, arms)."""
        return np.stack([self._mean(models, table) for models in self.models], axis=1)

    def _mean(self, models: list[tuple[int, Any]], table: Array) -> Array:
        weights = np.array([rows + 1.0 for rows, _ in models])
        found = np.stack([model.predict_proba(table)[:, 1] for _, model in models])
        return np.asarray(weights @ found / weights.sum())
