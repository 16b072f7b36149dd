"""A model of what comes of an option for whom, fitted to logged outcomes.

Simulated people are made of it, so it must not find differences that are not there. Three models are compared on rows
that they have not seen, and the simplest stays unless a larger one is clearly better: the means of the options; boosted
trees of the features beside the option; and trees in which both meet, so that the best option may differ from person to
person.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from privateer_lab.clusters import design_effect, error_of_mean

Array = NDArray[np.float64]
Arms = NDArray[np.int64]
BY_ARM, BESIDE, TOGETHER = "arms", "features", "interactions"
_FOLDS: Final = 4
_TREES: Final = 60
_RATE: Final = 0.2
_LEAVES: Final = 4
_CLEARLY: Final = 2.0
"""Standard errors by which a larger model must be better on rows that it has not seen."""
_LEAST: Final = 200
"""Rows below which the means of the options are all that is fitted."""
_LEAF: Final = (20, 0.01)
"""Rows of a leaf: at least so many, and so large a share."""
_CLIP: Final = 1e-4
_UNLIKELY: Final = 0.1
"""No option is taken for less likely than so much of its share: few rows would stand for too many."""
_FACTORS: Final = np.linspace(0.0, 2.0, 41)
"""Factors of differences between options that are tried: trees that stop early find them too small."""


@dataclass(frozen=True)
class OutcomeModel:
    """What may be expected of every option, and how well that fits rows that the model had not seen."""

    kind: str  # which of the three models it is
    means: Array  # shape (n, arms): expected rewards, scaled to [0, 1]
    unseen: Array  # shape (n, arms): the same, of models of other rows
    held_out: Array  # shape (n,): what a model of the other rows expects of the option that each row got
    # mean loss of each model on rows that it had not seen: deviance / 2 of yes and no, squared error of numbers
    losses: dict[str, float]


@dataclass(frozen=True)
class LoggedRows:
    """Rows of a log as the model takes them."""

    contexts: Array  # shape (n, features): numbers, places of levels, NaN where nothing is known
    levels: Sequence[bool]  # which features are levels
    arms: Arms  # shape (n,), from 0; every one occurs
    rewards: Array  # shape (n,), scaled to [0, 1]
    binary: bool  # whether rewards are 0 and 1
    clusters: Arms | None = None  # shape (n,): whose each row is; None: rows are independent

    @property
    def units(self) -> Arms:
        """Shape (n,): the place of what each row depends on others by, from 0 on."""
        places = np.arange(len(self.arms)) if self.clusters is None else self.clusters
        return np.asarray(np.unique(places, return_inverse=True)[1])

    @property
    def folds(self) -> Arms:
        """The fold of each row, (n,), all of a cluster in one."""
        return (np.random.default_rng(0).permutation(int(self.units.max()) + 1) % _FOLDS)[self.units]

    def of(self, rows: Any) -> "LoggedRows":
        """Return some of the rows."""
        clusters = None if self.clusters is None else self.clusters[rows]
        return LoggedRows(self.contexts[rows], self.levels, self.arms[rows], self.rewards[rows], self.binary, clusters)

    def table(self, arms: Arms) -> Array:
        """Return what trees are grown on, the option first, shape (n, 1 + features)."""
        return np.column_stack([arms, self.contexts])


def fitted(rows: LoggedRows, arms: int) -> OutcomeModel:
    """Fit the models, and return the one that is to be believed.

    Source: Friedman 2001, Greedy function approximation (Annals of Statistics), as scikit-learn has it.
    """
    import sklearn.ensemble  # noqa: F401 - libraries that are loaded later have no limit
    from threadpoolctl import threadpool_limits

    # Trees are small: on a busy machine threads would wait for each other most of the time.
    with threadpool_limits(1, user_api="openmp"):
        return _fitted(rows, arms)


def _fitted(rows: LoggedRows, arms: int) -> OutcomeModel:
    units = rows.units
    folds = rows.folds
    held_out = {BY_ARM: _held_out_means(rows, folds, arms)}
    if len(rows.rewards) >= _LEAST and (rows.contexts != rows.contexts[0]).any():
        trees = {kind: _held_out_trees(rows, folds, kind) for kind in (BESIDE, TOGETHER)}
        counts = {kind: 1 + int(_losses(rows, one).mean(axis=1).argmin()) for kind, one in trees.items()}
        held_out |= {kind: one[counts[kind] - 1] for kind, one in trees.items()}
    losses = {kind: _losses(rows, one) for kind, one in held_out.items()}
    kind = _believed(losses, units)
    told = {name: float(one.mean()) for name, one in losses.items()}
    if kind == BY_ARM:
        means = np.tile(_means(rows, arms), (len(rows.rewards), 1))
        unseen = np.stack([_means(rows.of(folds != fold), arms) for fold in range(_FOLDS)])[folds]
        return OutcomeModel(kind, _with_mean(rows, means), unseen, held_out[kind], told)
    means, unseen = _grown(rows, rows, kind, counts[kind], arms), np.empty((len(folds), arms))
    for out in (folds == fold for fold in np.unique(folds)):
        unseen[out] = _grown(rows.of(~out), rows.of(out), kind, counts[kind], arms)
    if kind == TOGETHER:
        factor = _factor(rows, unseen)
        means, unseen = _stretched(means, factor), _stretched(unseen, factor)
    return OutcomeModel(kind, _with_mean(rows, means), unseen, _got(rows, unseen), told)


def propensities(rows: LoggedRows, arms: int, *, by_features: bool) -> Array:
    """Return with which probability each row got its option, (n,): its share, or what features of other rows say."""
    shares = np.bincount(rows.arms, minlength=arms) / len(rows.arms)
    if not by_features:
        return np.asarray(shares[rows.arms])
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    folds, found = rows.folds, np.empty(len(rows.arms))
    with threadpool_limits(1, user_api="openmp"):
        for out in (folds == fold for fold in np.unique(folds)):
            trees = HistGradientBoostingClassifier(
                max_iter=_TREES // 3,
                learning_rate=_RATE,
                max_leaf_nodes=_LEAVES,
                categorical_features=list(rows.levels),
            ).fit(rows.contexts[~out], rows.arms[~out])
            told, places = trees.predict_proba(rows.contexts[out]), np.searchsorted(trees.classes_, rows.arms[out])
            found[out] = told[np.arange(len(told)), np.minimum(places, len(trees.classes_) - 1)]
    return np.maximum(found, _UNLIKELY * shares[rows.arms])


def _got(rows: LoggedRows, means: Array) -> Array:
    """Return what is expected of the option that each row got."""
    return np.asarray(means[np.arange(len(means)), rows.arms])


def _stretched(means: Array, factor: float) -> Array:
    """Return means whose differences between options are so many times as large, on the scale of log odds."""
    odds = logit(means)
    middle = odds.mean(axis=1, keepdims=True)
    return _clipped(expit(middle + factor * (odds - middle)))


def _factor(rows: LoggedRows, unseen: Array) -> float:
    """Return the factor of differences that fits best what the model had not seen."""
    losses = [_losses(rows, _got(rows, _stretched(unseen, factor))).mean() for factor in _FACTORS.tolist()]
    return float(_FACTORS[int(np.argmin(losses))])


def _believed(losses: dict[str, Array], units: Arms) -> str:
    """Return the largest model that is clearly better than all smaller ones."""
    kinds = [kind for kind in (BY_ARM, BESIDE, TOGETHER) if kind in losses]
    return next(
        kind
        for place, kind in reversed(list(enumerate(kinds)))
        if all(_is_better(losses[smaller] - losses[kind], units) for smaller in kinds[:place])
    )


def _is_better(gained: Array, units: Arms) -> bool:
    error = error_of_mean(gained, units)
    return bool(error > 0 and gained.mean() > _CLEARLY * error)


def _losses(rows: LoggedRows, expected: Array) -> Array:
    """Return the loss of each row, shape (..., n)."""
    if not rows.binary:
        return np.asarray((rows.rewards - expected) ** 2)
    return np.asarray(-np.log(np.where(rows.rewards > 0.5, expected, 1 - expected)))


def _clipped(means: Array) -> Array:
    return np.clip(means, _CLIP, 1 - _CLIP)


def _means(rows: LoggedRows, arms: int) -> Array:
    """Return the mean of every option, (arms,), drawn together as far as they do not differ more than by chance.

    Source: DerSimonian and Laird 1986, Meta-analysis in clinical trials: the variance between options by moments.
    """
    counts = np.bincount(rows.arms, minlength=arms).astype(np.float64)
    means = np.bincount(rows.arms, rows.rewards, minlength=arms) / np.maximum(counts, 1)
    effect = 1.0 if rows.clusters is None else design_effect(rows.rewards, rows.arms, rows.units)
    precision = counts / max(float(rows.rewards.var()) * effect, _CLIP**2)
    common = float(precision @ means / precision.sum())
    excess = float(precision @ (means - common) ** 2) - (arms - 1)
    between = max(0.0, excess / float(precision.sum() - (precision**2).sum() / precision.sum()))
    return _clipped(common + (means - common) * between * precision / (1 + between * precision))


def _held_out_means(rows: LoggedRows, folds: Arms, arms: int) -> Array:
    found = np.empty(len(rows.rewards))
    for fold in np.unique(folds):
        out = folds == fold
        found[out] = _means(rows.of(~out), arms)[rows.arms[out]]
    return found


def _trees(rows: LoggedRows, kind: str, count: int) -> Any:
    """Return unfitted trees of a model."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    features = list(range(1, 1 + len(rows.levels)))
    return (HistGradientBoostingClassifier if rows.binary else HistGradientBoostingRegressor)(
        max_iter=count,
        learning_rate=_RATE,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=max(_LEAF[0], int(_LEAF[1] * len(rows.rewards))),
        l2_regularization=1.0,
        categorical_features=[True, *rows.levels],
        interaction_cst=[[0], features] if kind == BESIDE else None,
        early_stopping=False,
        random_state=0,
    )


