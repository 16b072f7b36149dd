"""Shuffled sums of vectors: small integers hidden by everybody's binomial noise, sent as bits.

Every person rounds each coordinate to an integer of 0..levels, adds Bin(bits, chance), and sends the sum so that only
everybody's total can be told after shuffling: as that many ones among levels + bits bits (`BitVectors`, paper 5's
Algorithm 2), or split into random shares (`vector_shares.ShareVectors`), which is the cheaper transport of the same
noise. A person sends a fixed number of messages of one size, whatever they say; the shuffler permutes the messages of
all people.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.binomial import shuffled_bits_each, shuffled_bits_probability, shuffled_bits_trials
from privateer.accounting.gaussian import gaussian_standard_deviation
from privateer.accounting.published import published_bits
from privateer.contributions import BoundedVectors, VectorSums
from privateer.errors import BatchRefused, OutOfRange, SpecError
from privateer.sampling.discrete import binomial
from privateer.sampling.entropy import NoiseSource
from privateer.vectors import Array, Ball, VectorTotal

_LEVELS_MAX: Final = 1024
_WASTE: Final = 1.03
"""Bits sent by those needed: what rounding up may cost of the noise's variance."""
BIT: Final = np.dtype([("coordinate", "<u2"), ("bit", "u1")])


@dataclass(frozen=True)
class BinomialPlan:
    """How vectors become integers and what hides their sum.

    Attributes
    ----------
    ball
        What people may tell, in the ``max`` norm: every coordinate has a range of its own.
    levels
        Largest integer of a coordinate.
    bits, chance
        Noise of one person in one coordinate: Bin(bits, chance).
    least
        Honest people that the promise counts on; a release of fewer is refused.
    """

    ball: Ball
    levels: int
    bits: int
    probability: float
    least: int

    def __post_init__(self) -> None:
        if self.ball.norm != "max":
            raise SpecError("must be 'max': every coordinate is hidden by itself", field="norm", remedy="use 'max'")
        if not (1 <= self.levels <= _LEVELS_MAX and self.bits >= 1 and 0 < self.probability <= 0.5 and self.least >= 1):
            raise SpecError("no such plan", field="levels", remedy="use what the calibration gives")

    @property
    def trials(self) -> int:
        """Bits of noise in a coordinate that the promise counts on."""
        return self.least * self.bits

    @property
    def unit(self) -> float:
        """What one level is worth."""
        return 2 * self.ball.bound / self.levels

    def integers(self, vectors: Array, noise: NoiseSource) -> NDArray[np.int64]:
        """Rounded coordinates with noise, shape (n, coordinates), 0 to levels + bits."""
        scaled = (self.ball.clip(vectors) + self.ball.bound) / self.unit
        floor = np.floor(scaled)
        uniform = (noise.words(scaled.size) >> np.uint64(11)).astype(np.float64).reshape(scaled.shape) * 2.0**-53
        rounded = np.minimum(floor + (uniform < scaled - floor), self.levels).astype(np.int64)
        return np.asarray(rounded + binomial(scaled.size, self.bits, self.probability, noise).reshape(scaled.shape))

    def check(self, people: int) -> None:
        """Refuse to release the sum of fewer people than the promise counts on.

        Raises
        ------
        BatchRefused
            Stating both numbers.
        """
        if people < self.least:
            raise BatchRefused(
                f"{people} people, the promise counts on {self.least}",
                field="min_batch",
                remedy="wait for more, or create the experiment with a smaller honest minimum",
            )

    def released(self, people: int, sums: NDArray[np.int64]) -> VectorSums:
        """The unbiased sum of vectors that a total of integers tells."""
        centred = (sums - people * self.bits * self.probability) * self.unit - people * self.ball.bound
        variance = people * self.bits * self.probability * (1 - self.probability) * self.unit**2
        return VectorSums(people, np.asarray(centred), variance)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release: the noise of n people is one binomial."""
        people = len(contributions)
        self.check(people)
        scaled = (self.ball.clip(contributions.values) + self.ball.bound) / self.unit
        floor = np.floor(scaled)
        rounded = (floor + (rng.random(scaled.shape) < scaled - floor)).sum(axis=0)
        noise = rng.binomial(people * self.bits, self.probability, self.ball.coordinates)
        return self.released(people, (rounded + noise).astype(np.int64))


def plan(ball: Ball, epsilon: float, delta: float, least: int, calibration: str = "tight") -> BinomialPlan:
    """The plan that makes a shuffled sum of at least ``least`` honest people (epsilon, delta)-private.

    ``tight``: exactly accounted, with so many levels that rounding adds at most half the noise's deviation, and a few
    more where these fill everybody's last bit, so that rounding bits up to whole ones wastes next to nothing.
    ``published``: paper 5's eq. (22), far noisier than it needs to be.

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    if least < 1:
        raise SpecError("no honest person", field="honest_fraction", remedy="raise it")
    if calibration == "published":
        theirs = published_bits(epsilon, delta, ball.coordinates, least)
        return BinomialPlan(ball, theirs.levels, theirs.bits, theirs.probability, least)
    levels, trials = _fitting(epsilon, delta, ball.coordinates, least)
    bits = math.ceil(trials / least)
    if bits > 1:
        return BinomialPlan(ball, levels, bits, 0.5, least)
    probability = shuffled_bits_probability(epsilon, delta, levels, ball.coordinates, least)
    return BinomialPlan(ball, levels, 1, probability, least)


