"""What choosing by segment gains over the best constant arm, from people who came after both were chosen."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import critical_values, information
from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Epoch, Evidence, Sums, begin, by_people, rates

Array = NDArray[np.float64]
CHOSEN_AFTER: Final = 0.4
"""Share of the planned people after whose look arms are chosen: data that chose an arm flatters it."""


@dataclass(frozen=True)
class Held:
    """A policy and a constant arm, and the releases since both were chosen: every arm has a share in all of them.

    Attributes
    ----------
    best
        Shape (J,), int64: the policy's arm in each segment.
    constant
        The arm that is best if everybody gets the same.
    evidence
        Of the epochs since.
    """

    best: NDArray[np.int64]
    constant: int
    evidence: Evidence

    def add(self, epoch: Epoch) -> "Held":
        """Add an epoch."""
        return replace(self, evidence=self.evidence.add(epoch))

    def gain(self) -> tuple[float, float, float] | None:
        """Mean reward of the policy less that of the constant arm, with its interval; None before there is one."""
        differs = self.best != self.constant
        design, sums = self.evidence.design, self.evidence.common
        if not self.evidence.looks:
            return None
        if not differs.any():
            return 0.0, 0.0, 0.0
        values, variances = _arms(sums)
        rows = np.flatnonzero(differs)
        apart = values[rows, self.best[rows]] - values[rows, self.constant]
        spread = variances[rows, self.best[rows]] + variances[rows, self.constant]
        critical = float(critical_values(information(self.evidence.people, design.people), design.alpha)[-1])
        if not (sums.together.ready.all() and np.isfinite(critical)):
            return None
        value, half = float(apart.sum()), critical * float(np.sqrt(spread.sum()))
        return value, value - half, value + half


def hold(design: Design, people: float, best: NDArray[np.int64], constant: int) -> Held:
    """Hold a policy against a constant arm, when so many people have reported."""
    return Held(best, constant, begin(replace(design, people=max(1.0, design.people - people))))


def _arms(sums: Sums) -> tuple[Array, Array]:
    """Share of people times mean reward of every arm, up to a number of the segment, and variances; (J, K + 1) each.

    A segment where an arm is not ready is told from numbers of people, as in `average`.
    """
    rate, q, _, _ = rates(sums)
    factor, ready = (rate / q)[..., None], np.asarray(sums.ready.all(axis=1))[:, None, None]
    known = np.where(ready, sums.variances, 0.0)
    shares = sums.num / np.where(sums.den > 0, sums.den, 1.0)
    few, few_variances = by_people(sums)
    values = np.where(ready, factor * shares, few)
    variances = np.where(ready, np.square(factor) * known, few_variances)
    return _by_arm(values), _by_arm(variances)


def _by_arm(contrasts: Array) -> Array:
    """Contrasts (J, K, 2) as arms (J, K + 1); the control's as with the first treatment."""
    return np.concatenate([contrasts[:, :1, 1], contrasts[..., 0]], axis=1)
