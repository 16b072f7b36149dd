"""A model of rewards by arm and features, fitted to logged outcomes.

Simulated participants are made from it, so it must not find spurious differences. Three models are compared on held-out
rows, and the simplest is kept unless a larger one is clearly better: the means of the arms; boosted trees with additive
effects of features and arm; and trees with interactions, so that the best arm may differ between participants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from privateer_lab.analysis.clusters import cluster_standard_error, design_effect

Array = NDArray[np.float64]
Arms = NDArray[np.int64]
BY_ARM, ADDITIVE, INTERACTIONS = "arms", "features", "interactions"
_N_FOLDS: Final = 4
_MAX_TREES: Final = 60
_LEARNING_RATE: Final = 0.2
_MAX_LEAVES: Final = {ADDITIVE: 4, INTERACTIONS: 16}
"""Each option needs leaves of its own where it interacts with features."""
_MIN_STANDARD_ERRORS: Final = 2.0
"""Standard errors by which a larger model must be better on held-out rows."""
_MIN_ROWS: Final = 200
"""Fewest rows for trees; with fewer rows only the means of the arms are fitted."""
_MIN_LEAF_SIZE: Final = (20, 0.01)
"""Smallest leaf, as a number and as a share of rows."""
_MIN_PROBABILITY: Final = 1e-4
_MIN_RELATIVE_PROPENSITY: Final = 0.1
"""Smallest propensity relative to an arm's share: smaller ones would give a few rows too much weight."""
_FACTORS: Final = np.linspace(0.0, 2.0, 41)
"""Candidate factors of differences between arms, which early-stopped trees underestimate."""


@dataclass(frozen=True)
class OutcomeModel:
    """Expected rewards of every arm, and the model's fit on held-out rows."""

    kind: str  # which of the three models it is
    means: Array  # shape (n, arms): expected rewards, scaled to [0, 1]
    cross_fitted_means: Array  # shape (n, arms): the same, of models of other rows
    held_out: Array  # shape (n,): what a model of the other rows expects of the option that each row got
    # mean loss of each model on rows that it had not seen: deviance / 2 of yes and no, squared error of numbers
    losses: dict[str, float]


@dataclass(frozen=True)
class LoggedRows:
    """Rows of a log as inputs of the model."""

    contexts: Array  # shape (n, features): numbers, places of levels, NaN where nothing is known
    levels: Sequence[bool]  # which features are levels
    arms: Arms  # shape (n,), from 0; every one occurs
    rewards: Array  # shape (n,), scaled to [0, 1]
    binary: bool  # whether rewards are 0 and 1
    clusters: Arms | None = None  # shape (n,): whose each row is; None: rows are independent

    @property
    def units(self) -> Arms:
        """The index of each row's cluster, or of the row itself without clusters; shape (n,)."""
        places = np.arange(len(self.arms)) if self.clusters is None else self.clusters
        return np.asarray(np.unique(places, return_inverse=True)[1])

    @property
    def folds(self) -> Arms:
        """The fold of each row, (n,), all of a cluster in one."""
        return (np.random.default_rng(0).permutation(int(self.units.max()) + 1) % _N_FOLDS)[self.units]

    def select(self, rows: Any) -> "LoggedRows":
        """Return a subset of the rows."""
        clusters = None if self.clusters is None else self.clusters[rows]
        return LoggedRows(self.contexts[rows], self.levels, self.arms[rows], self.rewards[rows], self.binary, clusters)

    def select_features(self, indices: Sequence[int]) -> "LoggedRows":
        """Return the rows with a subset of the features."""
        columns = list(indices)
        return replace(self, contexts=self.contexts[:, columns], levels=[self.levels[column] for column in columns])

    def tree_inputs(self, arms: Arms) -> Array:
        """Return the inputs of trees, the arm first, shape (n, 1 + features)."""
        return np.column_stack([arms, self.contexts])


def fit_outcome_model(rows: LoggedRows, arms: int) -> OutcomeModel:
    """Fit the three models, and return the simplest model that no larger model clearly beats.

    Source: Friedman 2001, Greedy function approximation (Annals of Statistics), as scikit-learn has it.
    """
    import sklearn.ensemble  # noqa: F401 - libraries that are loaded later have no limit
    from threadpoolctl import threadpool_limits

    # Trees are small: on a busy machine threads would wait for each other most of the time.
    with threadpool_limits(1, user_api="openmp"):
        return _select_and_fit(rows, arms)


