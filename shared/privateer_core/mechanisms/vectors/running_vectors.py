"""Sums of vectors since the beginning, released every round with correlated noise: continual release.

Let x_1, x_2, ... be what rounds add to a sum, and C a lower-triangular matrix with ones on its diagonal. The noise E of
the rounds solves C E = z with independent normal z, so that all x + E show no more than C x + z. A person
is in one round, and moves C x by a column of C; the sum of the first rounds has noise of far smaller variance than as
many independent numbers would have (Denisov, McMahan, Rush, Smith and Thakurta, NeurIPS 2022).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.portable import is_same, norm
from privateer_core.primitives.bounded_vectors import BoundedVectors, RunningSums
from privateer_core.primitives.clipping import Ball, VectorTotal
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.normal import EPSILON_MAX, sampling_cost

Array = NDArray[np.float64]
STEPS_MAX: Final = 1 << 16
_WHOLE: Final = 1 + 2.0**-10
"""Most that rounding noise to whole numbers moves a coordinate by, with what floating point loses."""
KEPT_MAX: Final = 1 << 20
"""Numbers of earlier noise that a server keeps, at most: 8 MiB."""


@dataclass(frozen=True)
class Factorization:
    """A factorization by which the noise of a step depends on that of earlier ones.

    Parameters
    ----------
    kind
        ``root``: C is the square root of the matrix that sums up, which is Toeplitz; ``tree``: its rows are the nodes
        of a binary tree, where the node that ends with a step holds as many steps as the lowest bit of its number.
    steps
        Releases at most, 1 to 65,536.

    Raises
    ------
    SpecError
        If a parameter is out of range.

    Notes
    -----
    The root's coefficients are c_0 = 1, c_k = c_(k-1) (2k - 1) / (2k) (Fichtenberger, Henzinger and Upadhyay, ICML
    2023). A tree needs no completion in this order: the nodes of a sum have all ended when it is told. What counts are
    the most nodes that hold one step, also in a tree that never becomes full.
    """

    kind: Literal["root", "tree"]
    steps: int

    def __post_init__(self) -> None:
        if self.kind not in ("root", "tree"):
            raise SpecError("must be 'root' or 'tree'", field="kind", remedy="choose one")
        if not 1 <= self.steps <= STEPS_MAX:
            raise SpecError(f"must be 1 to {STEPS_MAX:,}", field="steps", remedy="let rounds be larger")

    @cached_property
    def _root(self) -> Array:
        k = np.arange(1, self.steps)
        return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])

    def row(self, step: int) -> Array:
        """Return the row of C for a step from 1, up to its diagonal: shape (step,)."""
        if self.kind == "root":
            return self._root[:step][::-1]
        row = np.zeros(step)
        row[step - (step & -step) :] = 1.0
        return row

    def following(self, fresh: NDArray[np.int64], earlier: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noise of a step in whole numbers, (n,), from fresh noise (n,) and that of all earlier steps."""
        before = self.row(len(earlier) + 1)[:-1] @ earlier.astype(np.float64)
        return np.asarray(fresh - np.rint(before).astype(np.int64))

    def variance(self, step: int) -> float:
        """Return the variance of the sum of the noise of steps 1 to ``step``, where that of fresh noise is 1."""
        return float(np.square(self._root[:step]).sum()) if self.kind == "root" else float(step.bit_count())

    def shift(self, diameter: float, coordinates: int) -> float:
        """Return the L2 distance of two neighbours in what independent noise hides, over all steps.

        Parameters
        ----------
        diameter
            The most by which one person moves the sum of a round, in L2.
        coordinates
            Coordinates of the sum, if noise is in whole numbers; 0 if it is not.

        Notes
        -----
        What is released says that a neighbour, whose sum differs by v in a round, had fresh noise that differs by v
        there, and by the rounded c_k v in the k-th round after it. Rounding changes it by 1 at most in each coordinate,
        depending on the past. So every step is a Gaussian mechanism of a known sensitivity, given the steps before, and
        these compose exactly, adaptively or not: squares of sensitivities add up. A tree's coefficients are whole.
        """
        if self.kind == "tree":
            return diameter * math.sqrt(self.steps.bit_length())
        moved = diameter * self._root
        moved[1:] += _WHOLE * math.sqrt(coordinates)
        return norm(moved)


@dataclass(frozen=True)
class RunningTotal(VectorTotal):
    """A total of vectors, and the noise of the releases before it, (steps, coordinates): both together give the sums.

    The total of an open round is kept under the round's key alone, and with it the noise.
    """

    noise: NDArray[np.int64]

    def merged(self, other: VectorTotal) -> "RunningTotal":
        """Return the total of two disjoint sets of reports, with the noise of the one that has had more releases."""
        noise = max(self.noise, other.noise, key=len) if isinstance(other, RunningTotal) else self.noise
        return RunningTotal(self.reports + other.reports, self.sums + other.sums, noise)


