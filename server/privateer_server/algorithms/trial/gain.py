"""What choosing by segment gains over the best constant arm, from people who came after both were chosen."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import critical_values, information
from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Epoch, Evidence, Sums, begin, rates

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
        design, sums = self.evidence.design, self.evidence.stable
        if not self.evidence.looks:
            return None
        if not differs.any():
            return 0.0, 0.0, 0.0
        values, variances = _arms(sums)
        rows = np.flatnonzero(differs)
        rate, q, _, _ = rates(sums)
        factor = (rate / q)[rows, 0]
        apart = values[rows, self.best[rows]] - values[rows, self.constant]
        spread = variances[rows, self.best[rows]] + variances[rows, self.constant]
        critical = float(critical_values(information(self.evidence.people, design.people), design.alpha)[-1])
        if not (np.isfinite(spread).all() and sums.ready[rows].any() and np.isfinite(critical)):
            return None
        value, half = float(factor @ apart), critical * float(np.sqrt(np.square(factor) @ spread))
        return value, value - half, value + half


def hold(design: Design, people: float, best: NDArray[np.int64], constant: int) -> Held:
    """Hold a policy against a constant arm, when so many people have reported."""
    return Held(best, constant, begin(replace(design, people=max(1.0, design.people - people))))


def _arms(sums: Sums) -> tuple[Array, Array]:
    """Shares of positive hits of every arm and their variances, (J, K + 1) each; the control's as with the first."""
    shares = sums.num / np.where(sums.den > 0, sums.den, 1.0)
    parts = sums.variances
    return (
        np.concatenate([shares[:, :1, 1], shares[..., 0]], axis=1),
        np.concatenate([parts[:, :1, 1], parts[..., 0]], axis=1),
    )
