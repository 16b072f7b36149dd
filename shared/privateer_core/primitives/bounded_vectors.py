"""Bounded vectors: what a person contributes to a sum of vectors, and the sums that are released."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class BoundedVectors:
    """Contributions of one vector per person: the primitive "bounded vectors"."""

    coins: NDArray[np.uint32]  # shape (n,), uint32: public
    values: NDArray[np.float64]  # shape (n, coordinates), float64; the mechanism clips them. Secret.

    def __len__(self) -> int:
        return len(self.coins)

    def dense(self, people: slice) -> NDArray[np.float64]:
        """Return the vectors of some people, (some, coordinates)."""
        return self.values[people]


@dataclass(frozen=True, repr=False)
class SparseVectors(BoundedVectors):
    """Vectors of which most coordinates are 0.

    values (n, entries): the others. Secret.
    """

    places: NDArray[np.int64]  # shape (n, entries), int64: their coordinates, all different. Secret.
    coordinates: int  # how many coordinates there are

    def dense(self, people: slice) -> NDArray[np.float64]:
        """Return the vectors of some people, (some, coordinates)."""
        found = np.zeros((len(self.values[people]), self.coordinates))
        np.put_along_axis(found, self.places[people], self.values[people], axis=1)
        return found


@dataclass(frozen=True)
class VectorSums:
    """A private sum of vectors over one round."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "noise")

    reports: int  # number of people in it
    # shape (classes * coordinates,): unbiased for the sum of the people's clipped vectors, class by class; most
    # mechanisms have one class
    sums: NDArray[np.float64]
    noise: float  # variance of what was added to each coordinate of ``sums``, averaged over coordinates


@dataclass(frozen=True)
class RunningSums(VectorSums):
    """A private sum of vectors over one round, whose noise depends on that of the rounds before it.

    noise: variance of what was added to each coordinate of the sum of all rounds since noise began anew.
    """

    step: int  # how many rounds these are; 1: noise begins anew, with this round


@dataclass(frozen=True)
class SecondMomentSums:
    """Private second moments over one round: of the coordinates of arms, kept features, chosen ones and the value."""

    reports: int  # number of people
    chosen: NDArray[np.int64]  # shape (screened,), int64: the features that were chosen
    moments: NDArray[np.float64]  # shape (p, p): sums of products of two coordinates, the value last
    variances: NDArray[np.float64]  # shape (p, p): of what was added to each of them
