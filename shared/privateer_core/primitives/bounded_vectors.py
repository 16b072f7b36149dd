"""Bounded vectors: what a person contributes to a sum of vectors, and the sums that are released."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class BoundedVectors:
    """Contributions of one vector per person: the primitive "bounded vectors".

    Attributes
    ----------
    coins
        Shape (n,), uint32: public.
    values
        Shape (n, coordinates), float64; the mechanism clips them. Secret.
    """

    coins: NDArray[np.uint32]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.coins)

    def dense(self, people: slice) -> NDArray[np.float64]:
        """Return the vectors of some people, (some, coordinates)."""
        return self.values[people]


@dataclass(frozen=True, repr=False)
class SparseVectors(BoundedVectors):
    """Vectors of which most coordinates are 0.

    Attributes
    ----------
    values
        Shape (n, entries): the others. Secret.
    places
        Shape (n, entries), int64: their coordinates, all different. Secret.
    coordinates
        How many coordinates there are.
    """

    places: NDArray[np.int64]
    coordinates: int

    def dense(self, people: slice) -> NDArray[np.float64]:
        """Return the vectors of some people, (some, coordinates)."""
        found = np.zeros((len(self.values[people]), self.coordinates))
        np.put_along_axis(found, self.places[people], self.values[people], axis=1)
        return found


@dataclass(frozen=True)
class VectorSums:
    """A private sum of vectors over one round.

    Attributes
    ----------
    reports
        Number of people in it.
    sums
        Shape (classes * coordinates,): unbiased for the sum of the people's clipped vectors, class by class; most
        mechanisms have one class.
    noise
        Variance of what was added to each coordinate of ``sums``, averaged over coordinates.
    """

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "noise")

    reports: int
    sums: NDArray[np.float64]
    noise: float


@dataclass(frozen=True)
class RunningSums(VectorSums):
    """A private sum of vectors over one round, whose noise depends on that of the rounds before it.

    Attributes
    ----------
    noise
        Variance of what was added to each coordinate of the sum of all rounds since noise began anew.
    step
        How many rounds these are; 1: noise begins anew, with this round.
    """

    step: int


@dataclass(frozen=True)
class SecondMomentSums:
    """Private second moments over one round: of the coordinates of arms, kept features, chosen ones and the value.

    Attributes
    ----------
    reports
        Number of people.
    chosen
        Shape (screened,), int64: the features that were chosen.
    moments
        Shape (p, p): sums of products of two coordinates, the value last.
    variances
        Shape (p, p): of what was added to each of them.
    """

    reports: int
    chosen: NDArray[np.int64]
    moments: NDArray[np.float64]
    variances: NDArray[np.float64]
