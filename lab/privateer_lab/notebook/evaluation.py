"""Off-policy estimates with intervals: what a policy would have earned, from a log of what another one chose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_lab.notebook.choice_log import ChoiceLog, Decider, known_arms, read_log, shares_of
from privateer_lab.notebook.estimates import RewardSample, Value
from privateer_lab.notebook.policies import Array
from privateer_lab.notebook.propensity_test import PropensityTest
from privateer_lab.notebook.reward_model import Predictions, RewardModels
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.tables.data_table import DataTable
from privateer_lab.tables.remarks import PEOPLE, table_remarks

_FOLDS_MAX: Final = 100
_ROWS_FEW: Final = 100
_EFFECTIVE_SHARE: Final = 0.1
_LARGEST: Final = 0.05
_UNSUPPORTED: Final = 0.001
_MEANS: Final = ("IPS", "SNIPS", "doubly robust")
_GAIN: Final = "gain over the log"


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """The worth of a policy by a log.

    Attributes
    ----------
    ips, snips, dr
        Mean reward under the policy: by inverse propensities, by those made to sum to 1, and doubly robust.
    logged
        Mean reward in the log.
    gain
        What the policy earns above the log, or below it where that is better, doubly robust: the same people are in
        both.
    model
        The model of rewards of the doubly robust estimates.
    level
        The probability with which each interval holds.
    n_rows, n_people, n_clusters
        Rows of the log, and people or clusters if a column says whose they are; None if it does not.
    effective
        How many rows of equal weight tell as much: (sum of weights)^2 / sum of squares.
    largest
        The largest weight, as a share of all weight.
    followed, supported
        The overlap of policy and log: the share of rows whose arm the policy might have chosen, too, and the share of
        the policy's choices that are of arms that the log has.
    warnings
        What is wrong with the log or its weights, in words; empty if nothing is.
    is_contradicted
        Whether the log contradicts the propensities of an arm that the policy chooses, so that no estimate is to be
        believed.
    """

    ips: Value
    snips: Value
    dr: Value
    logged: Value
    gain: Value
    model: str
    level: float
    n_rows: int
    n_people: int | None
    n_clusters: int | None
    effective: float
    largest: float
    followed: float
    supported: float
    warnings: tuple[str, ...] = ()
    is_contradicted: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        """All estimates."""
        return self.logged, self.ips, self.snips, self.dr, self.gain

    @cached_property
    def table(self) -> ResultTable:
        """A row for each estimate."""
        rows = ({"estimate": one.name, **{key: getattr(one, key) for key in _FIGURES}} for one in self.values)
        return table_of(f"mean reward, with {self.level:.0%} intervals", rows)

    @property
    def size(self) -> str:
        """How many rows and people the log has."""
        whose = "which count as different people"
        if self.n_people or self.n_clusters:
            whose = f"of {self.n_people:,} people" if self.n_people else f"in {self.n_clusters:,} clusters"
        return f"The log has {self.n_rows:,} rows, {whose}."

    @property
    def notes(self) -> Sequence[str]:
        """How much the log says, and warnings."""
        size = f"{self.size} They tell as much as {self.effective:,.0f} of equal weight."
        overlap = (
            f"The policy might have chosen {self.followed:.1%} of the log's choices, and {self.supported:.1%} of its "
            "own are of arms that somebody in the log got."
        )
        exact = [value.name for value in self.values if value.is_exact]
        few = f"Few rewards decide, so limits are exact and may be wide: {', '.join(exact)}."
        model = f"The model of the doubly robust estimate, by its error on rows left out, is {self.model}."
        return size, overlap, model, *([few] if exact else []), *(f"Warning: {one}" for one in self.warnings)


_FIGURES: Final = ("value", "error", "low", "high")


def evaluate(
    frame: Any,
    policy: Decider,
    *,
    context: Sequence[str] = (),
    action: str = "arm",
    reward: str = "reward",
    propensity: str | float = "p",
    arms: Sequence[str] | None = None,
    level: float = 0.95,
    folds: int = 5,
    seed: int = 0,
    person: str | None = None,
    cluster: str | None = None,
    missing: Sequence[str] = (),
    bounds: tuple[float, float] | None = None,
    lower_is_better: bool = False,
) -> Evaluation:
    """Estimate what a policy would have earned, from a log of what another one chose at random.

    The log has contexts in the clear and is not private: this is for data that a team already has.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file. A row is a choice.
    policy
        A policy of `policy` or `simulate`, whose features are columns of the frame; the name of an arm, which
        may be a whole number where the column of arms has numbers, and is never its place among them; or a function
        that takes a dictionary of the ``context`` columns as arrays, and returns a name for each row, or a dictionary
        of arms with a probability for each row.
    context
        Columns that the function and the model of rewards look at, and that may decide propensities.
    action, reward
        Columns of the arm that was chosen and of what came of it.
    propensity
        The column of the probability with which that arm was chosen for that person; or one number for all.
    arms
        Names of all arms; by default those of the policy, or of the log.
    level
        The probability with which an interval holds.
    folds, seed
        Parts of the log by which rewards are modelled, and what draws them.
    person
        The column of people, if some have several rows: intervals are then those of independent people.
    cluster
        The column of what rows depend on each other by, such as shops, instead: intervals are then those of clusters,
        and no model sees the cluster that it predicts.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
    bounds
        The least and the largest reward that is possible; by default 0 and 1 or, if some are beyond, those of the rows.
    lower_is_better
        Whether less of the reward is better, as of waiting times: the gain is then how much lower it is.

    Returns
    -------
    Estimates with w = share of the policy / propensity: IPS is the mean of w r, and SNIPS divides it by the mean of w
    (Swaminathan and Joachims 2015). DR adds w (r - m) to what the policy gets by a model m of rewards (Dudik, Langford
    and Li 2011): 0, the arms' means or a ridge regression an arm, all cross-fitted, whichever has the least error.
    Intervals are those of means of independent people or clusters (Student's t, errors by leaving out one at a time),
    for SNIPS by linearization; where few rewards
    differ from the most frequent one, they are exact limits of a weighted count (Clopper and Pearson 1934, Fay and
    Feuer 1997). They are within the range of rewards.

    Raises
    ------
    InputError
        If the policy asks for a column that is not in ``context``.
    SpecError
        Naming a column, its constraint and the remedy; if the policy is none, or an argument is out of its range.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> log = {
    ...     "hour": [1, 2, 3, 4, 5, 6, 7, 8],
    ...     "arm": ["a", "b", "a", "b", "b", "a", "b", "a"],
    ...     "p": [0.5] * 8,
    ...     "reward": [0, 1, 0, 1, 1, 1, 0, 0],
    ... }
    >>> found = lab.evaluate(log, "b", context=["hour"])
    >>> found.ips.value, found.effective, found.ips.high
    (0.75, 4.0, 1.0)
    >>> lab.evaluate(log, lambda c: {"a": c["hour"] / 10, "b": 1 - c["hour"] / 10}, context=["hour"]).ips.value
    0.625
    """
    roles: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity}
    roles |= {"person": person, "cluster": cluster, "context": context}
    settings: dict[str, Any] = {"level": level, "folds": folds, "seed": seed, "bounds": bounds}
    settings["lower_is_better"] = lower_is_better
    table = DataTable(frame, missing=missing)
    return read_evaluator(table, policy, arms=arms, **roles, **settings).evaluate(policy)


def read_evaluator(
    table: DataTable,
    policy: Decider | None,
    *,
    arms: Sequence[str] | None = None,
    level: float = 0.95,
    folds: int = 5,
    seed: int = 0,
    bounds: tuple[float, float] | None = None,
    lower_is_better: bool = False,
    **columns: Any,
) -> "Evaluator":
    """Read a log by which a policy is to be evaluated, or any if that is None; ``columns`` are those of `read_log`.

    Raises
    ------
    SpecError
        Naming a column or an argument, its constraint and the remedy.
    """
    level = wanted(level, "level", 0.0, 1.0)
    if not (isinstance(folds, int) and 2 <= folds <= _FOLDS_MAX):
        raise SpecError(f"must be a whole number from 2 to {_FOLDS_MAX}", field="folds", remedy="5 is usual")
    log = read_log(table, arms=known_arms(policy, arms, table, columns["action"]), **columns)
    if bounds is not None and not bounds[0] <= log.rewards.min() <= log.rewards.max() <= bounds[1]:
        detail, remedy = "has rewards beyond its bounds", "give the least and the largest that are possible"
        raise SpecError(detail, field=columns["reward"], remedy=remedy)
    names = [name for name in table.header if PEOPLE.search(name)]
    whose = table_remarks(table.read(names), [], log.unit) if names else []
    return Evaluator(replace(log, remarks=(*log.remarks, *whose)), level, folds, seed, bounds, lower_is_better)


def wanted(value: float, name: str, low: float, high: float) -> float:
    """Return an argument that must be between two numbers.

    Raises
    ------
    SpecError
        If it is not.
    """
    if not (isinstance(value, int | float) and low < value < high):
        raise SpecError(f"must be a number above {low:g} and below {high:g}", field=name, remedy="change it")
    return float(value)


@dataclass(frozen=True)
class Evaluator:
    """What the evaluations of several policies by one log share.

    Attributes
    ----------
    log, level, folds, seed, lower_is_better
        As in `evaluate`.
    bounds
        The range of rewards; None: 0 and 1, or those of the rows if some are beyond.
    """

    log: ChoiceLog
    level: float
    folds: int
    seed: int
    bounds: tuple[float, float] | None
    lower_is_better: bool

    def evaluate(self, policy: Decider) -> Evaluation:
        """Return the estimates for a policy."""
        log, sample, shares = self.log, self._sample, shares_of(policy, self.log)
        misfits = self._test.misfits(shares)
        weights = shares[np.arange(len(log)), log.chosen] / log.propensities
        model = self._models.best(
            shares, lambda predictions: sample.error_of(weights * log.rewards + predictions.rest(weights))
        )
        ips, snips, robust, gain = self._estimates(weights, model)
        total, n_units = float(weights.sum()), int(log.units.max()) + 1
        return Evaluation(
            ips=ips,
            snips=snips,
            dr=robust,
            logged=sample.mean("the log", np.ones(len(log))),
            gain=gain,
            model=model.model,
            level=self.level,
            n_rows=len(log),
            n_people=n_units if log.unit == "people" else None,
            n_clusters=n_units if log.unit == "clusters" else None,
            effective=total**2 / float(np.square(weights).sum()) if total else 0.0,
            largest=float(weights.max()) / total if total else 0.0,
            followed=float((weights > 0).mean()),
            supported=float(shares[:, np.unique(log.chosen)].sum()) / len(log),
            warnings=(*log.remarks, *_extreme(weights), *_unsupported(log, shares), *misfits.values()),
            is_contradicted=bool(shares[:, [*misfits]].any()),
        )

    def _estimates(self, weights: Array, model: Predictions) -> tuple[Value, ...]:
        """Return the policy's mean reward by each estimator, and the gain."""
        sample, rest, sign = self._sample, model.rest(weights), -1 if self.lower_is_better else 1
        if not weights.any():
            return *(sample.unknown(name) for name in _MEANS), sample.unknown(_GAIN, is_gain=True)
        return (
            sample.mean(_MEANS[0], weights),
            sample.mean(_MEANS[1], weights / weights.mean(), is_ratio=True),
            sample.mean(_MEANS[2], weights, rest),
            sample.mean(_GAIN, sign * (weights - 1), sign * rest, is_gain=True),
        )

    @cached_property
    def _sample(self) -> RewardSample:
        return RewardSample(self.log.rewards, self.log.units, self.bounds, self.level)

    @cached_property
    def _models(self) -> RewardModels:
        return RewardModels(self.log, self.folds, self.seed)

    @cached_property
    def _test(self) -> PropensityTest:
        return PropensityTest(self.log)


def _extreme(weights: Array) -> list[str]:
    """Say that few rows decide."""
    total = float(weights.sum())
    if not total:
        return ["nobody in the log got an arm that the policy may choose: nothing can be estimated"]
    sentences, effective = [], total**2 / float(np.square(weights).sum())
    if effective < max(_ROWS_FEW, _EFFECTIVE_SHARE * len(weights)):
        sentences.append(
            f"the weights are uneven: {len(weights):,} rows tell as much as {effective:,.0f}. Judge a policy that is "
            "closer to the logged one, or log more"
        )
    if float(weights.max()) > _LARGEST * total:
        sentences.append(f"one row has {weights.max() / total:.0%} of all weight: without it, estimates would differ")
    return sentences


def _unsupported(log: ChoiceLog, shares: Array) -> list[str]:
    """Name arms that the policy chooses and that nobody in the log got."""
    counts = np.bincount(log.chosen, minlength=len(log.arms))
    return [
        f"the policy gives arm {name!r} to {share:.1%} of the people, and nobody in the log got it: IPS counts their "
        "rewards as 0, SNIPS as those of others, and the doubly robust estimate as its model"
        for name, share, count in zip(log.arms, shares.mean(axis=0).tolist(), counts.tolist(), strict=True)
        if not count and share > _UNSUPPORTED
    ]
