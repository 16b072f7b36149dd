"""Sums of vectors since the beginning, released every round with correlated noise: continual release.

Let x_1, x_2, ... be the sums of rounds, and C a lower-triangular matrix with ones on its diagonal. The noise E of
the rounds solves C E = z with independent normal z, so that all x + E reveal no more than C x + z. A participant
is in one round, and moves C x by a column of C; the sum of the first rounds has noise of far smaller variance than with
independent noise in each round (Denisov, McMahan, Rush, Smith and Thakurta, NeurIPS 2022).
"""

import math
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, VectorTotal
from privateer_core.mechanisms.vectors.row_sums import RowSums
from privateer_core.portable import is_same, norm
from privateer_core.primitives.bounded_vectors import RunningSums
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.row_ball import RowBall
from privateer_core.sampling.normal import EPSILON_MAX, sampling_cost
from privateer_core.sampling.randomness import NoiseSource

STEPS_MAX: Final = 1 << 16
_ROUNDING_SHIFT: Final = 1 + 2.0**-10
"""Largest shift of a coordinate by rounding noise to whole numbers, rounding errors of floating point included."""
KEPT_NUMBERS_MAX: Final = 1 << 20
"""Largest number of values of earlier noise that a server keeps: 8 MiB."""


class Factorization(msgspec.Struct, frozen=True, dict=True):
    """A factorization by which the noise of a step depends on that of earlier steps.

    Parameters
    ----------
    kind
        ``root``: C is the square root of the matrix of prefix sums, which is Toeplitz; ``tree``: its rows are the nodes
        of a binary tree, where the node that ends with a step covers as many steps as the lowest bit of its number.
    steps
        Largest number of releases, 1 to 65,536.

    Raises
    ------
    SpecError
        If a parameter is out of range.

    Notes
    -----
    The root's coefficients are c_0 = 1, c_k = c_(k-1) (2k - 1) / (2k) (Fichtenberger, Henzinger and Upadhyay, ICML
    2023). A tree needs no completion in this order: the nodes of a sum have all ended at its release. The sensitivity
    depends on the largest number of nodes that cover a step, also in a tree that is never full.
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

    def correlate_noise(self, independent: Ints, earlier: Ints) -> Ints:
        """Return the noise of a step in whole numbers, (n,), from independent noise (n,) and that of earlier steps."""
        earlier_part = self.row(len(earlier) + 1)[:-1] @ earlier.astype(np.float64)
        return np.asarray(independent - np.rint(earlier_part).astype(np.int64))

    def variance(self, step: int) -> float:
        """Return the variance of the sum of the noise of steps 1 to ``step``, in variances of independent noise."""
        return float(np.square(self._root[:step]).sum()) if self.kind == "root" else float(step.bit_count())

    def sensitivity(self, sensitivity: float, coordinates: int) -> float:
        """Return the L2 sensitivity of C x, which independent noise hides, over all steps.

        Parameters
        ----------
        sensitivity
            Largest L2 change of the sum of a round by a participant.
        coordinates
            Number of coordinates of the sum, if noise is in whole numbers; otherwise 0.

        Notes
        -----
        Releases are equal for a neighbour whose sum differs by v in a round if its independent noise differs by v in
        that round, and by the rounded c_k v in the k-th round after it. Rounding changes it by at most 1 in each
        coordinate, depending on the past. So every step is a Gaussian mechanism of a known sensitivity, given earlier
        steps, and these compose exactly, adaptively or not: squares of sensitivities add up. A tree's are whole.
        """
        if self.kind == "tree":
            return sensitivity * math.sqrt(self.steps.bit_length())
        sensitivities = sensitivity * self._root
        sensitivities[1:] += _ROUNDING_SHIFT * math.sqrt(coordinates)
        return norm(sensitivities)


class RunningTotal(VectorTotal, frozen=True):
    """A total of vectors, and the noise of earlier releases, (steps, coordinates), to be kept secret.

    The total of an open round, and with it the noise, is stored encrypted with the round's key.
    """

    noise: Ints

    def merge_with(self, other: VectorTotal) -> "RunningTotal":
        """Return the total of two disjoint sets of reports, with the noise of the total with more releases."""
        noise = max(self.noise, other.noise, key=len) if isinstance(other, RunningTotal) else self.noise
        return RunningTotal(self.reports + other.reports, self.sums + other.sums, noise)


class RunningVectors(RowSums, frozen=True, tag="running-vectors"):
    """A curator's sums of vectors that it makes itself; noise of a release depends on that of earlier releases.

    Parameters
    ----------
    standard_deviation
        Standard deviation of the independent noise of a release, in each coordinate, in grid points; 0: no noise.
    kind, steps
        As of `Factorization`; after ``steps`` releases the noise restarts.

    Raises
    ------
    SpecError
        If the steps are out of range, or earlier noise would take more than 8 MiB.

    Notes
    -----
    Privacy cost: that of one Gaussian mechanism, whose sensitivity the factorization computes from the ball's, exactly,
    plus `sampling_cost` of all noise in delta. It covers all releases: a participant is in one round.
    """

    continues: ClassVar[bool] = True

    kind: Literal["root", "tree"]
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.can_store_noise(self.ball, self.steps):
            detail = f"must be 1 to {min(STEPS_MAX, KEPT_NUMBERS_MAX // self.ball.coordinates)}"
            raise SpecError(detail, field="steps", remedy="let rounds be larger")

    @classmethod
    def can_store_noise(cls, ball: RowBall, steps: int) -> bool:
        """Whether a server can keep the noise of ``steps`` steps."""
        return 1 <= steps <= min(STEPS_MAX, KEPT_NUMBERS_MAX // ball.coordinates)

    @classmethod
    def from_promise(
        cls, ball: RowBall, epsilon: float, delta: float, kind: Literal["root", "tree"], steps: int
    ) -> Self:
        """Return the mechanism whose releases together are (epsilon, delta)-private; refuse an uncertified promise."""
        if not epsilon <= EPSILON_MAX:
            raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
        sensitivity = Factorization(kind, steps).sensitivity(ball.sensitivity, ball.coordinates)
        remaining_delta = delta - sampling_cost(ball.coordinates * steps)
        return cls(ball, published_standard_deviation(epsilon, remaining_delta, sensitivity), kind, steps)

    @cached_property
    def factorization(self) -> Factorization:
        """The factorization of the noise."""
        return Factorization(self.kind, self.steps)

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.ball.coordinates * self.steps)

    @property
    def release_event(self) -> Event | None:
        """Event of all releases together; None: they reveal the records."""
        sensitivity = self.factorization.sensitivity(self.ball.sensitivity, self.ball.coordinates)
        return Gaussian(self.standard_deviation, sensitivity) if self.standard_deviation else None

    def empty(self) -> RunningTotal:
        """Return the total of no reports, before any release."""
        zeros = np.zeros(self.ball.coordinates, np.int64)
        return RunningTotal(0, zeros, np.zeros((0, self.ball.coordinates), np.int64))

    @override
    def add(self, total: VectorTotal, reports: Any) -> VectorTotal:
        return super().add(self.empty().merge_with(total), reports)

    def start_total_after(self, previous: Mechanism, total: Any) -> RunningTotal:
        """Return the first total of a round: with the noise of the previous total if the mechanism is the same.

        Another machine's mechanism may differ in its last digits. A record and its certificate list both: releases with
        unequal noise reveal no more than if all had the smallest.
        """
        if not isinstance(total, RunningTotal) or len(total.noise) >= self.steps or not is_same(previous, self):
            return self.empty()
        return RunningTotal(0, np.zeros_like(total.sums), total.noise)

    def release_and_carry(self, total: RunningTotal, noise: NoiseSource) -> tuple[RunningSums, RunningTotal]:
        """Return the release of a total, and the total with the noise of this release, for `start_total_after`."""
        count = len(total.sums)
        independent = self._normal.draw(count, noise) if self.standard_deviation else np.zeros(count, np.int64)
        step_noise = self.factorization.correlate_noise(independent, total.noise)
        settled = RunningTotal(total.reports, total.sums, np.vstack([total.noise, step_noise]))
        step, unit = len(settled.noise), self.ball.step
        variance = (self.standard_deviation**2 + 1 / 12) * self.factorization.variance(step) * unit**2
        return RunningSums(total.reports, np.asarray((total.sums + step_noise) * unit), variance, step), settled

    @override
    def release(self, total: VectorTotal, noise: NoiseSource) -> RunningSums:
        return self.release_and_carry(self.empty().merge_with(total), noise)[0]

    def simulate(self, contributions: RowValues, rng: "np.random.Generator") -> RunningSums:
        """Draw a first release."""
        release = super().simulate(contributions, rng)
        return RunningSums(release.reports, release.sums, release.noise, 1)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {kind: cls(RowBall(2, 2, 0.3), 600_000.0, kind, 5) for kind in ("root", "tree")}