def fine_plan(ball: Ball, epsilon: float, delta: float, least: int, share: float = 1 / 32) -> BinomialPlan:
    """As the tight `plan`, but with so many levels that rounding is at most ``share`` of the noise's variance.

    Levels and bits both grow: for fewer people than coordinates the same, for many a few times more messages.

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    standard_deviation = gaussian_standard_deviation(epsilon, delta)
    # Rounding is 1 / bits of the noise, both as bounds: a level's square over 4, each person, and for each bit.
    levels = math.ceil(math.sqrt(least / (4 * share * ball.coordinates)) / standard_deviation)
    levels = min(_LEVELS_MAX, max(4, levels))
    bits = shuffled_bits_each(epsilon, delta, levels, ball.coordinates, least)
    return BinomialPlan(ball, levels, bits, 0.5, least)


def _fitting(epsilon: float, delta: float, coordinates: int, least: int) -> tuple[int, int]:
    """Levels, and the fair bits that hide them: the fewest of which a whole number a person is at most 3 % more.

    Bits grow with the square of levels, about 4 levels^2 coordinates deviation^2 of them for normal noise of that
    deviation at sensitivity 1; only levels that may fit by this are tried.
    """
    standard_deviation = gaussian_standard_deviation(epsilon, delta)
    fewest = min(_LEVELS_MAX, max(4, math.ceil(math.sqrt(least / coordinates) / standard_deviation)))
    found: dict[float, tuple[int, int]] = {}
    for levels in range(fewest, min(_LEVELS_MAX, 2 * fewest + 4) + 1):
        expected = 4 * levels**2 * coordinates * standard_deviation**2 / least
        if levels > fewest and math.ceil(expected) > _WASTE * expected:
            continue
        trials = shuffled_bits_trials(epsilon, delta, levels, coordinates)
        waste = math.ceil(trials / least) * least / trials
        found[waste] = levels, trials
        if waste <= _WASTE:
            break
    return found[min(found)]


def people_of(total: VectorTotal, messages: int) -> int:
    """How many people sent a total's messages.

    Raises
    ------
    BatchRefused
        If somebody's are not all there: the sum would miss some of their noise.
    """
    people, rest = divmod(total.reports, messages)
    if rest:
        raise BatchRefused(f"not a whole number of people's {messages} messages", remedy="ask the shuffler for them")
    return people


@dataclass(frozen=True)
class BitVectors:
    """Integers sent as bits: everybody sends levels + bits of them for each coordinate.

    Notes
    -----
    Privacy cost: that of the plan's binomial noise for the shuffled batch; nothing if the shuffler colludes, beyond the
    person's own Bin(bits, chance).
    """

    plan: BinomialPlan

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return self.plan.ball.coordinates * (self.plan.levels + self.plan.bits)

    @property
    def report_size(self) -> int:
        """Bytes of one message."""
        return BIT.itemsize

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.void]:
        """Messages of n people, shape (n, messages), dtype `BIT`."""
        integers = self.plan.integers(contributions.values, noise)
        length = self.plan.levels + self.plan.bits
        messages = np.empty((*integers.shape, length), dtype=BIT)
        messages["coordinate"] = np.arange(integers.shape[1])[None, :, None]
        messages["bit"] = np.arange(length)[None, None, :] < integers[:, :, None]
        return messages.reshape(len(integers), -1)

    def parse(self, rows: bytes) -> NDArray[np.void]:
        """Messages from their concatenated bytes, in any order.

        Raises
        ------
        OutOfRange
            If the bytes are not whole messages, or name no coordinate or bit.
        """
        messages = whole(rows, BIT)
        if np.any((messages["coordinate"] >= self.plan.ball.coordinates) | (messages["bit"] > 1)):
            raise OutOfRange("not a coordinate or not a bit", remedy="send what the client library makes")
        return messages

    def empty(self) -> VectorTotal:
        """The total of no messages; ``reports`` counts messages."""
        return VectorTotal(0, np.zeros(self.plan.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, messages: NDArray[np.void]) -> VectorTotal:
        """``total`` with messages, of any shape and order, counted in."""
        flat = messages.ravel()
        ones = np.bincount(flat["coordinate"], flat["bit"], self.plan.ball.coordinates)
        return total.merged(VectorTotal(len(flat), ones.astype(np.int64)))

    def merge(self, left: VectorTotal, right: VectorTotal) -> VectorTotal:
        """The total of two disjoint sets of messages."""
        return left.merged(right)

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """What the learner may see.

        Messages that are missing, since somebody's did not open, count as bits of 0: whoever sends them could as well
        have sent those, and one person cannot undo everybody's round.

        Raises
        ------
        BatchRefused
            If fewer people than the promise counts on sent their messages.
        """
        people = math.ceil(total.reports / self.messages)
        self.plan.check(people)
        return self.plan.released(people, total.sums)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release."""
        return self.plan.simulate(contributions, rng)


def whole(rows: bytes, kind: np.dtype[np.void]) -> NDArray[np.void]:
    """Messages of a kind from their concatenated bytes.

    Raises
    ------
    OutOfRange
        If the bytes are not whole messages.
    """
    if len(rows) % kind.itemsize:
        raise OutOfRange("not a whole number of messages", remedy="send what the client library makes")
    return np.frombuffer(rows, dtype=kind)
