"""Statistics of sums of scores or events: their evidence on mean values, by the actual variance of their release."""

from dataclasses import dataclass

import numpy as np

from privateer_core.arrays import Array


@dataclass(frozen=True)
class ScoreSums:
    """Sums of scores in [-1, 1] by cell, with the known parameters of the release.

    Of n reports that may count for a cell a share comes from the participants of the cell. Their scores have the mean
    ``gain * value``; the scores of all others have the mean 0.
    """

    reports: Array  # reports that may count for the cell, n. All shapes are alike, or broadcast: (..., cells).
    sums: Array  # sums of scores
    hits: Array | None  # number of scores other than 0; None if the release has no such number for each cell
    share: Array  # share of the reports from participants of the cell, m; estimated without these sums
    hit_rate: Array  # probability that a report scores other than 0, h, over all participants
    hit_rate_difference: float  # hit rate of participants of the cell minus that of others
    gain: float  # divisor of debiasing
    noise: float = 0.0  # variance of a curator's noise in each of sums and hits, independently

    def control_coefficient(self, value: Array) -> Array:
        """Return the best coefficient of the excess of hits as a control variate of the sums.

        With values near 1 or -1 a sum varies mainly with the number of hits. The best coefficient is covariance over
        variance, c = g m v (1 - h) / (h (1 - h) + N / n), for a report with the noise N of a release; it is at most the
        contribution of a hit to the mean of a sum.

        value: estimate of the value before the round, v.
        """
        if self.hits is None or self.hit_rate_difference <= 0:
            return np.zeros_like(value)
        variance = self.hit_rate * (1 - self.hit_rate) + self.noise / np.maximum(1.0, self.reports)
        max_coefficient = self.gain * np.abs(value) / self.hit_rate_difference
        coefficient = self.gain * self.share * value * (1 - self.hit_rate) / np.where(variance > 0, variance, 1.0)
        return np.asarray(np.clip(np.where(variance > 0, coefficient, 0.0), -max_coefficient, max_coefficient))

    def adjusted_sums(self, control: Array) -> Array:
        """Return the sums minus ``control`` times the excess of hits: the mean, n g m v, is that of the sums."""
        if self.hits is None:
            return self.sums
        return np.asarray(self.sums - control * (self.hits - self.reports * self.hit_rate))

    def variance(self, control: Array, value: Array) -> Array:
        """Return the variance of one report's part of `adjusted_sums`, with its part of the noise.

        The variance of score - c hit is h (1 + c^2) - 2 c g m v - (g m v - c h)^2. It counts for at least
        h (1 - v^2) / 2: a release of few events must not get a large weight.

        control: result of `control_coefficient`, c.
        value: estimate of the value from earlier rounds, v.
        """
        h, mean = self.hit_rate, self.gain * self.share * value
        score_variance = h * (1 + control**2) - 2 * control * mean - (mean - control * h) ** 2
        noise = self.noise * (1 + control**2) / np.maximum(1.0, self.reports)
        return np.asarray(np.maximum(score_variance, h * (1 - value**2) / 2) + noise)

    def precision_and_moment(self, expected: Array, cautious: Array) -> tuple[Array, Array]:
        """Return the precision of the mean values that the sums show, and precision times mean value.

        expected: estimates of values before the round, for the control variate.
        cautious: estimates for the variance, shrunk towards the mean of all cells.
        """
        control = self.control_coefficient(expected)
        slope, variance = self.gain * self.share, self.variance(control, cautious)
        weight = slope / np.where(slope > 0, variance, 1.0)
        return self.reports * slope * weight, weight * self.adjusted_sums(control)


@dataclass(frozen=True)
class EventSums:
    """Counts of reported events by cell, with the known parameters of the release.

    Of n reports that may count for a cell a share m comes from its participants, who have an event with probability
    (1 + value) / 2. A report contains an event with probability ``gain`` times both, plus ``other``.
    """

    # reports, sums: reports that may count for the cell, and reports of an event in it; (..., cells)
    reports: Array
    sums: Array
    share: Array  # share of the reports from participants of the cell, m; estimated without these sums
    # gain, other: divisor of debiasing, and the probability of a false event of the cell
    gain: float
    other: float

    def precision_and_moment(self, _: Array, cautious: Array) -> tuple[Array, Array]:
        """Return the precision of the mean values that the counts show, and precision times mean value.

        The probability of a reported event is never below ``other``, so that a release of few events has no large
        weight.
        """
        slope = self.gain * self.share / 2
        event_probability = self.other + slope * (1 + cautious)
        weight = slope / (event_probability * (1 - event_probability))
        return self.reports * slope * weight, weight * (self.sums - self.reports * (self.other + slope))
