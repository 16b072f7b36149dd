"""Bounded vectors: participants' contributions to a sum of vectors, and the released sums."""

from typing import ClassVar

import msgspec

from privateer_core.arrays import Array, Coins, Ints
from privateer_core.primitives.secret_values import SecretValues


class BoundedVectors(SecretValues, frozen=True):
    """Contributions of a vector per participant: the primitive "bounded vectors"."""

    coins: Coins  # shape (n,), uint32: public
    values: Array  # shape (n, coordinates), float64; the mechanism clips them. Secret.

    def __len__(self) -> int:
        return len(self.coins)


class VectorSums(msgspec.Struct, frozen=True):
    """A private sum of vectors over a round."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "noise")

    reports: int  # number of participants
    # shape (classes * coordinates,): unbiased for the sum of the participants' clipped vectors, class by class; most
    # mechanisms have one class
    sums: Array
    noise: float  # variance of the noise in each coordinate of ``sums``, averaged over coordinates


class RunningSums(VectorSums, frozen=True):
    """A private sum of vectors over a round, whose noise depends on the noise of earlier rounds.

    noise: variance of the noise in each coordinate of the sum of all rounds since the last restart of the noise.
    """

    step: int  # number of rounds since the restart, this round included; 1: the noise restarts in this round


class SecondMomentSums(msgspec.Struct, frozen=True):
    """Private second moments over a round, of the coordinates of arms, kept and chosen features, and the value."""

    reports: int  # number of participants
    chosen: Ints  # shape (screened,), int64: the chosen features
    moments: Array  # shape (p, p): sums of products of two coordinates, the value last
    variances: Array  # shape (p, p): variances of the noise in ``moments``
