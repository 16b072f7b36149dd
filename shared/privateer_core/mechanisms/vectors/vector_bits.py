"""Shuffled sums of vectors: small integers hidden by everybody's binomial noise (Li, Zhou and Ji 2024).

Every person rounds each coordinate to an integer of 0..levels, adds Bin(bits, probability), and sends the sum as that
many ones among levels + bits bits, so that only everybody's total is left after shuffling. A person sends a fixed
number of messages of one size, whatever they say; the shuffler permutes the messages of all people that are about the
same coordinate. The paper permutes all of them. That tells the same, since a message names its coordinate, but lets a
dishonest person spend all messages on one coordinate.
"""

import math
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.binomial import shuffled_bits_each
from privateer_core.accounting.events import Event, ShuffledBits
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import BatchRefused, SpecError
from privateer_core.mechanisms.mechanism import Mechanism, check_range, whole
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Array, Ball, VectorTotal
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import binomial

_LEVELS_MAX: Final = 1024
_COORDINATES_MAX: Final = 1 << 16
"""A message names its coordinate in two bytes."""
BIT: Final = np.dtype([("coordinate", "<u2"), ("bit", "u1")])


class BitVectors(Mechanism, frozen=True, tag="bit-vectors"):
    """Integers sent as bits: everybody sends levels + bits of them for each coordinate.

    Parameters
    ----------
    ball
        Where people's vectors lie, in the ``max`` norm: every coordinate has a range of its own.
    levels
        Largest integer of a coordinate.
    bits, probability
        The noise of one person in one coordinate: Bin(bits, probability).
    least
        Honest people that the promise counts on; a release of fewer is refused.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: that of the binomial noise of ``least`` people for the shuffled batch; nothing if the shuffler
    colludes, beyond the person's own Bin(bits, probability).
    """

    message: ClassVar = BIT

    ball: Ball
    levels: int
    bits: int
    probability: float
    least: int

    def __post_init__(self) -> None:
        if self.ball.norm != "max" or self.ball.coordinates > _COORDINATES_MAX:
            raise SpecError("must be 'max', in up to 65536 coordinates", field="norm", remedy="use 'max'")
        if not (1 <= self.levels <= _LEVELS_MAX and self.bits >= 1 and 0 < self.probability <= 0.5 and self.least >= 1):
            raise SpecError("there is no such randomizer", field="levels", remedy="use what the calibration gives")

    @classmethod
    def calibrated(cls, ball: Ball, epsilon: float, delta: float, least: int, share: float = 1 / 32) -> Self:
        """Return fair bits that make a sum of at least ``least`` honest people (epsilon, delta)-private.

        There are so many levels that rounding is at most ``share`` of the noise's variance. Levels and bits grow
        together: the noise stays the same for fewer people than coordinates, for a few times more messages otherwise.

        Raises
        ------
        SpecError
            If the promise is out of the certified range.
        """
        spread = gaussian_standard_deviation(epsilon, delta)
        # Rounding is 1 / bits of the noise, both as bounds: a level's square over 4, each person, and for each bit.
        levels = math.ceil(math.sqrt(least / (4 * share * ball.coordinates)) / spread)
        levels = min(_LEVELS_MAX, max(4, levels))
        return cls(ball, levels, shuffled_bits_each(epsilon, delta, levels, ball.coordinates, least), 0.5, least)

    @property
    def unit(self) -> float:
        """What one level is worth."""
        return 2 * self.ball.bound / self.levels

    @property
    @override
    def messages(self) -> int:
        return self.ball.coordinates * (self.levels + self.bits)

    @property
    def groups(self) -> int:
        """A kind for each coordinate: a dishonest person moves each sum by at most levels + bits, as all others do."""
        return self.ball.coordinates

    def kinds(self, rows: bytes) -> NDArray[np.int64]:
        """Return the coordinates that messages name."""
        return whole(rows, BIT)["coordinate"].astype(np.int64)

    @property
    @override
    def message_bits(self) -> int:
        return 1

    @override
    def shuffled(self, honest: int) -> Event:
        return ShuffledBits(honest * self.bits, self.probability, self.levels, self.ball.coordinates)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.void]:
        """Randomize the vectors of n people; return shape (n, messages), dtype `BIT`."""
        integers = self._integers(contributions.values, noise)
        length = self.levels + self.bits
        messages = np.empty((*integers.shape, length), dtype=BIT)
        messages["coordinate"] = np.arange(integers.shape[1])[None, :, None]
        messages["bit"] = np.arange(length)[None, None, :] < integers[:, :, None]
        return messages.reshape(len(integers), -1)

    def _integers(self, vectors: Array, noise: NoiseSource) -> NDArray[np.int64]:
        """Round coordinates and add noise; shape (n, coordinates), 0 to levels + bits."""
        scaled = self._scaled(vectors)
        words = noise.words(scaled.size) >> np.uint64(11)
        rounded = self._rounded(scaled, words.astype(np.float64).reshape(scaled.shape) * 2.0**-53)
        drawn = binomial(scaled.size, self.bits, self.probability, noise).reshape(scaled.shape)
        return np.asarray(rounded.astype(np.int64) + drawn)

    def _scaled(self, vectors: Array) -> Array:
        return np.asarray((self.ball.clip(vectors) + self.ball.bound) / self.unit)

    def _rounded(self, scaled: Array, uniform: Array) -> Array:
        floor = np.floor(scaled)
        return np.asarray(np.minimum(floor + (uniform < scaled - floor), self.levels))

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        messages = whole(rows, BIT)
        good = not np.any((messages["coordinate"] >= self.ball.coordinates) | (messages["bit"] > 1))
        check_range(good, "not a coordinate or not a bit")
        return messages

    def empty(self) -> VectorTotal:
        """Return the total of no messages; ``reports`` counts messages."""
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, messages: NDArray[np.void]) -> VectorTotal:
        """Return ``total`` with messages, of any shape and order, counted in."""
        flat = messages.ravel()
        ones = np.bincount(flat["coordinate"], flat["bit"], self.ball.coordinates)
        return total.merged(VectorTotal(len(flat), ones.astype(np.int64)))

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """Return what the learner may see.

        Messages that are missing, since somebody's did not open, count as bits of 0: whoever sends them could as well
        have sent those, and one person cannot undo everybody's round.

        Raises
        ------
        BatchRefused
            If fewer people than the promise counts on sent their messages.
        """
        people = math.ceil(total.reports / self.messages)
        self._check(people)
        return self._released(people, total.sums)

    def _check(self, people: int) -> None:
        if people < self.least:
            raise BatchRefused(
                f"{people} people reported, and the promise counts on {self.least}",
                field="min_batch",
                remedy="wait for more, or create the experiment with a smaller honest minimum",
            )

    def _released(self, people: int, sums: NDArray[np.int64]) -> VectorSums:
        centred = (sums - people * self.bits * self.probability) * self.unit - people * self.ball.bound
        variance = people * self.bits * self.probability * (1 - self.probability) * self.unit**2
        return VectorSums(people, np.asarray(centred), variance)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release: the noise of n people is one binomial."""
        people = len(contributions)
        self._check(people)
        scaled = self._scaled(contributions.values)
        rounded = self._rounded(scaled, rng.random(scaled.shape)).sum(axis=0)
        noise = rng.binomial(people * self.bits, self.probability, self.ball.coordinates)
        return self._released(people, (rounded + noise).astype(np.int64))

    def spread(self, people: int) -> tuple[float, float]:
        """Bound how far the released average of ``people`` is off; see `GaussianVectors.spread`.

        A centred binomial of unfair bits has the sub-Gaussian variance of Kearns and Saul (1998).
        """
        p = self.probability
        each = 0.25 if p == 0.5 else (1 - 2 * p) / (2 * math.log((1 - p) / p))
        return (self.bits * each + 0.25) * self.unit**2 / people, 0.0

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        box = Ball("max", 2.0, 3)
        return {"fair": cls(box, 7, 70, 0.5, 20), "unfair": cls(box, 5, 1, 0.2, 20)}

    def weaker(self, factor: float) -> Self:
        """Return the mechanism with a share of the bits, or of their probability where there is one alone."""
        if self.bits == 1:
            return msgspec.structs.replace(self, probability=self.probability / factor)
        return msgspec.structs.replace(self, bits=max(1, round(self.bits / factor)))