class RunningVectors(CentralVectors, frozen=True, tag="running-vectors"):
    """Vectors reach a curator as they are; noise of a release depends on that of the releases before.

    Parameters
    ----------
    standard_deviation
        Of the fresh noise of a release, in each coordinate, in grid points; 0: none.
    kind, steps
        As of `Factorization`; after so many releases noise begins anew.

    Raises
    ------
    SpecError
        If the steps are out of range, or earlier noise would take more than 8 MiB.

    Notes
    -----
    Privacy cost: that of one Gaussian mechanism, whose sensitivity is the factorization's ``shift`` of the ball's
    diameter, exactly, plus `sampling_cost` of all noise in delta. It covers all releases: a person is in one round.
    """

    continues: ClassVar[bool] = True

    kind: Literal["root", "tree"]
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fits(self.ball, self.steps):
            detail = f"must be 1 to {min(STEPS_MAX, KEPT_MAX // self.ball.coordinates)}"
            raise SpecError(detail, field="steps", remedy="let rounds be larger")

    @classmethod
    def fits(cls, ball: Ball, steps: int) -> bool:
        """Whether a server keeps the noise of so many steps."""
        return 1 <= steps <= min(STEPS_MAX, KEPT_MAX // ball.coordinates)

    @classmethod
    def running(cls, ball: Ball, epsilon: float, delta: float, kind: Literal["root", "tree"], steps: int) -> Self:
        """Return the mechanism whose releases, all together, are (epsilon, delta)-private.

        Raises
        ------
        SpecError
            If the promise is out of the certified range.
        """
        if not epsilon <= EPSILON_MAX:
            raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
        shift = Factorization(kind, steps).shift(ball.diameter, ball.coordinates)
        left = delta - sampling_cost(ball.coordinates * steps)
        return cls(ball, published_standard_deviation(epsilon, left, shift), kind, steps)

    @cached_property
    def factorization(self) -> Factorization:
        """How noise depends on earlier noise."""
        return Factorization(self.kind, self.steps)

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.ball.coordinates * self.steps)

    @property
    def released(self) -> Event | None:
        """What all releases together reveal."""
        shift = self.factorization.shift(self.ball.diameter, self.ball.coordinates)
        return Gaussian(self.standard_deviation, shift) if self.standard_deviation else None

    def empty(self) -> RunningTotal:
        """Return the total of no reports, before any release."""
        blank = np.zeros(self.ball.coordinates, np.int64)
        return RunningTotal(0, blank, np.zeros((0, self.ball.coordinates), np.int64))

    @override
    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> RunningTotal:
        return self.empty().merged(total).merged(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def resume(self, before: Mechanism, left: Any) -> RunningTotal:
        """Return the total that a round begins with: noise goes on where the same mechanism left it, or begins anew.

        Another machine's mechanism may differ in its last digits. A record lists both, and so does the certificate:
        releases of which some have more noise reveal no more than if all had the least.
        """
        if not isinstance(left, RunningTotal) or len(left.noise) >= self.steps or not is_same(before, self):
            return self.empty()
        return RunningTotal(0, np.zeros_like(left.sums), left.noise)

    def settle(self, total: RunningTotal, noise: NoiseSource) -> tuple[RunningSums, RunningTotal]:
        """Return what the learner may see, and the total with the noise that was drawn for it, for `resume`."""
        count = len(total.sums)
        fresh = self._normal.draw(count, noise) if self.standard_deviation else np.zeros(count, np.int64)
        own = self.factorization.following(fresh, total.noise)
        settled = RunningTotal(total.reports, total.sums, np.vstack([total.noise, own]))
        step, unit = len(settled.noise), self.ball.step
        variance = (self.standard_deviation**2 + 1 / 12) * self.factorization.variance(step) * unit**2
        return RunningSums(total.reports, np.asarray((total.sums + own) * unit), variance, step), settled

    @override
    def release(self, total: VectorTotal, noise: NoiseSource) -> RunningSums:
        return self.settle(self.empty().merged(total), noise)[0]

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> RunningSums:
        """Draw a first release."""
        found = super().simulate(contributions, rng)
        return RunningSums(found.reports, found.sums, found.noise, 1)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        ball = Ball("l2", 0.5, 4)
        return {kind: cls(ball, 9_000.0, kind, 5) for kind in ("root", "tree")}
