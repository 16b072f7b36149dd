"""Weighted sums of a trial's releases: rates of each arm and its control, and how much they vary."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from privateer_core.answer.estimates import BEARERS_LEAST
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign, pairs
from privateer_server.algorithms.trial.evidence.score_limits import common_rate, score_limits
from privateer_server.algorithms.trial.evidence.value_sums import ValueSums

Array = NDArray[np.float64]

_PEOPLE: Final = (5.0, 10.0)
"""People that both arms need for an interval where there is no noise: of bits, and of numbers."""
_RARE: Final = (2.0, BEARERS_LEAST)
"""What bears the mean of each arm before there is an interval without noise: of the rarer of two outcomes so many at
the common rate, and of numbers rewards that bear it alike (`Sums.bearers`)."""
_RARE_BESIDE_NOISE: Final = 20.0
"""The same where there is noise, beside which means are less certain than their number says."""
_PEOPLE_BESIDE_NOISE: Final = (40.0, 100.0)
"""People that both arms need where there is noise: of bits, and of numbers."""
_BELOW: Final = 1 - 1e-9
_DRAWN: Final = 2.0
"""Rare outcomes with which an arm's own rate counts as much as that of both, where only its variance is meant."""
_HIDES: Final = 2.0
"""Standard deviations of noise below which a variance is not told from 0."""
_TOLD: Final = 2.0
"""Standard deviations of the noise of an arm's hits below which nobody is told from it."""
_NOISES: Final = 10.0
"""Standard deviations of the noise of an arm's hits that the hits must reach."""


