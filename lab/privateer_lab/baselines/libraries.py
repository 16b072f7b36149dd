"""Policies of other libraries: Vowpal Wabbit, mabwiser, boosted trees of scikit-learn and DP-EBM."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian, Parallel, Sequential
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.run import Baseline, PlainColumns, Visitors

Array = NDArray[np.float64]
ArmIndices = NDArray[np.int64]
LEARNING_CHUNK_SIZE: Final = 100
"""Number of participants after which a library learns, since predictions for single participants take far longer."""


def import_library(name: str) -> Any:
    """Import a module of the extra ``benchmark``."""
    try:
        return import_module(name)
    except ImportError:
        detail, remedy = f"{name.partition('.')[0]} is not installed", "install privateer-lab[benchmark]"
        raise SpecError(detail, field="peers", remedy=remedy) from None


class VowpalWabbit(Baseline):
    """An explorer of Vowpal Wabbit with a linear model of each arm's cost, the negative reward.

    Privacy: none.

    options: options of explorer and model: ``-q ff`` adds all pairs of features.
    """

    chunk_size = LEARNING_CHUNK_SIZE

    def __init__(self, options: str, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        command = f"--cb_explore {spec.arm_count} {options} --quiet --random_seed {seed + 1}"
        self.model = import_library("vowpalwabbit").Workspace(command)
        self.columns = PlainColumns(spec)
        self.texts: list[str] = []
        self.shares: Array = np.zeros(0)

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Draw arms (n,) with the explorer's probabilities."""
        self.texts = [f"|f {text}" for text in self.columns.texts(visitors.contexts)]
        probabilities = np.array([self.model.predict(text) for text in self.texts]).reshape(len(visitors), -1)
        ends = np.cumsum(probabilities, axis=1)
        arms = (self.rng.random((len(visitors), 1)) * ends[:, -1:] > ends).sum(axis=1)
        self.shares = np.take_along_axis(probabilities, arms[:, None], axis=1)[:, 0]
        return np.asarray(arms)

    def learn(self, _visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these participants in sequence."""
        outcomes = zip(arms.tolist(), values.tolist(), self.shares.tolist(), self.texts, strict=True)
        for arm, value, probability, text in outcomes:
            self.model.learn(f"{arm + 1}:{-value:.6g}:{probability:.6g} {text}")


class MabWiser(Baseline):
    """A learning policy of mabwiser; contexts are a constant and one-hot features, if the spec has features.

    Privacy: none.
    """

    chunk_size = LEARNING_CHUNK_SIZE

    def __init__(self, policy: Callable[[Any], Any], spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        module = import_library("mabwiser.mab")
        self.model = module.MAB(list(range(spec.arm_count)), policy(module.LearningPolicy), seed=seed)
        self.columns = PlainColumns(spec)
        self.is_fitted = False

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return the policy's arms, (n,); random arms before the first reports."""
        if not self.is_fitted:
            return self.rng.integers(0, self.spec.arm_count, len(visitors))
        if self.spec.dimension:
            predicted = self.model.predict(self.columns.one_hot(visitors.contexts))
            return np.atleast_1d(np.asarray(predicted, np.int64))
        return np.array([self.model.predict() for _ in range(len(visitors))], np.int64)

    def learn(self, visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these participants in one batch."""
        learn = self.model.partial_fit if self.is_fitted else self.model.fit
        learn(arms, values, *([self.columns.one_hot(visitors.contexts)] if self.spec.dimension else []))
        self.is_fitted = True


EXPLORATION_SHARE: Final = 0.05
"""Share of participants who get a random arm."""
_UNREPORTED_MEAN: Final = 0.5
"""Estimated mean reward of an arm without reports."""
_MAX_LEVELS: Final = 255
"""Largest number of levels of a categorical feature of scikit-learn; larger features are numeric."""


@dataclass(frozen=True)
class ReportedRows:
    """Reports of participants."""

    table: Array  # shape (n, columns): contexts, as `PlainColumns.table` returns them
    # shape (n,): arms, and rewards in [0, 1]
    arms: ArmIndices
    values: Array

    @classmethod
    def concatenated(cls, chunks: list["ReportedRows"]) -> "ReportedRows":
        """Concatenate rows."""
        return cls(*(np.concatenate([getattr(rows, name) for rows in chunks]) for name in ("table", "arms", "values")))


class RefittedBaseline(Baseline):
    """A model of each arm's mean reward that is refitted as rows grow, with an epsilon-greedy policy.

    Arms are random until the first fit, and for one participant in twenty after it.
    """

    chunk_size = 500
    first_fit_size: ClassVar[int]  # participants before the first fit
    growth_factor: ClassVar[float]  # ratio of participants at one fit to those at the fit before

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.columns = PlainColumns(spec)
        self.rows: list[ReportedRows] = []
        self.n_seen, self.next_fit_size, self.n_fits = 0, self.first_fit_size, 0

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return the arms with the largest estimates, or random arms, (n,)."""
        lot = self.rng.integers(0, self.spec.arm_count, len(visitors))
        if not self.n_fits:
            return lot
        best = self.estimates(self.columns.table(visitors.contexts)).argmax(axis=1)
        return np.where(self.rng.random(len(visitors)) < EXPLORATION_SHARE, lot, best)

    def learn(self, visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Add reports, and refit the models if there are enough."""
        self.rows.append(ReportedRows(self.columns.table(visitors.contexts), arms, values))
        self.n_seen += len(arms)
        if self.n_seen >= self.next_fit_size:
            self.fit(ReportedRows.concatenated(self.rows))
            self.n_fits += 1
            self.next_fit_size = math.ceil(self.n_seen * self.growth_factor)

    def fit(self, rows: ReportedRows) -> None:
        """Fit each arm's model to the stored rows."""
        raise NotImplementedError

    def estimates(self, table: Array) -> Array:
        """Return the estimated mean reward of every arm, (n, arms)."""
        raise NotImplementedError


class BoostedTrees(RefittedBaseline):
    """Boosted trees of scikit-learn for each arm, refitted to all rows when these have grown by half.

    Privacy: none.
    """

    first_fit_size: ClassVar[int] = 500
    growth_factor: ClassVar[float] = 1.5

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.models: list[Callable[[Array], Array]] = []

    def fit(self, rows: ReportedRows) -> None:
        """Fit 80 trees of 16 leaves an arm."""
        with threadpool_limits(1, user_api="openmp"):  # more threads for so few rows wait for each other
            self.models = [self._fit_arm(rows, arm) for arm in range(self.spec.arm_count)]

    def _fit_arm(self, rows: ReportedRows, arm: int) -> Callable[[Array], Array]:
        """Fit trees to an arm's rows and return their predictor, which is constant while there are none."""
        is_arm_row = rows.arms == arm
        if not is_arm_row.any():
            return lambda table: np.full(len(table), _UNREPORTED_MEAN)
        is_level = np.concatenate([np.zeros(len(self.columns.numbers), np.bool_), self.columns.levels <= _MAX_LEVELS])
        seed = int(self.rng.integers(2**31))
        trees = HistGradientBoostingRegressor(
            max_iter=80, max_leaf_nodes=16, categorical_features=is_level, early_stopping=False, random_state=seed
        )
        predict: Callable[[Array], Array] = trees.fit(rows.table[is_arm_row], rows.values[is_arm_row]).predict
        return predict

    def estimates(self, table: Array) -> Array:
        """Return the trees' estimates, (n, arms)."""
        with threadpool_limits(1, user_api="openmp"):
            return np.stack([model(table) for model in self.models], axis=1)


@dataclass(frozen=True)
class EbmBudget:
    """The epsilon argument of DP-EBM with which one fit keeps a promise by the accountant.

    The library divides epsilon between bins and boosting, and delta by halves: basic composition. Both are normal
    noise, which composes exactly, so that the library's epsilon may be larger than the promise.
    """

    # promise of a fit, for neighbours that differ by one row
    epsilon: float
    delta: float

    BINS: ClassVar[float] = 0.1
    """Share of epsilon for bins, the library's default."""

    @cached_property
    def library_epsilon(self) -> float:
        """The largest epsilon argument of the library that keeps the promise, to four digits."""
        low, high = self.epsilon / 2, 4 * self.epsilon
        while high - low > 1e-4 * self.epsilon:
            middle = (low + high) / 2
            is_within_budget = account(self.event(middle)).delta(self.epsilon) <= self.delta
            low, high = (middle, high) if is_within_budget else (low, middle)
        return low

    def event(self, library_epsilon: float) -> Event:
        """Return the privacy event of a fit with this argument; a participant's row is in one arm's fit alone."""
        epsilons = (self.BINS * library_epsilon, library_epsilon - self.BINS * library_epsilon)
        fit = Sequential(tuple(Gaussian(gaussian_standard_deviation(epsilon, self.delta / 2)) for epsilon in epsilons))
        return Parallel((fit,))


class PrivateBoosting(RefittedBaseline):
    """DP-EBM of the library interpret, which a curator fits to each arm's rows since the last fit.

    Each fit has the rows of as many people as all fits before, a row is in one fit, and estimates are those of all
    fits, by their rows. So a fit has the whole budget (parallel composition), and all that a person's row changes is
    the one fit's noise. A reward between 0 and 1 counts as a 1 with this chance: gradients of the logistic loss are
    between -1 and 1, which those of a regression are not once its estimates leave the rewards' range.

    Privacy: the spec's epsilon and delta, central, for neighbours of whom one has a row more, by
    `privateer_core.accounting`. The library's noise here comes from a seed, and it takes the levels and the number of
    an arm's rows as they are. Source: Nori, Caruana, Bu, Shen and Kulkarni 2021, *Accuracy, interpretability and
    differential privacy via explainable boosting* (ICML).
    """

    first_fit_size: ClassVar[int] = 1000
    growth_factor: ClassVar[float] = 2.0

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.budget = EbmBudget(spec.privacy.bound, spec.privacy.delta)
        self.models: list[list[tuple[int, Any]]] = [[] for _ in range(spec.arm_count)]

    def fit(self, rows: ReportedRows) -> None:
        """Fit the new rows, and remove them."""
        for arm, models in enumerate(self.models):
            is_arm_row = rows.arms == arm
            models.append((int(is_arm_row.sum()), self._fit_arm(rows.table[is_arm_row], rows.values[is_arm_row])))
        self.rows = []

    def _fit_arm(self, table: Array, values: Array) -> Any:
        """Fit the library's private classifier to rewards that are rounded to bits at random."""
        feature_types = ["continuous"] * len(self.columns.numbers) + ["nominal"] * len(self.columns.levels)
        model = import_library("interpret.privacy").DPExplainableBoostingClassifier(
            feature_types=feature_types,
            privacy_bounds=np.array([[0.0, 1.0]] * len(feature_types)),
            epsilon=self.budget.library_epsilon,
            delta=self.budget.delta,
            bin_budget_frac=self.budget.BINS,
            n_jobs=1,
            random_state=int(self.rng.integers(2**31)),
        )
        bits = self.rng.random(len(values)) < values
        # Two added rows guarantee that both classes occur.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a seed makes noise that can be foretold
            return model.fit(np.append(table, np.zeros((2, table.shape[1])), axis=0), np.append(bits, [False, True]))

    def estimates(self, table: Array) -> Array:
        """Return the mean of all fits' estimates, weighted by rows, (n, arms)."""
        return np.stack([self._mean_estimate(models, table) for models in self.models], axis=1)

    def _mean_estimate(self, models: list[tuple[int, Any]], table: Array) -> Array:
        weights = np.array([rows + 1.0 for rows, _ in models])
        estimates = np.stack([model.predict_proba(table)[:, 1] for _, model in models])
        return np.asarray(weights @ estimates / weights.sum())