def _select_and_fit(rows: LoggedRows, arms: int) -> OutcomeModel:
    """Select the model with the least loss on held-out rows, and predict each row's means in and out of sample."""
    folds = rows.folds
    arm_means = np.stack([_shrunken_means(rows.select(folds != fold), arms) for fold in range(_N_FOLDS)])[folds]
    held_out = {BY_ARM: _take_own(rows, arm_means)}
    if len(rows.rewards) >= _MIN_ROWS and (rows.contexts != rows.contexts[0]).any():
        staged = {kind: _predict_held_out_by_tree(rows, folds, kind) for kind in (ADDITIVE, INTERACTIONS)}
        last_tree = {kind: int(_compute_losses(rows, means).mean(axis=1).argmin()) for kind, means in staged.items()}
        held_out |= {kind: means[last_tree[kind]] for kind, means in staged.items()}
    losses = {selected: _compute_losses(rows, predicted) for selected, predicted in held_out.items()}
    selected = _select_model(losses, rows.units)
    mean_losses = {name: float(predicted.mean()) for name, predicted in losses.items()}
    if selected == BY_ARM:
        means = np.tile(_shrunken_means(rows, arms), (len(rows.rewards), 1))
        return OutcomeModel(selected, _with_mean(rows, means), arm_means, held_out[selected], mean_losses)
    n_trees = 1 + last_tree[selected]
    means, unseen = _fit_and_predict(rows, rows, selected, n_trees, arms), np.empty((len(folds), arms))
    for out in (folds == fold for fold in np.unique(folds)):
        unseen[out] = _fit_and_predict(rows.select(~out), rows.select(out), selected, n_trees, arms)
    if selected == INTERACTIONS:
        stretched = (_take_own(rows, _stretch(unseen, factor)) for factor in _FACTORS.tolist())
        factor = float(_FACTORS[int(np.argmin([_compute_losses(rows, expected).mean() for expected in stretched]))])
        means, unseen = _stretch(means, factor), _stretch(unseen, factor)
    return OutcomeModel(selected, _with_mean(rows, means), unseen, _take_own(rows, unseen), mean_losses)


def estimate_propensities(rows: LoggedRows, arms: int, *, by_features: bool) -> Array:
    """Estimate the probability of each row's arm, (n,): the arm's share, or a cross-fitted prediction by features."""
    shares = np.bincount(rows.arms, minlength=arms) / len(rows.arms)
    if not by_features:
        return np.asarray(shares[rows.arms])
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    folds, estimates = rows.folds, np.empty(len(rows.arms))
    with threadpool_limits(1, user_api="openmp"):
        for out in (folds == fold for fold in np.unique(folds)):
            trees = HistGradientBoostingClassifier(
                max_iter=_MAX_TREES // 3,
                learning_rate=_LEARNING_RATE,
                max_leaf_nodes=_MAX_LEAVES[ADDITIVE],
                categorical_features=list(rows.levels),
            ).fit(rows.contexts[~out], rows.arms[~out])
            chances = trees.predict_proba(rows.contexts[out])
            columns = np.searchsorted(trees.classes_, rows.arms[out])
            estimates[out] = chances[np.arange(len(chances)), np.minimum(columns, len(trees.classes_) - 1)]
    return np.maximum(estimates, _MIN_RELATIVE_PROPENSITY * shares[rows.arms])


def _take_own(rows: LoggedRows, means: Array) -> Array:
    """Return the expected reward of each row's own arm."""
    return np.asarray(means[np.arange(len(means)), rows.arms])


def _stretch(means: Array, factor: float) -> Array:
    """Multiply the differences between arms by a factor, on the scale of log odds."""
    log_odds = logit(means)
    middle = log_odds.mean(axis=1, keepdims=True)
    return _clipped(expit(middle + factor * (log_odds - middle)))


def _select_model(losses: dict[str, Array], units: Arms) -> str:
    """Return the largest model that is clearly better than all smaller ones."""
    kinds = [kind for kind in (BY_ARM, ADDITIVE, INTERACTIONS) if kind in losses]
    return next(
        kind
        for index, kind in reversed(list(enumerate(kinds)))
        if all(_is_better(losses[smaller] - losses[kind], units) for smaller in kinds[:index])
    )


def _is_better(gains: Array, units: Arms) -> bool:
    standard_error = cluster_standard_error(gains, units)
    return bool(standard_error > 0 and gains.mean() > _MIN_STANDARD_ERRORS * standard_error)