@dataclass(frozen=True)
class Sums:
    """Weighted sums over epochs by contrast (segment, treatment). The last axis of four is (treatment, control)."""

    # num, den, square, noise: shape (J, K, 2): sums of w W, w T, w^2 T and w^2 L, with w = u / pi
    num: Array
    den: Array
    square: Array
    noise: Array
    # people, spread: shape (J, K): sums of u n and u^2 n
    people: Array
    spread: Array
    # keep, other: shape (J, K): sums of u n q and u n o
    keep: Array
    other: Array
    # hits, hits_noise: shape (J, K): sum of u times the hits of all arms, and the variance that releases added to it
    hits: Array
    hits_noise: Array
    # what tells how much rewards vary that are numbers; None: they are bits, whose mean tells
    values: ValueSums | None = None

    @classmethod
    def none(cls, design: TrialDesign) -> Self:
        """Return sums of nothing."""
        contrasts = (len(design.segments), len(design.arms) - 1)
        both, one = np.zeros((*contrasts, 2)), np.zeros(contrasts)
        values = ValueSums.none(contrasts) if design.numeric else None
        return cls(both, both, both, both, one, one, one, one, one, one, values)

    def add(self, epoch: Epoch, weights: Array) -> "Sums":
        """Add an epoch with weights u, shape (J, K)."""
        u, arms = weights, epoch.shares.shape[1]
        w = u[..., None] / pairs(epoch.shares)
        n, hits = epoch.people, epoch.hits.sum(axis=1)[:, None]
        squares = epoch.positive if epoch.squares is None else epoch.squares
        values = self.values and self.values.add(w, pairs(squares), epoch.noise, epoch.parts, epoch.resolution)
        return Sums(
            self.num + w * pairs(epoch.positive),
            self.den + w * pairs(epoch.hits),
            self.square + np.square(w) * pairs(epoch.hits),
            self.noise + np.square(w) * epoch.noise,
            self.people + u * n,
            self.spread + np.square(u) * n,
            self.keep + u * n * epoch.keep,
            self.other + u * n * epoch.other,
            self.hits + u * hits,
            self.hits_noise + np.square(u) * epoch.parts.count * arms * epoch.noise,
            values,
        )

    @cached_property
    def means(self) -> Array:
        """Shape (J, K, 2): share of positive hits, or mean of what hits count; 0 without hits."""
        return np.asarray(self.num / np.where(self.den > 0, self.den, np.inf))

    @cached_property
    def people_of_arms(self) -> Array:
        """Shape (J, K, 2): how many people of equal weight each mean is as good as (Kish 1965); 1 where none is."""
        some = (self.den > 0) & (self.square > 0)
        return np.where(some, np.square(self.den) / np.where(some, self.square, 1.0), 1.0)

    @property
    def difference(self) -> Array:
        """Shape (J, K): share of positive hits under the treatment less that under the control; 0 without hits."""
        return np.asarray(self.means[..., 0] - self.means[..., 1])

    @cached_property
    def middle(self) -> Array:
        """Shape (J, K): of bits, the likeliest rate if both arms have the same; of numbers, the mean of both means."""
        if self.values is None:
            return common_rate(self.means, self.people_of_arms, self._noise_of_means)
        return np.asarray(np.clip(self.means.mean(axis=-1), 0.0, 1.0))

    @property
    def _noise_of_means(self) -> Array:
        """Shape (J, K, 2): the noise of positive and of negative hits each, over their squared number."""
        return np.asarray(self.noise / np.square(np.where(self.den > 0, self.den, np.inf)))

    @property
    def variances(self) -> Array:
        """Shape (J, K, 2): of the two shares of positive hits, where both arms are alike; infinite without hits.

        By what both arms together vary, not by each, so that an arm seldom played does not misjudge its own variance.
        """
        some = self.den > 0
        terms = np.maximum(self.spread_of_hits[..., None] * self.square, 0.0) + self.noise_about(self.middle)
        return np.where(some, terms / np.square(np.where(some, self.den, 1.0)), np.inf)

    @cached_property
    def spread_of_hits(self) -> Array:
        """Shape (J, K): the variance of what a hit counts, of both arms together; of bits by their middle."""
        if self.values is None:
            return np.asarray(self.middle * (1 - self.middle))
        return self.values.variance(self.num, self.den)

    @property
    def noise_of_hits(self) -> Array:
        """Shape (J, K, 2): variance of noise in the sums of hits."""
        return 2 * self.noise if self.values is None else self.values.varied(0.0, 1.0, 0.0)

    def noise_about(self, centre: Array | float) -> Array:
        """Return the variance (J, K, 2) of noise in the sum of what hits count above a centre, (J, K)."""
        centre = np.asarray(centre)[..., None]
        if self.values is None:
            return np.asarray(self.noise * (np.square(centre) + np.square(1 - centre)))
        return self.values.varied(1.0, -centre, 0.0)

    @property
    def variance(self) -> Array:
        """Shape (J, K): of `difference`, where both arms are alike."""
        return np.asarray(self.variances.sum(axis=-1))

    @cached_property
    def own_spread(self) -> Array:
        """Shape (J, K, 2): the variance of what a hit counts in each arm; of rare bits drawn to that of both arms."""
        if self.values is not None:
            return self.values.variances_of_arms(self.num, self.den, self.people_of_arms)
        middle = self.middle[..., None]
        rare = self.people_of_arms * np.minimum(middle, 1 - middle)
        own = (rare * np.clip(self.means, 0.0, 1.0) + _DRAWN * middle) / (rare + _DRAWN)
        return np.asarray(own * (1 - own))

    @cached_property
    def own_variances(self) -> Array:
        """Shape (J, K, 2): of the two shares of positive hits, each by what its own arm varies; infinite without."""
        centre = np.clip(self.means, 0.0, 1.0)
        if self.values is None:
            noise = self.noise * (np.square(centre) + np.square(1 - centre))
        else:
            noise = self.values.varied(1.0, -centre, 0.0)
        terms = np.maximum(self.own_spread * self.square, 0.0) + noise
        return np.where(self.den > 0, terms / np.square(np.where(self.den > 0, self.den, 1.0)), np.inf)

    def side_variances(self, critical: float) -> tuple[Array, Array]:
        """Return variances of `difference` for the lower and the upper end of its interval, (J, K) each.

        Each end is as many of its deviations away as the critical value says, so that ends combine as deviations do
        (Zou and Donner 2008). Of bits they are those of the score test, of numbers those of each arm's own variance
        (Welch 1947). Infinite without hits.
        """
        if self.values is None:
            low, high = score_limits(self.means, self.people_of_arms, self._noise_of_means, critical)
            sides = np.square(self.difference - low) / critical**2, np.square(high - self.difference) / critical**2
            has_hits = (self.den > 0).all(axis=-1)
            return np.where(has_hits, sides[0], np.inf), np.where(has_hits, sides[1], np.inf)
        wider = stdtrit(self.freedom, ndtr(critical)) / critical
        own = self.own_variances.sum(axis=-1) * np.square(wider)
        return agreeing(self.difference, (own, own), scores(self), critical)

    @property
    def freedom(self) -> Array:
        """Shape (J, K): degrees of freedom of the variance by each arm's own (Satterthwaite 1946)."""
        parts = np.where(np.isfinite(self.own_variances), self.own_variances, 0.0)
        below = (np.square(parts) / np.maximum(self.people_of_arms - 1, 1.0)).sum(axis=-1)
        return np.where(below > 0, np.square(parts.sum(axis=-1)) / np.where(below > 0, below, 1.0), np.inf)

    @cached_property
    def ready(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is enough for an interval. A function of releases."""
        return ~(self.few | self.unresolved)

    @cached_property
    def can_steer(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is enough to change shares by it: a few early events would starve an arm."""
        enough = self._has_people(_PEOPLE_BESIDE_NOISE[self.values is not None]) & self._seen(_RARE_BESIDE_NOISE)
        return np.asarray(self.ready & enough)

    @property
    def few(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is too little for an interval, for one of the reasons that follow."""
        return np.asarray(self.has_few_people | self.has_noise | self.has_few_rare)

    @cached_property
    def has_few_people(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether an arm has too few people, whatever their rewards are."""
        return ~self._has_people(self.least_people) & ~self.has_noise

    @property
    def least_people(self) -> Array:
        """Shape (J, K): people that each arm needs for an interval."""
        return np.where(
            self.is_randomized, _PEOPLE_BESIDE_NOISE[self.values is not None], _PEOPLE[self.values is not None]
        )

    @property
    def least_rare(self) -> Array:
        """Shape (J, K): how many of the rarer outcome, or of rewards alike, must bear the mean of each arm."""
        return np.where(self.is_randomized, _RARE_BESIDE_NOISE, _RARE[self.values is not None])

    def _has_people(self, least: Array | float) -> NDArray[np.bool_]:
        enough = (self.den > 0) & (np.square(self.den) >= np.asarray(least)[..., None] * self.square)
        return np.asarray(enough.all(axis=-1))

    @property
    def is_randomized(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether a server or people themselves added noise to what was counted."""
        return np.asarray((self.noise_of_hits > 0).any(axis=-1) | (self.other > 0) | (self.keep < self.people))

    @cached_property
    def has_noise(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether the hits of an arm are too few beside their noise."""
        return np.asarray((self.den < _NOISES * np.sqrt(self.noise_of_hits)).any(axis=-1))

    @cached_property
    def has_nobody(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether the hits of an arm are not told from their noise."""
        deviations = np.sqrt(self.noise_of_hits)
        return np.asarray(((deviations > 0) & (self.den < _TOLD * deviations)).any(axis=-1))

    @cached_property
    def has_few_rare(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether too few rewards bear the mean of an arm, where noise does not hide how they vary."""
        return ~(self._seen(self.least_rare) | self.hidden)

    @property
    def somebody(self) -> NDArray[np.bool_]:
        """Shape (J,): whether any hit was counted; noise counts some where nobody is."""
        return np.asarray((self.hits != 0).any(axis=1))

    @property
    def rare(self) -> Array:
        """Shape (J, K, 2): how many people of each arm had the rarer outcome of bits, about; 0 without any."""
        some = self.square > 0
        people = np.where(some, np.square(self.den) / np.where(some, self.square, 1.0), 0.0)
        is_yes = (self.middle <= 0.5)[..., None]
        return np.asarray(np.maximum(people * np.where(is_yes, self.means, 1 - self.means), 0.0))

    @property
    def bearers(self) -> Array:
        """Shape (J, K): how many equal rewards would bear a mean as uncertain as that of the arm with fewer of them.

        Of rewards x above the nearer bound that is (sum x)^2 / sum x^2, as of weighted rows (Kish 1965); 0 without any.
        """
        near = np.minimum(self.middle, 1 - self.middle)
        squares = np.square(near) + self.spread_of_hits
        some = (squares > 0)[..., None] & (self.square > 0)
        people = np.square(self.den) / np.where(some, self.square, 1.0)
        share = np.square(near) / np.where(squares > 0, squares, 1.0)
        return np.asarray(np.where(some, people * share[..., None], 0.0).min(axis=-1))

    def _seen(self, least: Array | float) -> NDArray[np.bool_]:
        """Shape (J, K): whether both arms have so much of the rarer outcome; of numbers, of what is rarer."""
        rare = np.minimum(self.middle, 1 - self.middle)[..., None]
        needed = np.asarray(least)[..., None] * self.square
        if self.values is None:
            seen = np.square(self.den) * rare >= needed
        else:
            seen = np.square(self.den * rare) >= needed * self.spread_of_hits[..., None]
        return np.asarray(seen.all(axis=-1))

    @property
    def unresolved(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether rewards vary too little for their bounds, so that nobody knows by how much.

        By no more than rounding does; or noise may be all that they vary by, and more than their mean allows.
        """
        if self.values is None:
            return np.zeros(self.people.shape, bool)
        return np.asarray(
            (self.spread_of_hits <= self.values.resolution) | (self.hidden & ~self._seen(_RARE_BESIDE_NOISE))
        )

    @cached_property
    def hidden(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether noise may be all that rewards are measured to vary by."""
        if self.values is None:
            return np.zeros(self.people.shape, bool)
        variance, noise = self.values.measured(self.num, self.den)
        return np.asarray((noise > 0) & (variance <= _HIDES * noise))

    @property
    def together(self) -> "Sums":
        """The sums of all segments, as one; shape (1, K)."""
        return self.changed(lambda one: one.sum(axis=0, keepdims=True))

    def changed(self, change: Callable[[Array], Array]) -> "Sums":
        """Return the sums with each array changed, in the same way."""
        values = self.values and self.values.changed(change)
        arrays = {one.name: change(getattr(self, one.name)) for one in fields(self) if one.name != "values"}
        return Sums(**arrays, values=values)


def rates(sums: Sums) -> tuple[Array, Array, Array, Array]:
    """Hits per person v, the means of q and o, and the people that v is a mean of, each of shape (J, K)."""
    n = sums.people
    return sums.hits / n, sums.keep / n, sums.other / n, np.square(n) / sums.spread


def scaled_variance(variance: Array, factor: Array) -> Array:
    """Return the variance of what is multiplied by a factor, (J, K); infinite where it is, whatever the factor."""
    known = np.isfinite(variance)
    return np.where(known, np.square(factor) * np.where(known, variance, 0.0), np.inf)


def agreeing(estimate: Array, sides: tuple[Array, Array], score: Array, critical: float) -> tuple[Array, Array]:
    """Return the variances of both ends, so that the interval has 0 in it exactly where the score is not critical."""
    edge = np.square(np.nan_to_num(estimate) / critical)
    is_decided, is_above = np.abs(np.nan_to_num(score)) > critical, np.nan_to_num(estimate) > 0
    least, most = np.where(is_decided, 0.0, edge), np.where(is_decided, edge * _BELOW, np.inf)
    low, high = (np.clip(one, least, most) for one in sides)
    return np.where(is_above, low, sides[0]), np.where(is_above, sides[1], high)


def scores(sums: Sums) -> Array:
    """Differences over standard deviations, shape (J, K), as normal quantiles; nan where not ready.

    Of numbers by both variances, the arms' own and that of both together: the score is the one nearer to 0. An arm's
    own goes with its luck, and that of both together says too much where the arm with fewer people varies more.
    """
    usable = sums.ready & (sums.variance > 0)
    score = np.where(usable, sums.difference / np.sqrt(np.where(usable, sums.variance, 1.0)), np.nan)
    if sums.values is None:
        return score
    own = np.where(usable, sums.own_variances.sum(axis=-1), 1.0)
    quotient = np.abs(sums.difference) / np.sqrt(np.where(own > 0, own, np.inf))
    welch = -ndtri(stdtr(sums.freedom, -quotient))
    return np.where(usable, np.sign(score) * np.minimum(np.abs(score), welch), np.nan)
