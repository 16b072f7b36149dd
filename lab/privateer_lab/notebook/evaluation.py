"""Off-policy estimates with intervals: what a policy would have earned, from a log of what another one chose."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from privateer_core.errors import SpecError
from privateer_core.spec.columns import is_missing
from privateer_lab.notebook.choice_log import ChoiceLog, Columns, Decider, known_arms, read_log, shares_of
from privateer_lab.notebook.policies import Array
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.tables.data_table import DataTable

FALSE_ALARM: Final = 1e-3
"""The probability that right propensities are called wrong."""
_FOLDS_MAX: Final = 100
_ROWS_FEW: Final = 100
_EFFECTIVE_SHARE: Final = 0.1
_LARGEST: Final = 0.05
_UNSUPPORTED: Final = 0.001
_RIDGE: Final = 1.0
"""What is added to the diagonal: as if one more person had the mean reward."""
_LEVELS: Final = 20
"""Most values of a column that get a column of 0 and 1 each; rarer ones have none."""
_PRODUCTS: Final = 8
"""Most numeric columns whose products are terms."""


@dataclass(frozen=True)
class Value:
    """An estimate with its interval.

    Attributes
    ----------
    name
        What is estimated, or how.
    value, error
        The estimate and its standard error, in the units of rewards.
    low, high
        The ends of the interval.
    """

    name: str
    value: float
    error: float
    low: float
    high: float


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
        What the policy earns above the log, doubly robust: the same people are in both.
    level
        The probability with which each interval holds.
    people
        Rows of the log.
    effective
        How many rows of equal weight tell as much: (sum of weights)^2 / sum of squares.
    largest
        The largest weight, as a share of all weight.
    followed, supported
        The overlap of policy and log: the share of rows whose arm the policy might have chosen, too, and the share of
        the policy's choices that are of arms that the log has.
    warnings
        What is wrong with the log or its weights, in words; empty if nothing is.
    """

    ips: Value
    snips: Value
    dr: Value
    logged: Value
    gain: Value
    level: float
    people: int
    effective: float
    largest: float
    followed: float
    supported: float
    warnings: tuple[str, ...] = ()

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
    def notes(self) -> Sequence[str]:
        """How much the log says, and warnings."""
        said = f"The log has {self.people:,} people, who tell as much as {self.effective:,.0f} people of equal weight."
        overlap = (
            f"The policy might have chosen {self.followed:.1%} of the log's choices, and {self.supported:.1%} of its "
            "own are of arms that somebody in the log got."
        )
        return said, overlap, *(f"Warning: {one}" for one in self.warnings)


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
    missing: Sequence[str] = (),
) -> Evaluation:
    """Estimate what a policy would have earned, from a log of what another one chose at random.

    The log has contexts in the clear and is not private: this is for data that a team already has.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file. A row is a choice, of one person.
    policy
        A policy of `policy` or `simulate`, whose features are columns of the frame; the name of an arm, which
        may be a whole number where the column of arms has numbers, and is never its place among them; or a function
        that takes a dictionary of the ``context`` columns as arrays, and returns a name for each row, or a dictionary
        of arms with a probability for each row.
    context
        Columns that the function and the model of rewards look at.
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
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.

    Returns
    -------
    Estimates with w = share of the policy / propensity: IPS is the mean of w r, and SNIPS divides it by the mean of w
    (Swaminathan and Joachims 2015). DR adds w (r - m) to what the policy gets by a model m of rewards (Dudik, Langford
    and Li 2011), here a cross-fitted ridge regression an arm. Intervals are those of means of independent rows
    (Student's t), for SNIPS by linearization. They need weights of which none decides alone; ``warnings`` says so.

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
    >>> found.ips.value, found.effective
    (0.75, 4.0)
    >>> lab.evaluate(log, lambda c: {"a": c["hour"] / 10, "b": 1 - c["hour"] / 10}, context=["hour"]).ips.value
    0.625
    """
    level = wanted(level, "level", 0.0, 1.0)
    if not (isinstance(folds, int) and 2 <= folds <= _FOLDS_MAX):
        raise SpecError(f"must be a whole number from 2 to {_FOLDS_MAX}", field="folds", remedy="5 is usual")
    table = DataTable(frame, missing=missing)
    names = known_arms(policy, arms, table, action)
    columns: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity, "person": person}
    log = read_log(table, context=context, arms=names, **columns)
    return estimated(log, shares_of(policy, log), level, folds, seed)


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