def _compute_losses(rows: LoggedRows, expected: Array) -> Array:
    """Return the loss of each row, shape (..., n)."""
    if not rows.binary:
        return np.asarray((rows.rewards - expected) ** 2)
    return np.asarray(-np.log(np.where(rows.rewards > 0.5, expected, 1 - expected)))


def _clipped(means: Array) -> Array:
    return np.clip(means, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)


def _shrunken_means(rows: LoggedRows, arms: int) -> Array:
    """Return the mean of every arm, (arms,), shrunken towards the common mean by a random-effects model.

    Source: DerSimonian and Laird 1986, Meta-analysis in clinical trials: the variance between arms by moments.
    """
    counts = np.bincount(rows.arms, minlength=arms).astype(np.float64)
    means = np.bincount(rows.arms, rows.rewards, minlength=arms) / np.maximum(counts, 1)
    effect = 1.0 if rows.clusters is None else design_effect(rows.rewards, rows.arms, rows.units)
    precision = counts / max(float(rows.rewards.var()) * effect, _MIN_PROBABILITY**2)
    common = float(precision @ means / precision.sum())
    excess = float(precision @ (means - common) ** 2) - (arms - 1)
    between = max(0.0, excess / float(precision.sum() - (precision**2).sum() / precision.sum()))
    return _clipped(common + (means - common) * between * precision / (1 + between * precision))


def _make_trees(rows: LoggedRows, kind: str, count: int) -> Any:
    """Make boosted trees, unfitted, of an arm and features that interact or only add up."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    features = list(range(1, 1 + len(rows.levels)))
    return (HistGradientBoostingClassifier if rows.binary else HistGradientBoostingRegressor)(
        max_iter=count,
        learning_rate=_LEARNING_RATE,
        max_leaf_nodes=_MAX_LEAVES[kind],
        min_samples_leaf=max(_MIN_LEAF_SIZE[0], int(_MIN_LEAF_SIZE[1] * len(rows.rewards))),
        l2_regularization=1.0,
        categorical_features=[True, *rows.levels],
        interaction_cst=[[0], features] if kind == ADDITIVE else None,
        early_stopping=False,
        random_state=0,
    )


def _predict_held_out_by_tree(rows: LoggedRows, folds: Arms, kind: str) -> Array:
    """Return the predictions for each row's own arm by models of the other folds, (trees, n)."""
    predictions = np.empty((_MAX_TREES, len(rows.rewards)), np.float64)
    for out in (folds == fold for fold in np.unique(folds)):
        train, test = rows.select(~out), rows.select(out)
        model = _make_trees(train, kind, _MAX_TREES).fit(train.tree_inputs(train.arms), train.rewards)
        table = test.tree_inputs(test.arms)
        staged = (means[:, 1] for means in model.staged_predict_proba(table)) if rows.binary else None
        predictions[:, out] = np.stack([_clipped(means) for means in staged or model.staged_predict(table)])
    return predictions


def _fit_and_predict(rows: LoggedRows, test: LoggedRows, kind: str, count: int, arms: int) -> Array:
    """Fit trees to ``rows``, and predict the reward of every arm for the rows ``test``, (n, arms)."""
    model = _make_trees(rows, kind, count).fit(rows.tree_inputs(rows.arms), rows.rewards)
    tables = [test.tree_inputs(np.full(len(test.rewards), arm)) for arm in range(arms)]
    means = [model.predict_proba(table)[:, 1] if rows.binary else model.predict(table) for table in tables]
    return _clipped(np.stack(means, axis=1))


def _with_mean(rows: LoggedRows, means: Array) -> Array:
    """Shift all means by the same log odds, so that those of the observed arms average to the mean reward."""
    return np.asarray(expit(logit(means) + _find_shift(_take_own(rows, means), float(rows.rewards.mean()))))


def with_observed_arm_means(rows: LoggedRows, means: Array) -> Array:
    """Shift each arm's means to the mean of its rows, which represent all participants if arms were randomized."""
    pairs = zip(means.T, _shrunken_means(rows, means.shape[1]).tolist(), strict=True)
    return np.asarray(expit(logit(means) + np.array([_find_shift(arm_means, target) for arm_means, target in pairs])))


def _find_shift(means: Array, target: float) -> float:
    """Return the shift of log odds that gives means the target average."""
    log_odds, low, high = logit(means), -5.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(log_odds + middle).mean() < target else (low, middle)
    return (low + high) / 2
