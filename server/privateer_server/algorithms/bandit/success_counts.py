"""Successes and trials of every arm, as far as private releases tell them, and how much that varies."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import CellHits

Array = NDArray[np.float64]
_AWAY: Final = 2.0
"""Trials that are counted are taken for no fewer than those expected by this factor, and for no more."""
_LEAST: Final = 0.002
"""The least share of successes by which rounds are weighted."""


@dataclass(frozen=True)
class SuccessCounts:
    """Estimated successes and trials of arms, (arms,); rewards between 0 and 1 count as parts of a success."""

    people: Array  # trials that are expected, by public shares
    # successes, trials: for an arm of mean m, ``successes - m trials`` has the expectation 0
    successes: Array
    trials: Array
    # spread, noise: its variance is m (1 - m) ``spread`` + ((1 - m)^2 + m^2) ``noise``: people differ, and releases
    # have noise
    spread: Array
    noise: Array

    @classmethod
    def none(cls, arms: int) -> Self:
        """Return the counts of no reports."""
        return cls(*np.zeros((5, arms)))

    @classmethod
    def of_means(cls, people: Array, means: Array, information: Array) -> Self:
        """Return what means of so many people tell, with the inverse of the variance that they have at 1/2."""
        variances = _ratio(np.ones(len(people)), information, 0.0)
        constant = np.maximum(0.0, people**2 * variances - people / 4)
        return cls(people, people * means, people, people + 2 * constant, constant)

    @classmethod
    def of_scores(cls, people: Array, sums: Array, asked: Array, hits: Array, release: Any) -> Self:
        """Return what sums of scores from -1 to 1 tell, where public shares alone tell how many people they are of.

        people, sums: people who report on each arm, and the sums of their scores.
        asked, hits: people whose scores may count for an arm, and the probability that one does.
        release: their `KeyedSums`, of which the gain and the variance of noise count.
        """
        gain = release.gain
        shared = _ratio(people**2, asked, 0.0)
        constant = np.where(people > 0, asked * hits - gain**2 * shared + release.noise, 0.0) / (2 * gain) ** 2
        # A variance that is the same for all m: (1 - m)^2 + m^2 and 2 m (1 - m) are 1 together.
        return cls(people, (sums / gain + people) / 2, people, shared + 2 * constant, constant)

    @classmethod
    def of_hits(cls, people: Array, positive: Array, hits: Array, release: CellHits) -> Self:
        """Return what positive hits and all hits of arms tell, of each of which so many ``people`` are expected."""
        gain, chance = release.gain, release.reports * release.other
        successes, trials = (positive - chance) / gain, (hits - 2 * chance) / gain
        noise = (chance * (1 - release.other) + release.noise) / gain**2
        spread = people / gain + 2 * chance * release.other / gain**2
        return cls(people, successes, trials, spread, np.full(len(people), noise))

    def plus(self, other: "SuccessCounts", seen: NDArray[np.bool_]) -> Self:
        """Return the counts with those of ``other`` people added, of the arms that were ``seen``."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine + np.where(seen, more, 0.0) for mine, more in both))

    def with_arms(self, added: int) -> Self:
        """Return the counts with so many more arms, of which nobody is counted."""
        return type(self)(*(np.pad(values, (0, added)) for values in vars(self).values()))

    def weighted(self, level: float) -> Self:
        """Return the counts of a round by what its noise, the same for all shares, leaves of each arm.

        An arm with an equal share has the weight 1; a small share tells less than its people are worth. Weights are by
        a ``level`` of all arms, known before the round: by an arm's own rate, luck would have a larger weight.
        """
        varied = max(_LEAST, level * (1 - level))
        own = varied * self.spread + (1 - 2 * varied) * self.noise
        equal = float(self.people.sum()) / max(1, int(np.count_nonzero(self.people)))
        weights = _ratio(self.people * (own + varied * (equal - self.people)), equal * own, 0.0)
        people, successes, trials = weights * self.people, weights * self.successes, weights * self.trials
        return type(self)(people, successes, trials, weights**2 * self.spread, weights**2 * self.noise)

    @property
    def known(self) -> Array:
        """Trials; where noise makes them far different from the people expected, less different."""
        return np.asarray(np.clip(self.trials, self.people / _AWAY, self.people * _AWAY))

    @property
    def means(self) -> Array:
        """Estimated mean rewards; 1/2 where there are no trials."""
        return _ratio(self.successes, self.known, 0.5)

    @property
    def variances(self) -> Array:
        """Variances of `means`, infinite without trials; as of one more success and one more failure."""
        trials, means = self.known, self._raised
        varied = means * (1 - means) * self.spread + ((1 - means) ** 2 + means**2) * self.noise
        return _ratio(varied, trials**2, np.inf)

    @property
    def faintness(self) -> Array:
        """c, 1 or more: estimates vary as those of so many bits of mean 1/2 + (m - 1/2) / c, times c."""
        trials, means = self.known, np.clip(self.means, 0.0, 1.0)
        varied = means * (1 - means) * self.spread + ((1 - means) ** 2 + means**2) * self.noise
        each = _ratio(varied, trials, 0.0)
        # c^2 b (1 - b) for the mean b of the bits; an estimate beyond 0 or 1 has one, too.
        return np.asarray(2 * np.sqrt(np.maximum(0.25, each + (self.means - 0.5) ** 2)))

    @property
    def level(self) -> tuple[float, float]:
        """The share of successes among all trials, and its standard deviation; 1/2 and infinite without trials."""
        trials = self.known
        shares, some = trials / max(1.0, float(trials.sum())), trials > 0
        if not some.any():
            return 0.5, np.inf
        return float(shares @ self.means), float(np.sqrt(np.square(shares[some]) @ self.variances[some]))

    @property
    def _raised(self) -> Array:
        """Means with a success and a failure more: no arm is sure to be worth nothing because nobody bought."""
        return np.asarray((np.clip(self.successes, 0.0, self.known) + 1) / (self.known + 2))


def _ratio(above: Array, below: Array, otherwise: float) -> Array:
    """Return one by the other, where the other is above 0."""
    some = below > 0
    return np.where(some, above / np.where(some, below, 1.0), otherwise)
