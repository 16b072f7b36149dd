"""Shuffled sums of vectors: small integers hidden by the binomial noise of all participants (Li, Zhou and Ji 2024).

Each participant rounds every coordinate to an integer of 0..levels, adds Bin(bits, probability), and sends the sum as
the number of ones among levels + bits bits, so that a permuted batch reveals only the total. A participant sends a
fixed number of messages of one size; the shuffler permutes the messages of the same coordinate. The paper permutes all
messages. That reveals the same, since a message names its coordinate, but lets a dishonest participant spend all
messages on one coordinate.
"""

import math
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.binomial import shuffled_bits_each
from privateer_core.accounting.events import Event, ShuffledBits
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.arrays import Array, Ints, Records
from privateer_core.errors import BatchRefused, SpecError
from privateer_core.mechanisms.mechanism import Mechanism, VectorTotal, check_valid, view_rows
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.sampling.randomness import NoiseSource, draw_binomial, round_to_integers

_LEVELS_MAX: Final = 1024
_COORDINATES_MAX: Final = 1 << 16
"""A message names its coordinate in two bytes."""
BIT: Final = np.dtype([("coordinate", "<u2"), ("bit", "u1")])


class BitVectors(Mechanism, frozen=True, tag="bit-vectors"):
    """Integers sent as bits: each participant sends levels + bits of them for each coordinate.

    Parameters
    ----------
    ball
        Ball of the vectors, in the ``max`` norm: every coordinate has a range of its own.
    levels
        Largest integer of a coordinate.
    bits, probability
        The noise of a participant in a coordinate: Bin(bits, probability).
    least
        Number of honest participants that the promise counts on; a release of fewer is refused.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: that of the binomial noise of ``least`` participants for the shuffled batch. If the shuffler colludes,
    only the participant's own Bin(bits, probability) protects.
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
        """Return fair bits that make a sum of at least ``least`` honest participants (epsilon, delta)-private.

        The number of levels limits the variance of rounding to ``share`` of the noise's. Levels and bits grow together:
        with fewer participants than coordinates at the same noise, otherwise with a few times more messages.

        Raises
        ------
        SpecError
            If the promise is out of the certified range.
        """
        standard_deviation = gaussian_standard_deviation(epsilon, delta)
        # Both variances are bounded by a level's square over 4: of rounding per participant, of noise per bit.
        levels = math.ceil(math.sqrt(least / (4 * share * ball.coordinates)) / standard_deviation)
        levels = min(_LEVELS_MAX, max(4, levels))
        return cls(ball, levels, shuffled_bits_each(epsilon, delta, levels, ball.coordinates, least), 0.5, least)

    @property
    def unit(self) -> float:
        """Width of a level in units of the ball."""
        return 2 * self.ball.bound / self.levels

    @property
    @override
    def messages(self) -> int:
        return self.ball.coordinates * (self.levels + self.bits)

    @property
    def groups(self) -> int:
        """Number of kinds, one per coordinate, so that a participant moves each sum by at most levels + bits."""
        return self.ball.coordinates

    def kinds(self, rows: bytes) -> Ints:
        """Return the coordinates of messages."""
        return view_rows(rows, BIT)["coordinate"].astype(np.int64)

    @property
    @override
    def message_bits(self) -> int:
        return 1

    @override
    def batch_event(self, honest: int) -> Event:
        return ShuffledBits(honest * self.bits, self.probability, self.levels, self.ball.coordinates)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> Records:
        """Randomize the vectors of n participants; return shape (n, messages), dtype `BIT`."""
        integers = self._randomize_integers(contributions.values, noise)
        length = self.levels + self.bits
        messages = np.empty((*integers.shape, length), dtype=BIT)
        messages["coordinate"] = np.arange(integers.shape[1])[None, :, None]
        messages["bit"] = np.arange(length)[None, None, :] < integers[:, :, None]
        return messages.reshape(len(integers), -1)

    def _randomize_integers(self, vectors: Array, noise: NoiseSource) -> Ints:
        """Round coordinates and add noise; shape (n, coordinates), 0 to levels + bits."""
        scaled = self._scale_to_levels(vectors)
        rounded = np.minimum(round_to_integers(scaled, noise), self.levels)
        return rounded + draw_binomial(scaled.size, self.bits, self.probability, noise).reshape(scaled.shape)

    def _scale_to_levels(self, vectors: Array) -> Array:
        return np.asarray((self.ball.clip(vectors) + self.ball.bound) / self.unit)

    @override
    def parse(self, rows: bytes) -> Records:
        """Parse messages from their bytes, and refuse other coordinates than the ball's, or no bits."""
        messages = view_rows(rows, BIT)
        is_valid = not np.any((messages["coordinate"] >= self.ball.coordinates) | (messages["bit"] > 1))
        check_valid(is_valid, "not a coordinate or not a bit")
        return messages

    def empty(self) -> VectorTotal:
        """Return the total of no messages; ``reports`` counts messages."""
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, messages: Records) -> VectorTotal:
        """Return ``total`` with messages, of any shape and order, counted in."""
        flat = messages.ravel()
        one_counts = np.bincount(flat["coordinate"], flat["bit"], self.ball.coordinates)
        return total.merge_with(VectorTotal(len(flat), one_counts.astype(np.int64)))

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """Return the release of a total; `BatchRefused` if fewer participants sent messages than the promise counts on.

        Missing messages, which could not be decrypted, count as bits of 0: their sender could have sent those, and a
        single participant cannot stop the round.
        """
        n_participants = math.ceil(total.reports / self.messages)
        self._check_participants(n_participants)
        return self._build_release(n_participants, total.sums)

    def _check_participants(self, n_participants: int) -> None:
        """Refuse a release of fewer participants than the promise counts on."""
        if n_participants < self.least:
            detail = f"{n_participants} people reported, and the promise counts on {self.least}"
            remedy = "wait for more, or create the experiment with a smaller honest minimum"
            raise BatchRefused(detail, field="min_batch", remedy=remedy)

    def _build_release(self, n_participants: int, sums: Ints) -> VectorSums:
        centred = (sums - n_participants * self.bits * self.probability) * self.unit - n_participants * self.ball.bound
        variance = n_participants * self.bits * self.probability * (1 - self.probability) * self.unit**2
        return VectorSums(n_participants, np.asarray(centred), variance)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release: the noise of n participants is one binomial."""
        n_participants = len(contributions)
        self._check_participants(n_participants)
        scaled = self._scale_to_levels(contributions.values)
        rounded = np.minimum(round_to_integers(scaled, rng), self.levels).sum(axis=0)
        noise = rng.binomial(n_participants * self.bits, self.probability, self.ball.coordinates)
        return self._build_release(n_participants, rounded + noise)

    def error_bounds(self, n_participants: int) -> tuple[float, float]:
        """Bound the error of the released average; see `GaussianVectors.error_bounds`.

        A centred binomial of unfair bits has the sub-Gaussian variance of Kearns and Saul (1998).
        """
        p = self.probability
        bit_variance = 0.25 if p == 0.5 else (1 - 2 * p) / (2 * math.log((1 - p) / p))
        return (self.bits * bit_variance + 0.25) * self.unit**2 / n_participants, 0.0

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        box = Ball("max", 2.0, 3)
        return {"fair": cls(box, 7, 70, 0.5, 20), "unfair": cls(box, 5, 1, 0.2, 20)}

    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with fewer bits, or with a smaller probability if there is a single bit."""
        if self.bits == 1:
            return msgspec.structs.replace(self, probability=self.probability / factor)
        return msgspec.structs.replace(self, bits=max(1, round(self.bits / factor)))
