"""Weighted sums of a trial's releases: rates of each arm and its control, and how much they vary."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign, pairs
from privateer_server.algorithms.trial.evidence.value_sums import MEANS, PEOPLE, ValueSums

Array = NDArray[np.float64]

_SUCCESSES: Final = 20.0
"""Successes and failures that both arms need before the normal approximation is used."""
_HIDES: Final = 2.0
"""Standard deviations of noise below which a variance is not told from 0."""
_NOISES: Final = 10.0
"""Standard deviations of the noise of an arm's hits that the hits must reach."""


@dataclass(frozen=True)
class Sums:
    """Weighted sums over epochs, a contrast (segment, treatment) each. The last axis of four is (treatment, control).

    Attributes
    ----------
    num, den, square, noise
        Shape (J, K, 2): sums of w W, w T, w^2 T and w^2 L, with w = u / pi.
    people, spread
        Shape (J, K): sums of u n and u^2 n.
    keep, other
        Shape (J, K): sums of u n q and u n o.
    hits, hits_noise
        Shape (J, K): sum of u times the hits of all arms, and the variance that releases added to it.
    values
        What tells how much rewards vary that are numbers; None: they are bits, whose mean tells.
    """

    num: Array
    den: Array
    square: Array
    noise: Array
    people: Array
    spread: Array
    keep: Array
    other: Array
    hits: Array
    hits_noise: Array
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

    @property
    def difference(self) -> Array:
        """Shape (J, K): share of positive hits under the treatment less that under the control; 0 without hits."""
        rates = self.num / np.where(self.den > 0, self.den, np.inf)
        return np.asarray(rates[..., 0] - rates[..., 1])

    @property
    def middle(self) -> Array:
        """Shape (J, K): mean of the two shares of positive hits, within [0, 1]."""
        rates = self.num / np.where(self.den > 0, self.den, np.inf)
        return np.asarray(np.clip(rates.mean(axis=-1), 0.0, 1.0))

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
        """Shape (J, K): of `difference`."""
        return np.asarray(self.variances.sum(axis=-1))

    @cached_property
    def ready(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is enough for the normal approximation. A function of releases."""
        return ~(self.few | self.unresolved)

    @property
    def few(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is too little for an interval, for one of the reasons that follow."""
        return np.asarray(self.has_few_people | self.has_noise | self.has_few_rare)

    @cached_property
    def has_few_people(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether an arm has too few people, whatever their rewards are."""
        least = 2 * _SUCCESSES if self.values is None else PEOPLE
        enough = (self.den > 0) & (np.square(self.den) >= least * self.square)
        return ~np.asarray(enough.all(axis=-1)) & ~self.has_noise

    @cached_property
    def has_noise(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether the hits of an arm are too few beside their noise."""
        return np.asarray((self.den < _NOISES * np.sqrt(self.noise_of_hits)).any(axis=-1))

    @cached_property
    def has_few_rare(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether too few rewards bear the mean of an arm, where noise does not hide how they vary."""
        return ~(self._seen | self.hidden)

    @property
    def somebody(self) -> NDArray[np.bool_]:
        """Shape (J,): whether any hit was counted; noise counts some where nobody is."""
        return np.asarray((self.hits != 0).any(axis=1))

    @property
    def rare(self) -> Array:
        """Shape (J, K, 2): how many people of each arm had the rarer outcome of bits, about; 0 without any."""
        some = self.square > 0
        people = np.where(some, np.square(self.den) / np.where(some, self.square, 1.0), 0.0)
        shares = self.num / np.where(self.den > 0, self.den, np.inf)
        is_yes = (self.middle <= 0.5)[..., None]
        return np.asarray(np.maximum(people * np.where(is_yes, shares, 1 - shares), 0.0))

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

    @cached_property
    def _seen(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether both arms have enough of the rarer outcome; of numbers, of what is rarer about them."""
        rare = np.minimum(self.middle, 1 - self.middle)[..., None]
        if self.values is None:
            seen = np.square(self.den) * rare >= _SUCCESSES * self.square
        else:
            seen = np.square(self.den * rare) >= MEANS * self.spread_of_hits[..., None] * self.square
        return np.asarray(seen.all(axis=-1))

    @property
    def unresolved(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether rewards vary too little for their bounds, so that nobody knows by how much.

        By no more than rounding does; or noise may be all that they vary by, and more than their mean allows.
        """
        if self.values is None:
            return np.zeros(self.people.shape, bool)
        return np.asarray((self.spread_of_hits <= self.values.resolution) | (self.hidden & ~self._seen))

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


def scaled_variance(sums: Sums, factor: Array) -> Array:
    """Return the variance of differences times a factor, (J, K); infinite without hits, whatever the factor."""
    known = np.isfinite(sums.variance)
    return np.where(known, np.square(factor) * np.where(known, sums.variance, 0.0), np.inf)


def scores(sums: Sums) -> Array:
    """Differences over standard deviations, shape (J, K); nan where not ready."""
    usable = sums.ready & (sums.variance > 0)
    return np.where(usable, sums.difference / np.sqrt(np.where(usable, sums.variance, 1.0)), np.nan)