def estimated(log: ChoiceLog, shares: Array, level: float, folds: int, seed: int) -> Evaluation:
    """Return the estimates for a policy with these shares of arms, (n, arms)."""
    rows = np.arange(len(log))
    weights = shares[rows, log.chosen] / log.propensities
    model = _modelled(log, folds, seed)
    robust = (shares * model).sum(axis=1) + weights * (log.rewards - model[rows, log.chosen])
    total = float(weights.sum())
    return Evaluation(
        ips=mean_of("IPS", weights * log.rewards, level, log.people),
        snips=_ratio("SNIPS", weights, log, level),
        dr=mean_of("doubly robust", robust, level, log.people),
        logged=mean_of("the log", log.rewards, level, log.people),
        gain=mean_of("gain over the log", robust - log.rewards, level, log.people),
        level=level,
        people=len(log),
        effective=total**2 / float(np.square(weights).sum()) if total else 0.0,
        largest=float(weights.max()) / total if total else 0.0,
        followed=float((weights > 0).mean()),
        supported=float(shares[:, np.unique(log.chosen)].sum()) / len(log),
        warnings=(*log.remarks, *_extreme(weights), *_unsupported(log, shares), *_contradicted(log, shares)),
    )


def _modelled(log: ChoiceLog, folds: int, seed: int) -> Array:
    """Return the reward to expect of every arm, (n, arms)."""
    terms, rng = design(log.columns, len(log)), np.random.default_rng(seed)
    return cross_fitted(terms, log.chosen, log.rewards, len(log.arms), min(folds, len(log)), rng)


def mean_of(name: str, parts: Array, level: float, people: NDArray[np.int64] | None = None) -> Value:
    """Return the mean of parts, (n,), which are independent, or those of different ``people``, (n,), are."""
    return _value(name, float(parts.mean()), parts, level, np.arange(len(parts)) if people is None else people)


def _ratio(name: str, weights: Array, log: ChoiceLog, level: float) -> Value:
    """Return the weighted mean; a policy that the log never follows has none, and counts as 0 with no error known."""
    mean = float(weights.mean())
    if mean == 0:
        return Value(name, float("nan"), float("nan"), float("nan"), float("nan"))
    value = float((weights * log.rewards).mean()) / mean
    return _value(name, value, weights * (log.rewards - value) / mean, level, log.people)


def _value(name: str, value: float, parts: Array, level: float, people: NDArray[np.int64]) -> Value:
    """Return an estimate with the error of a mean of parts, (n,), summed by person (Liang and Zeger 1986)."""
    sums = np.bincount(people, parts - parts.mean())
    sums = sums[np.bincount(people) > 0]
    n_people = len(sums)
    error = float(np.sqrt(np.square(sums).sum() * n_people / max(1, n_people - 1))) / len(parts)
    half = float(stdtrit(n_people - 1, (1 + level) / 2)) * error
    return Value(name, value, error, value - half, value + half)


def _extreme(weights: Array) -> list[str]:
    total = float(weights.sum())
    if not total:
        return ["nobody in the log got an arm that the policy may choose: nothing can be estimated"]
    found, effective = [], total**2 / float(np.square(weights).sum())
    if effective < max(_ROWS_FEW, _EFFECTIVE_SHARE * len(weights)):
        found.append(
            f"the weights are uneven: {len(weights):,} people tell as much as {effective:,.0f}, and intervals may be "
            "too narrow. Judge a policy that is closer to the logged one, or log more"
        )
    if float(weights.max()) > _LARGEST * total:
        found.append(f"one person has {weights.max() / total:.0%} of all weight, so intervals may be too narrow")
    return found


