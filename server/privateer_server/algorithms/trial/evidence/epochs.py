"""What a trial plans, and its releases: epochs of people, and the weights with which they add up."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import BITS, ValueParts
from privateer_server.algorithms.trial.evidence.value_sums import PlannedValues

Array = NDArray[np.float64]


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
