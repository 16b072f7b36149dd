"""The evidence of a trial: weighted hits of each arm and its control, and a score at every look."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import BITS, ValueParts
from privateer_server.algorithms.trial.group_sequential import critical_values, information
from privateer_server.algorithms.trial.value_sums import PlannedValues, ValueSums, enough_values

Array = NDArray[np.float64]

_SUCCESSES: Final = 20.0
"""Successes and failures that both arms need before the normal approximation is used."""
_NOISES: Final = 10.0
"""Standard deviations of the noise of an arm's hits that the hits must reach."""
_OWN: Final = 20.0
"""Rare outcomes, positive or negative, with which a segment's mean counts as much as that of all segments."""


@dataclass(frozen=True)
class TrialDesign:
    """The design for which intervals and weights are planned. Nothing in it depends on data.

    Attributes
    ----------
    alpha
        1 - the level of intervals, in (0, 1).
    people
        Reports planned over the whole trial.
    arms
        Shape (K + 1,), above 0, summing to 1: planned shares of the arms; arm 0 is the control.
    segments
        Shape (J,), above 0: planned shares of people. They decide how good weights are, and whether they are right
        where ``counted`` is not set.
    counted
        Whether hits tell a segment's share of people: a person hits its own segment (q p + 2 o of the reports do).
        Otherwise hits are public slots, and the share has to be asked or declared.
    hit
        Share of the reports that hit a segment where hits are not counted: 1 if every report is about all.
    numeric
        Whether rewards are numbers, whose variance is measured.
    """

    alpha: float
    people: float
    arms: Array
    segments: Array
    counted: bool = True
    hit: float = 1.0
    numeric: bool = False

    @property
    def precision(self) -> float:
        """Information about the average effect, up to q^2 and the shares of arms, where hits are not counted."""
        return self.people / (len(self.segments) * self.hit)


