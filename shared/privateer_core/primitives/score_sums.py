"""Statistics of sums of scores or events: what they say of a mean value, by the variance their release really has."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreSums:
    """Sums of scores in [-1, 1] by cell, and what is known beforehand of how a release came about.

    Of n reports that may count for a cell a share comes from people who have something to tell of it. Their scores have
    the mean ``gain * value``; the scores of all others have the mean 0.
    """

    reports: Array  # reports that may count for the cell, n. All shapes are alike, or broadcast: (..., cells).
    sums: Array  # sums of scores
    hits: Array | None  # how many scores are other than 0; None where a release does not tell that of each cell
    share: Array  # share of the reports whose people tell of the cell, m; as it is known, never from these sums
    hit_rate: Array  # probability that a report scores other than 0, h, of all people by their shares
    apart: float  # how much more probable that is for the people who tell of the cell than for others
    gain: float  # what debiasing divides by
    noise: float = 0.0  # variance of what a curator added to each of sums and hits, independently

    def control(self, value: Array) -> Array:
        """Return the share of the hits, beyond those expected, that is best taken off the sums.

        With values near 1 or -1 nearly all of a sum is who was there. The best share of a control variate is covariance
        over variance, c = g m v (1 - h) / (h (1 - h) + N / n), for a report with the noise N of a release; it is at
        most what a hit adds to the mean of a sum.

        value: what the value is thought to be before the round, v.
        """
        if self.hits is None or self.apart <= 0:
            return np.zeros_like(value)
        spread = self.hit_rate * (1 - self.hit_rate) + self.noise / np.maximum(1.0, self.reports)
        most = self.gain * np.abs(value) / self.apart
        best = self.gain * self.share * value * (1 - self.hit_rate) / np.where(spread > 0, spread, 1.0)
        return np.asarray(np.clip(np.where(spread > 0, best, 0.0), -most, most))

    def controlled(self, control: Array) -> Array:
        """Return sums without what comes of who was there: of the same mean, n g m v, whatever ``control`` is."""
        if self.hits is None:
            return self.sums
        return np.asarray(self.sums - control * (self.hits - self.reports * self.hit_rate))

    def variance(self, control: Array, value: Array) -> Array:
        """Return the variance of one report's part of `controlled`, with its part of the noise.

        That of score - c hit is h (1 + c^2) - 2 c g m v - (g m v - c h)^2. It counts for at least h (1 - v^2) / 2: a
        release of few events must not get a large weight.

        control: what `control` returned, c.
        value: what the value is thought to be, v, for this purpose: of earlier rounds, not of this one.
        """
        h, mean = self.hit_rate, self.gain * self.share * value
        own = h * (1 + control**2) - 2 * control * mean - (mean - control * h) ** 2
        noise = self.noise * (1 + control**2) / np.maximum(1.0, self.reports)
        return np.asarray(np.maximum(own, h * (1 - value**2) / 2) + noise)

    def evidence(self, expected: Array, cautious: Array) -> tuple[Array, Array]:
        """Return what the sums say of mean values: precision, and precision times what was observed.

        expected: what values are thought to be before the round, for the control variate.
        cautious: the same for the variance, nearer to what is common to all cells.
        """
        control = self.control(expected)
        slope, variance = self.gain * self.share, self.variance(control, cautious)
        weight = slope / np.where(slope > 0, variance, 1.0)
        return self.reports * slope * weight, weight * self.controlled(control)


@dataclass(frozen=True)
class EventSums:
    """Numbers of reports of an event by cell, and what is known beforehand of how a release came about.

    Of n reports that may count for a cell a share m comes from its people, who have an event with probability
    (1 + value) / 2. A report says that there was one with probability ``gain`` times both, plus ``other``.
    """

    # reports, sums: reports that may count for the cell, and those of an event in it; (..., cells)
    reports: Array
    sums: Array
    share: Array  # share of the reports whose people tell of the cell, m; as it is known, never from these sums
    # gain, other: what debiasing divides by, and the probability that a report says of the cell what is true of another
    gain: float
    other: float

    def evidence(self, _: Array, cautious: Array) -> tuple[Array, Array]:
        """Return what the numbers say of mean values, as `ScoreSums.evidence`: half the events are scores of 1.

        A report says of an event with a probability that is never below ``other``, so that a release of few events has
        no large weight.
        """
        slope = self.gain * self.share / 2
        chance = self.other + slope * (1 + cautious)
        weight = slope / (chance * (1 - chance))
        return self.reports * slope * weight, weight * (self.sums - self.reports * (self.other + slope))