def _unsupported(log: ChoiceLog, shares: Array) -> list[str]:
    """Name arms that the policy chooses and that nobody in the log got."""
    counts = np.bincount(log.chosen, minlength=len(log.arms))
    return [
        f"the policy gives arm {name!r} to {share:.1%} of the people, and nobody in the log got it: IPS counts their "
        "rewards as 0, SNIPS as those of others, and the doubly robust estimate as the mean"
        for name, share, count in zip(log.arms, shares.mean(axis=0).tolist(), counts.tolist(), strict=True)
        if not count and share > _UNSUPPORTED
    ]


def _contradicted(log: ChoiceLog, shares: Array) -> list[str]:
    """Say where propensities do not fit the log: 1 / p must have a mean of 1 over each arm, and so must weights.

    With right propensities and full support the means of [arm] / p are 1, and those of share [arm] / p are the share's.
    Their differences are tested arm by arm, all together with a probability of `FALSE_ALARM` to find one by chance.
    """
    found, inverse = [], 1 / log.propensities
    limit = -float(ndtri(FALSE_ALARM / (4 * len(log.arms))))
    for arm, name in enumerate(log.arms):
        got = (log.chosen == arm) * inverse
        if not got.any():
            continue
        for whom, share in (("everybody", np.ones(len(got))), ("those whom the policy gives it", shares[:, arm])):
            parts = share * (got - 1)
            if abs(float(parts.mean())) > limit * float(parts.std(ddof=1)) / len(parts) ** 0.5:
                found.append(
                    f"the propensities of arm {name!r} do not fit how often {whom} got it: 1 / p has a mean of "
                    f"{1 + parts.mean() / share.mean():.2f} in the place of 1. Either propensities are wrong, or some "
                    "people can never get the arm"
                )
                break
    return found


def design(columns: Columns, rows: int) -> Array:
    """Return what a regression looks at, (n, terms).

    These are 1; numeric columns with mean 0 and variance 1, and their squares and products of two; and 0 or 1 for every
    frequent value of other columns. A gap counts as the mean, with a column of its own that says so.
    """
    smooth, flags = [], []
    for values in columns.values():
        if values.dtype.kind in "fiu":
            gaps = ~np.isfinite(values.astype(np.float64))
            smooth.append(_standard(values.astype(np.float64), gaps))
            flags += [gaps.astype(np.float64)] if gaps.any() else []
        else:
            flags += _indicators(values)
    products = [a * b for k, a in enumerate(smooth) for b in smooth[k:]] if len(smooth) <= _PRODUCTS else []
    return np.stack([np.ones(rows), *smooth, *products, *flags], axis=1)


def _standard(values: Array, gaps: NDArray[np.bool_]) -> Array:
    known = values[~gaps]
    spread = float(known.std()) if len(known) else 0.0
    return np.where(gaps, 0.0, (values - known.mean()) / spread) if spread > 0 else np.zeros(len(values))


def _indicators(values: NDArray[Any]) -> list[Array]:
    named = np.array(["" if is_missing(one) else f"={one}" for one in values.tolist()])
    found, counts = np.unique(named, return_counts=True)
    return [np.asarray(named == one, np.float64) for one in found[np.argsort(-counts, kind="stable")][:_LEVELS]]


def cross_fitted(
    terms: Array, chosen: NDArray[np.int64], rewards: Array, arms: int, folds: int, rng: np.random.Generator
) -> Array:
    """Return the reward to expect of every arm, (n, arms): each row's by a model of the rows of other folds.

    So nobody's own reward is in what is expected of them, and an estimate that adds weighted residuals is unbiased
    whatever the model (Chernozhukov et al. 2018).
    """
    fold, found = rng.permutation(len(terms)) % folds, np.empty((len(terms), arms))
    for one in range(folds):
        known, asked = fold != one, fold == one
        mean = float(rewards[known].mean())
        for arm in range(arms):
            rows = known & (chosen == arm)
            found[asked, arm] = mean + terms[asked] @ _ridge(terms[rows], rewards[rows] - mean)
    return found


def _ridge(terms: Array, residuals: Array) -> Array:
    gram = terms.T @ terms + _RIDGE * np.eye(terms.shape[1])
    return np.asarray(np.linalg.solve(gram, terms.T @ residuals))
