"""What cohorts that are elsewhere tell of the same arms: estimates whose levels differ, bin by bin."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Estimates:
    """Posterior precision, and precision times mean, of every arm in every bin; each (bins, arms)."""

    precision: NDArray[np.float64]
    moment: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Posterior means, 0 where nothing is known."""
        return np.asarray(self.moment / np.where(self.precision > 0, self.precision, 1.0))

    @property
    def level(self) -> NDArray[np.float64]:
        """Mean over the arms, weighted by precision, (bins, 1)."""
        precision = self.precision.sum(axis=1, keepdims=True)
        return np.asarray(self.moment.sum(axis=1, keepdims=True) / np.where(precision > 0, precision, 1.0))


def pooled(own: Estimates, earlier: Estimates) -> Estimates:
    """A cohort's estimates together with those of earlier cohorts, of which differences between arms count alone.

    An estimate is mass * (2 mean reward - 1), and the mass of a bin's people is another one in another cohort. Arms are
    not known from the cohorts in equal parts, so that averaging arm by arm would take the masses' difference for one
    of the arms. Least squares with a shift a bin, common to its arms: ``earlier = own + shift``. As the masses' ratio
    scales an estimate, the shift is expected to be of the size of the estimates' levels: normal, mean 0.

    Returns
    -------
    Estimates
        On the level of ``own``. The shift's own error counts arm by arm, as far as it moves an arm against the mean of
        all: a difference of two arms bears at least half of what it adds to their variance.
    """
    total = own.precision + earlier.precision
    known = np.where(total > 0, total, 1.0)
    part = earlier.precision / known
    shared = own.precision * part
    spread = own.level**2 + earlier.level**2
    error = spread / (1 + spread * shared.sum(axis=1, keepdims=True))
    shift = error * (shared * (earlier.mean - own.mean)).sum(axis=1, keepdims=True)
    mean = (own.moment + earlier.moment - earlier.precision * shift) / known
    uneven = error * (part - part.mean(axis=1, keepdims=True)) ** 2
    precision = np.where(total > 0, 1 / (1 / known + uneven), 0.0)
    return Estimates(precision, precision * mean)


def inherited(whole: Estimates, before: NDArray[np.float64], after: NDArray[np.float64]) -> Estimates:
    """A part of pooled estimates as a half of their bin has it: half the mean, and its part of the precision.

    Parameters
    ----------
    whole
        The part, in the bin.
    before, after
        Precision of all parts together in the bin and in its half; of the shape of ``whole``.
    """
    precision = whole.precision * after / before
    return Estimates(precision, precision * whole.mean / 2)
