"""Vectors whose sum since the first round a curator tells after every round, with noise that does not add up."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.continual import STEPS_MAX, Factorization
from privateer_core.contributions import BoundedVectors, RunningSums
from privateer_core.errors import SpecError
from privateer_core.mechanisms.base import Mechanism
from privateer_core.mechanisms.vector_noise import CentralVectors
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.normal import EPSILON_MAX, sampling_cost
from privateer_core.vectors import Ball, VectorTotal

KEPT_MAX: Final = 1 << 20
"""Numbers of earlier noise that a server keeps, at most: 8 MiB."""


@dataclass(frozen=True)
class RunningTotal(VectorTotal):
    """A total of vectors, and the noise of the releases before it, (steps, coordinates); whoever has both has the sums.

    The total of an open round is kept under the round's key alone, and with it the noise.
    """

    noise: NDArray[np.int64]

    def merged(self, other: VectorTotal) -> "RunningTotal":
        """The total of two disjoint sets of reports: the noise of the one that has been through more releases."""
        noise = max(self.noise, other.noise, key=len) if isinstance(other, RunningTotal) else self.noise
        return RunningTotal(self.reports + other.reports, self.sums + other.sums, noise)


class RunningVectors(CentralVectors, frozen=True, tag="running-vectors"):
    """Vectors reach a curator as they are; noise of a release depends on that of the releases before.

    Parameters
    ----------
    standard_deviation
        Of the fresh noise of a release, in each coordinate, in grid points; 0: none.
    kind, steps
        As of `privateer_core.continual.Factorization`; after so many releases noise begins anew.

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
        return cls(ball, gaussian_standard_deviation(epsilon, left, shift), kind, steps)

    @cached_property
    def factorization(self) -> Factorization:
        """How noise depends on earlier noise."""
        return Factorization(self.kind, self.steps)

    @property
    def sampling(self) -> float:
        """What the sampler of noise may add to delta."""
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

    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> RunningTotal:
        """Return ``total`` with ``reports`` (n, coordinates) counted in."""
        return self.empty().merged(total).merged(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def resume(self, before: Mechanism, left: Any) -> RunningTotal:
        """Return the total that a round begins with: noise goes on where the same mechanism left it, or begins anew."""
        same = (
            isinstance(left, RunningTotal)
            and isinstance(before, RunningVectors)
            and msgspec.structs.astuple(before) == msgspec.structs.astuple(self)
        )
        if not same or len(left.noise) >= self.steps:
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

    def release(self, total: VectorTotal, noise: NoiseSource) -> RunningSums:
        """Return what the learner may see; every call draws fresh noise, so a round is released once."""
        return self.settle(self.empty().merged(total), noise)[0]

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> RunningSums:
        """Draw a first release."""
        found = super().simulate(contributions, rng)
        return RunningSums(found.reports, found.sums, found.noise, 1)

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name."""
        ball = Ball("l2", 0.5, 4)
        return {kind: cls(ball, 9_000.0, kind, 5) for kind in ("root", "tree")}
