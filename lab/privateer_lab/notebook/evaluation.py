"""Off-policy estimates of a policy's mean reward, with confidence intervals, from a log of another policy's choices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_lab.notebook.choice_log import ChoiceLog, Decider, arm_probabilities, read_log, resolve_arms
from privateer_lab.notebook.estimates import RewardSample, Value
from privateer_lab.notebook.policies import Array
from privateer_lab.notebook.reward_model import Predictions, PropensityTest, RewardModels
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.tables.data_table import DataTable
from privateer_lab.tables.rewards import PARTICIPANT_NAME, describe_table

_MAX_FOLDS: Final = 100
_MIN_EFFECTIVE_ROWS: Final = 100
_MIN_EFFECTIVE_SHARE: Final = 0.1
_MAX_WEIGHT_SHARE: Final = 0.05
_MAX_UNSUPPORTED_SHARE: Final = 0.001
_ESTIMATORS: Final = ("IPS", "SNIPS", "doubly robust")
_GAIN: Final = "gain over the log"


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """Off-policy estimates of a policy's mean reward from a log.

    Attributes
    ----------
    ips, snips, dr
        Mean reward under the policy: by inverse propensities, by self-normalized ones, and doubly robust.
    logged
        Mean reward in the log.
    gain
        The policy's mean reward above the log's, or below it where lower is better; doubly robust, over the same
        participants.
    model
        The model of rewards of the doubly robust estimates.
    level
        The confidence level of each interval.
    n_rows, n_people, n_clusters
        Rows of the log, and participants or clusters if a column names them; None if no column does.
    effective
        The effective sample size, in rows: (sum of weights)^2 / sum of squares.
    largest
        The largest weight, as a share of all weight.
    followed, supported
        The overlap of policy and log: the share of rows whose arm the policy might have chosen, too, and the share of
        the policy's choices that are of arms that the log has.
    warnings
        Defects of the log or its weights, in words; empty if there are none.
    is_contradicted
        Whether the log contradicts the propensities of an arm that the policy chooses, so that no estimate is valid.
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
        rows = ({"estimate": row.name, **{key: getattr(row, key) for key in _VALUE_FIELDS}} for row in self.values)
        return build_table(f"mean reward, with {self.level:.0%} intervals", rows)

    @property
    def size(self) -> str:
        """A sentence with the numbers of rows and participants of the log."""
        units = "which count as different people"
        if self.n_people or self.n_clusters:
            units = f"of {self.n_people:,} people" if self.n_people else f"in {self.n_clusters:,} clusters"
        return f"The log has {self.n_rows:,} rows, {units}."

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about effective sample size, overlap and reward model, and warnings."""
        size = f"{self.size} They tell as much as {self.effective:,.0f} of equal weight."
        overlap = (
            f"The policy might have chosen {self.followed:.1%} of the log's choices, and {self.supported:.1%} of its "
            "own are of arms that somebody in the log got."
        )
        exact = [value.name for value in self.values if value.is_exact]
        rare = f"Few rewards decide, so limits are exact and may be wide: {', '.join(exact)}."
        model = f"The model of the doubly robust estimate, by its error on rows left out, is {self.model}."
        return (size, overlap, model, *([rare] if exact else []), *(f"Warning: {text}" for text in self.warnings))


_VALUE_FIELDS: Final = ("value", "error", "low", "high")


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
    """Estimate a policy's mean reward from a log of the random choices of another policy.

    The log has contexts in the clear and is not private: this is for data that a team already has.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file. A row is a choice.
    policy
        A policy of `policy` or `simulate`, whose features are columns of the frame; the name of an arm, which
        may be a whole number where the column of arms has numbers, and is never its index among them; or a function
        that takes a dictionary of the ``context`` columns as arrays, and returns a name for each row, or a dictionary
        of arms with a probability for each row.
    context
        Columns that the function and the model of rewards look at, and that may decide propensities.
    action, reward
        Columns of the chosen arm and of its reward.
    propensity
        The column of the probability with which the arm was chosen for the participant; or one number for all rows.
    arms
        Names of all arms; by default those of the policy, or of the log.
    level
        The confidence level of the intervals.
    folds, seed
        Number of folds for cross-fitted models of rewards, and the seed that draws the folds.
    person
        The column of participants, if they may have several rows: intervals are then those of independent participants.
    cluster
        The column of clusters of dependent rows, such as shops, instead: intervals are then those of clusters, and no
        model sees the cluster that it predicts.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
    bounds
        The least and the largest possible reward; by default 0 and 1 or, if rewards are beyond, those of the rows.
    lower_is_better
        Whether less of the reward is better, as of waiting times: the gain is then how much lower it is.

    Returns
    -------
    Estimates with w = share of the policy / propensity: IPS is the mean of w r, and SNIPS divides it by the mean of w
    (Swaminathan and Joachims 2015). DR adds w (r - m) to the policy's reward by a model m of rewards (Dudik, Langford
    and Li 2011): 0, the arms' means or a ridge regression an arm, all cross-fitted, whichever has the least error.
    Intervals are those of means of independent participants or clusters (Student's t, jackknife standard errors), for
    SNIPS by linearization; where few rewards differ from the most frequent one, they are exact limits of a weighted
    count (Clopper and Pearson 1934, Fay and Feuer 1997). They are within the range of rewards.

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
    >>> evaluation = lab.evaluate(log, "b", context=["hour"])
    >>> evaluation.ips.value, evaluation.effective, evaluation.ips.high
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
    """Read a log to evaluate a policy, or any policy if that is None; ``columns`` are those of `read_log`."""
    level = check_between(level, "level", 0.0, 1.0)
    if not (isinstance(folds, int) and 2 <= folds <= _MAX_FOLDS):
        raise SpecError(f"must be a whole number from 2 to {_MAX_FOLDS}", field="folds", remedy="5 is usual")
    log = read_log(table, arms=resolve_arms(policy, arms, table, columns["action"]), **columns)
    if bounds is not None and not bounds[0] <= log.rewards.min() <= log.rewards.max() <= bounds[1]:
        detail, remedy = "has rewards beyond its bounds", "give the least and the largest that are possible"
        raise SpecError(detail, field=columns["reward"], remedy=remedy)
    names = [name for name in table.header if PARTICIPANT_NAME.search(name)]
    unit_remarks = describe_table(table.read(names), [], log.unit) if names else []
    return Evaluator(replace(log, remarks=(*log.remarks, *unit_remarks)), level, folds, seed, bounds, lower_is_better)


def check_between(value: float, name: str, low: float, high: float) -> float:
    """Return an argument as a float; raise a `SpecError` if it is not between two numbers."""
    if not (isinstance(value, int | float) and low < value < high):
        raise SpecError(f"must be a number above {low:g} and below {high:g}", field=name, remedy="change it")
    return float(value)


@dataclass(frozen=True)
class Evaluator:
    """A log with the settings of `evaluate`, to evaluate several policies."""

    log: ChoiceLog
    level: float
    folds: int
    seed: int
    bounds: tuple[float, float] | None
    lower_is_better: bool

    def evaluate(self, policy: Decider) -> Evaluation:
        """Return the estimates for a policy."""
        log, sample, shares = self.log, self._reward_sample, arm_probabilities(policy, self.log)
        misfits = self._propensity_test.find_misfits(shares)
        weights = shares[np.arange(len(log)), log.arm_indices] / log.propensities
        model = self._reward_models.select_best(
            shares,
            lambda predictions: sample.standard_error(weights * log.rewards + predictions.control_variate(weights)),
        )
        ips, snips, doubly_robust, gain = self._estimate_means(weights, model)
        total_weight, n_units = float(weights.sum()), int(log.units.max()) + 1
        return Evaluation(
            ips=ips,
            snips=snips,
            dr=doubly_robust,
            logged=sample.estimate_mean("the log", np.ones(len(log))),
            gain=gain,
            model=model.model,
            level=self.level,
            n_rows=len(log),
            n_people=n_units if log.unit == "people" else None,
            n_clusters=n_units if log.unit == "clusters" else None,
            effective=total_weight**2 / float(np.square(weights).sum()) if total_weight else 0.0,
            largest=float(weights.max()) / total_weight if total_weight else 0.0,
            followed=float((weights > 0).mean()),
            supported=float(shares[:, np.unique(log.arm_indices)].sum()) / len(log),
            warnings=(*log.remarks, *_check_weights(weights), *_check_arms(log, shares), *misfits.values()),
            is_contradicted=bool(shares[:, [*misfits]].any()),
        )

    def _estimate_means(self, weights: Array, model: Predictions) -> tuple[Value, ...]:
        """Return the policy's mean reward by each estimator, and the gain."""
        sample, control, sign = self._reward_sample, model.control_variate(weights), -1 if self.lower_is_better else 1
        if not weights.any():
            return *(sample.unknown_mean(name) for name in _ESTIMATORS), sample.unknown_mean(_GAIN, is_gain=True)
        return (
            sample.estimate_mean(_ESTIMATORS[0], weights),
            sample.estimate_mean(_ESTIMATORS[1], weights / weights.mean(), is_ratio=True),
            sample.estimate_mean(_ESTIMATORS[2], weights, control),
            sample.estimate_mean(_GAIN, sign * (weights - 1), sign * control, is_gain=True),
        )

    @cached_property
    def _reward_sample(self) -> RewardSample:
        return RewardSample(self.log.rewards, self.log.units, self.bounds, self.level)

    @cached_property
    def _reward_models(self) -> RewardModels:
        return RewardModels(self.log, self.folds, self.seed)

    @cached_property
    def _propensity_test(self) -> PropensityTest:
        return PropensityTest(self.log)


def _check_weights(weights: Array) -> list[str]:
    """Return sentences that warn of a small effective sample size or of a row with a large weight."""
    total = float(weights.sum())
    if not total:
        return ["nobody in the log got an arm that the policy may choose: nothing can be estimated"]
    sentences, n_effective = [], total**2 / float(np.square(weights).sum())
    if n_effective < max(_MIN_EFFECTIVE_ROWS, _MIN_EFFECTIVE_SHARE * len(weights)):
        sentences.append(
            f"the weights are uneven: {len(weights):,} rows tell as much as {n_effective:,.0f}. Judge a policy that is "
            "closer to the logged one, or log more"
        )
    if float(weights.max()) > _MAX_WEIGHT_SHARE * total:
        sentences.append(f"one row has {weights.max() / total:.0%} of all weight: without it, estimates would differ")
    return sentences


def _check_arms(log: ChoiceLog, allocation: Array) -> list[str]:
    """Return a sentence for each arm that the policy chooses and no row of the log has."""
    counts = np.bincount(log.arm_indices, minlength=len(log.arms))
    return [
        f"the policy gives arm {name!r} to {share:.1%} of the people, and nobody in the log got it: IPS counts their "
        "rewards as 0, SNIPS as those of others, and the doubly robust estimate as its model"
        for name, share, count in zip(log.arms, allocation.mean(axis=0).tolist(), counts.tolist(), strict=True)
        if not count and share > _MAX_UNSUPPORTED_SHARE
    ]