def _staged(model: Any, rows: LoggedRows, table: Array) -> Array:
    """Return what is expected after each tree, shape (trees, n)."""
    if rows.binary:
        return np.stack([_clipped(one[:, 1]) for one in model.staged_predict_proba(table)])
    return np.stack([_clipped(one) for one in model.staged_predict(table)])


def _held_out_trees(rows: LoggedRows, folds: Arms, kind: str) -> Array:
    """Return what models of the other folds expect of the option that each row got, (trees, n)."""
    found = np.empty((_TREES, len(rows.rewards)), np.float64)
    for fold in np.unique(folds):
        out = folds == fold
        known, unknown = rows.of(~out), rows.of(out)
        model = _trees(known, kind, _TREES).fit(known.table(known.arms), known.rewards)
        found[:, out] = _staged(model, unknown, unknown.table(unknown.arms))
    return found


def _grown(rows: LoggedRows, people: LoggedRows, kind: str, count: int, arms: int) -> Array:
    """Return what trees of rows expect of every option for people, (n, arms)."""
    model = _trees(rows, kind, count).fit(rows.table(rows.arms), rows.rewards)
    tables = [people.table(np.full(len(people.rewards), arm)) for arm in range(arms)]
    return np.stack([_expected(model, people, table) for table in tables], axis=1)


def _expected(model: Any, people: LoggedRows, table: Array) -> Array:
    return _clipped(model.predict_proba(table)[:, 1] if people.binary else model.predict(table))


def _with_mean(rows: LoggedRows, means: Array) -> Array:
    """Return means moved alike for everybody, so that those of what people got have the mean of the rewards."""
    return np.asarray(expit(logit(means) + _move(_got(rows, means), float(rows.rewards.mean()))))


def with_means_of_rows(rows: LoggedRows, means: Array) -> Array:
    """Return means moved option by option to that of its rows, whose people are like all where chance gave it."""
    moves = [_move(some, wanted) for some, wanted in zip(means.T, _means(rows, means.shape[1]).tolist(), strict=True)]
    return np.asarray(expit(logit(means) + np.array(moves)))


def _move(means: Array, wanted: float) -> float:
    """Return by how much log odds have to move for means to have the mean that is wanted."""
    odds, low, high = logit(means), -5.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(odds + middle).mean() < wanted else (low, middle)
    return (low + high) / 2
