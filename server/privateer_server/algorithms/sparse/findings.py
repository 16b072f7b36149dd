"""What was found: features with their confidence, coefficients with intervals, and what the policy gains."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer_core.algorithms.sparse.spec import SparseSpec
from privateer_core.result import Cell, Estimate, Result, Table
from privateer_server.algorithms.sparse.estimates import CONFIDENCE, Estimates, threshold

Array = NDArray[np.float64]
_DIGITS: Final = 4


@dataclass(frozen=True)
class Played:
    """What people of some rounds had.

    Attributes
    ----------
    people
        Number of people.
    shares
        Shape (arms,): how many of them each arm would have where coins give those that are not retired.
    sums
        Shape (arms,): rewards in [-1, 1] of each arm, with noise.
    noise
        Variance of what was added to each.
    """

    people: int
    shares: Array
    sums: Array
    noise: float

    def merged(self, other: "Played") -> "Played":
        """Return what people of both had."""
        people, shares = self.people + other.people, self.shares + other.shares
        return Played(people, shares, self.sums + other.sums, self.noise + other.noise)

    @property
    def mean(self) -> tuple[float, float]:
        """The mean reward of all, and its standard deviation; a reward's own is 1 at most."""
        variance = (len(self.sums) * self.noise + self.people) / self.people**2
        return float(self.sums.sum()) / self.people, float(np.sqrt(variance))

    @property
    def means(self) -> tuple[Array, Array]:
        """The mean reward of each arm where coins gave it, (arms,), and its standard deviation."""
        each = np.maximum(self.shares, 1.0)
        return np.clip(self.sums / each, -1.0, 1.0), np.sqrt(self.noise + each) / each


def findings(
    spec: SparseSpec,
    places: NDArray[np.int64],
    found: Estimates,
    explored: Played | None = None,
    followed: Played | None = None,
) -> Result:
    """Return what is known of features, of all of which the intervals hold together, noise included.

    Parameters
    ----------
    places, found
        Features, (k,), and the estimates of their coefficients.
    explored, followed
        What people had who got any arm, and those who got the best one, where that is known.
    """
    unit = spec.reward.half_range
    names = [spec.context.names[place] for place in places.tolist()]
    reach = threshold(spec.arm_features)
    values, deviations = unit * found.values, unit * found.deviations
    estimates = tuple(
        Estimate(name, value, value - reach * deviation, value + reach * deviation)
        for name, value, deviation in zip(names, values.tolist(), deviations.tolist(), strict=True)
    )
    sure = 1 - np.minimum(1.0, 2 * spec.arm_features * ndtr(-found.ratios))
    rows = sorted(zip(names, values.tolist(), sure.tolist(), strict=True), key=lambda row: -row[2])
    told = tuple((name, round(value, _DIGITS), round(one, _DIGITS)) for name, value, one in rows)
    features = Table("features found", ("feature", "coefficient", "confidence that it matters"), told)
    gains = _gains(spec, explored, followed) if explored and followed else ()
    return Result(estimates, CONFIDENCE, tables=(features, *gains))


def _gains(spec: SparseSpec, explored: Played, followed: Played) -> tuple[Table, ...]:
    """Compare the mean reward of the policy with that of the best arm for all, in units of rewards."""
    if not (explored.people and followed.people):
        return ()
    middle, unit, reach = spec.reward.middle, spec.reward.half_range, threshold(spec.arm_count + 1)
    means, spreads = explored.means
    best = int(np.where(spec.playable, means, -np.inf).argmax())
    mean, spread = followed.mean
    constant, spread_of_arm = float(means[best]), float(spreads[best])

    def row(what: str, value: float, deviation: float) -> tuple[Cell, ...]:
        return (
            what,
            *(round(unit * one, _DIGITS) for one in (value, value - reach * deviation, value + reach * deviation)),
        )

    offset = middle / unit

    def mean_row(what: str, value: float, deviation: float) -> tuple[Cell, ...]:
        """Write a mean reward, which is never beyond the bounds of rewards."""
        low, high = spec.reward.low, spec.reward.high
        said, *figures = row(what, value + offset, deviation)
        bound = "" if low <= float(figures[0] or 0.0) <= high else " (at the bound of rewards)"
        return (f"{said}{bound}", *(min(max(float(one or 0.0), low), high) for one in figures))

    rows = (
        mean_row("the policy, by the features found", mean, spread),
        mean_row(f"everybody gets {spec.options[best]}", constant, spread_of_arm),
        row("gain", mean - constant, float(np.hypot(spread, spread_of_arm))),
    )
    return (Table("mean rewards", ("of", "value", "low", "high"), rows),)