@dataclass(frozen=True)
class Epoch:
    """A release, and what was public before it.

    Attributes
    ----------
    people
        Reports of the epoch, n.
    positive, hits
        Shape (J, K + 1): positive hits W and hits T of each segment and arm; debiased by nothing, noise included.
    keep, other
        q and o: a positive hit of a segment's own person has probability q f + o, with f the mean reward, one of
        anybody else o. 1 and 0 where nobody randomizes. ``other`` is not used where hits are public slots.
    noise
        Variance that the release added to positive and to negative hits, each (L).
    shares
        Shape (J, K + 1), above 0: probabilities of the arms, public before the round (pi).
    squares, parts
        Where rewards are numbers: ``positive`` is the sum of the values of hits, this that of their squares (None:
        values are bits), and ``noise`` the variance added to each part of a value.
    """

    people: float
    positive: Array
    hits: Array
    keep: float
    other: float
    noise: float
    shares: Array
    squares: Array | None = None
    parts: ValueParts = BITS


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch to come, named as in `Epoch`; ``values`` where rewards are numbers."""

    people: float
    keep: float = 1.0
    other: float = 0.0
    noise: float = 0.0
    values: PlannedValues | None = None


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
        values = self.values and self.values.add(w, pairs(squares), epoch.noise, epoch.parts)
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

    @property
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

    @property
    def ready(self) -> NDArray[np.bool_]:
        """Shape (J, K): whether there is enough for the normal approximation. A function of releases."""
        if self.values is None:
            rare = np.minimum(self.middle, 1 - self.middle)[..., None]
            seen = np.square(self.den) * rare >= _SUCCESSES * self.square
        else:
            seen = enough_values(self.den, self.square, self.middle, self.spread_of_hits)
        clear = self.den >= _NOISES * np.sqrt(self.noise_of_hits)
        return np.asarray((seen & clear & (self.den > 0)).all(axis=-1))

    @property
    def together(self) -> "Sums":
        """The sums of all segments, as one; shape (1, K)."""
        return self.changed(lambda one: one.sum(axis=0, keepdims=True))

    def changed(self, change: Callable[[Array], Array]) -> "Sums":
        """Return the sums with each array changed, in the same way."""
        values = self.values and ValueSums(change(self.values.squares), change(self.values.noise))
        arrays = {name: change(one) for name, one in vars(self).items() if name != "values"}
        return Sums(**arrays, values=values)


@dataclass(frozen=True)
class TrialEvidence:
    """A trial's releases so far, added up.

    Attributes
    ----------
    design
        What was planned.
    people
        Shape (looks,): all reports up to each look.
    stable
        With weights u = sqrt(V0/V), V an epoch's variance and V0 the same at planned shares: every epoch adds variance
        as planned whatever its shares, so that looks correlate as boundaries assume (Lehmacher and Wassmer 1999,
        variance-stabilising weights of Hadad et al. 2021). For intervals.
    precise
        With weights V0/V: the least variance. For allocation, and for curves without intervals.
    common
        With one weight for all segments, sqrt(sum V0/sum V): for sums over segments. With a weight of its own a segment
        that looks extreme early counts more in such a sum, which is then found to differ from 0 too often.
    scores
        Shape (looks, J, K): the difference over its standard deviation at each look; nan where not `ready`.
    average_scores
        Shape (looks, K): the same of the average effect over segments; nan until everybody's hits together are ready.
    """

    design: TrialDesign
    people: Array
    stable: Sums
    precise: Sums
    common: Sums
    scores: Array
    average_scores: Array

    @classmethod
    def begin(cls, design: TrialDesign) -> Self:
        """Return evidence of nothing."""
        contrasts, nothing = (len(design.segments), len(design.arms) - 1), Sums.none(design)
        looks = np.zeros((0, *contrasts))
        return cls(design, np.zeros(0), nothing, nothing, nothing, looks, np.zeros((0, contrasts[1])))

    def add(self, epoch: Epoch) -> "TrialEvidence":
        """Add an epoch, which ends with a look."""
        planned, actual = contrast_variances(self.design, epoch)
        stable = self.stable.add(epoch, stable_weights(self.design, epoch))
        before = self.people[-1] if len(self.people) else 0.0
        added = replace(
            self,
            people=np.append(self.people, before + epoch.people),
            stable=stable,
            precise=self.precise.add(epoch, planned / actual),
            common=self.common.add(epoch, common_weights(planned, actual)),
        )
        return replace(
            added,
            scores=np.concatenate([self.scores, scores(stable)[None]]),
            average_scores=np.concatenate([self.average_scores, added.average.scores[None]]),
        )

    @property
    def looks(self) -> int:
        """Epochs added."""
        return len(self.people)

    @property
    def times(self) -> tuple[float, ...]:
        """Information fractions of the looks."""
        return information(self.people, self.design.people)

    @property
    def critical(self) -> float:
        """Critical value of the last look; infinite where that has no boundary."""
        return float(critical_values(self.times, self.design.alpha)[-1])

    @property
    def average(self) -> "Average":
        """The effect over all segments, as each counts among the people."""
        return average(self.common, self.design)


@dataclass(frozen=True)
class Average:
    """Average effects of K treatments, post-stratified: sums of contributions, shape (K,) each.

    ``contributions`` (J, K) are shares of people times effects.
    """

    estimate: Array
    variance: Array
    ready: NDArray[np.bool_]
    contributions: Array

    @property
    def scores(self) -> Array:
        """Shape (K,): estimate over standard deviation, nan where not ready."""
        usable = self.ready & (self.variance > 0) & np.isfinite(self.variance)
        return np.where(usable, self.estimate / np.sqrt(np.where(usable, self.variance, 1.0)), np.nan)


def average(sums: Sums, design: TrialDesign) -> Average:
    """Add up contributions over all segments.

    With v a segment's share of hits, q what is kept and d its difference in positive hits: the average is the sum of
    contributions c = (v/q) d. Its variance is that of the differences, and of the segments' shares of hits, which are
    multinomial: (sum c^2/v - average^2)/n. Hits of public slots have no such variance.

    A segment that is not ready, which may have nobody, is told from public numbers of people instead of its hits
    (`by_people`). The average is ready when everybody's hits together are.
    """
    rate, q, _, people = rates(sums)
    ratios, ratio_variance = rate / q * sums.difference, scaled_variance(sums, rate / q)
    ratio_noise = np.square(sums.difference / q) * sums.hits_noise / np.square(sums.people)
    values = HitValues.shrunk(sums)
    few, few_variances = by_people(sums, values, centres(sums, values))
    contributions = np.where(sums.ready, ratios, few[..., 0] - few[..., 1])
    estimate = contributions.sum(axis=0)
    variance = np.where(sums.ready, ratio_variance + ratio_noise, few_variances.sum(axis=-1)).sum(axis=0)
    if design.counted:
        between = np.where(sums.ready, ratios / q * sums.difference, 0.0).sum(axis=0) - np.square(estimate)
        variance = variance + np.maximum(between, 0.0) / people.mean(axis=0)
    return Average(estimate, np.asarray(variance), np.asarray(sums.together.ready[0]), contributions)


@dataclass(frozen=True)
class HitValues:
    """Mean and variance of what a hit of both arms of a contrast counts, (J, K) each."""

    mean: Array
    variance: Array

    @classmethod
    def shrunk(cls, sums: Sums) -> Self:
        """Return a segment's own, drawn to those of all segments.

        With t a segment's effective hits, f the mean of all segments, or what it lacks of 1 where that is less, and s^2
        the variance, its own count t f^2/(t f^2 + 20 s^2): of rare rewards half where 20 people had some.
        """
        everybody, own = cls._of(sums.together), cls._of(sums)
        hits, square = sums.den.sum(axis=-1), sums.square.sum(axis=-1)
        seen = _ratio(np.square(hits), square, 0.0) * np.square(np.minimum(everybody.mean, 1 - everybody.mean))
        weight = _ratio(seen, seen + _OWN * everybody.variance, 0.0)
        mean = weight * own.mean + (1 - weight) * everybody.mean
        squares = weight * own._square + (1 - weight) * everybody._square
        return cls(mean, np.maximum(squares - np.square(mean), 0.0))

    @classmethod
    def _of(cls, sums: Sums) -> Self:
        mean = np.clip(_ratio(sums.num.sum(axis=-1), sums.den.sum(axis=-1), 0.5), 0.0, 1.0)
        return cls(mean, mean * (1 - mean) if sums.values is None else sums.spread_of_hits)

    @property
    def _square(self) -> Array:
        return np.asarray(self.variance + np.square(self.mean))


def centres(sums: Sums, values: HitValues) -> Array:
    """Return the numbers c in [0, 1], (J, K), at which the sums of w (W - c T) vary least.

    Without noise that is what a hit counts on average. A curator's noise varies least at 1/2.
    """
    square, noise = np.maximum(sums.square.sum(axis=-1), 0.0), sums.noise_of_hits.sum(axis=-1)
    return np.asarray(0.5 + _ratio(square, square + noise, 0.0) * (values.mean - 0.5))


def by_people(sums: Sums, values: HitValues, centre: Array) -> tuple[Array, Array]:
    """Return shares of people times (mean reward - centre) of both arms, and variances, (J, K, 2), however few people.

    With c the centre, the sum of w (W - c T) over an arm's hits expects u n (q p (f - c) + o (1 - 2 c)): p is the share
    of people and f their mean reward. A hit varies it by w^2 (s^2 + (f' - c)^2), with f' and s^2 the mean and variance
    of what hits count, and a curator by its noise (Horvitz and Thompson 1952). Where hits are public slots, the values
    differ from those named by a number of the segment, the same for both arms.

    Parameters
    ----------
    values
        Of both arms together, and each of them.
    centre
        Shape (J, K).
    """
    c, scale = centre[..., None], sums.keep[..., None]
    others = (1 - 2 * c) * sums.other[..., None]
    each = (values.variance + np.square(values.mean - centre))[..., None]
    spread = np.maximum(sums.square, 0.0) * each + sums.noise_about(centre)
    return (sums.num - c * sums.den - others) / scale, spread / np.square(scale)


def _ratio(top: Array, bottom: Array, otherwise: float) -> Array:
    some = bottom > 0
    return np.asarray(np.where(some, top / np.where(some, bottom, 1.0), otherwise))


def scaled_variance(sums: Sums, factor: Array) -> Array:
    """Return the variance of differences times a factor, (J, K); infinite without hits, whatever the factor."""
    known = np.isfinite(sums.variance)
    return np.where(known, np.square(factor) * np.where(known, sums.variance, 0.0), np.inf)


def rates(sums: Sums) -> tuple[Array, Array, Array, Array]:
    """Hits per person v, the means of q and o, and the people that v is a mean of, each of shape (J, K)."""
    n = sums.people
    return sums.hits / n, sums.keep / n, sums.other / n, np.square(n) / sums.spread


def scores(sums: Sums) -> Array:
    """Differences over standard deviations, shape (J, K); nan where not ready."""
    usable = sums.ready & (sums.variance > 0)
    return np.where(usable, sums.difference / np.sqrt(np.where(usable, sums.variance, 1.0)), np.nan)


def pairs(cells: Array) -> Array:
    """Cells (J, K + 1) as contrasts (J, K, 2): treatment and control."""
    return np.stack([cells[:, 1:], np.broadcast_to(cells[:, :1], cells[:, 1:].shape)], axis=-1)


def stable_weights(design: TrialDesign, epoch: Epoch) -> Array:
    """Return the weight of an epoch in each contrast, (J, K), with which it adds variance as planned."""
    planned, actual = contrast_variances(design, epoch)
    return np.asarray(np.sqrt(planned / actual))


def common_weights(planned: Array, actual: Array) -> Array:
    """Return the weight of an epoch in sums over segments, (J, K), from its variances as planned and as they are."""
    return np.broadcast_to(np.sqrt(planned.sum(axis=0) / actual.sum(axis=0)), actual.shape)


def contrast_variances(design: TrialDesign, epoch: Epoch) -> tuple[Array, Array]:
    """Return the variances, up to a constant, of the sum of W/pi of a treatment less that of the control, (J, K) each.

    The first is that at the planned shares of the arms, the second that at the epoch's.
    """
    p = design.segments[:, None]
    hit = epoch.keep * p + 2 * epoch.other if design.counted else np.ones_like(p)

    def variance(shares: Array) -> Array:
        inverse = 1 / pairs(shares)
        sampling = epoch.people * hit * inverse.sum(axis=-1)
        return np.asarray(sampling + epoch.noise * np.square(inverse).sum(axis=-1))

    return variance(design.arms[None]), variance(epoch.shares)
