"""Shuffled sums of vectors, split and mixed: each person's noisy integers as random shares modulo 2^32."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import BoundedVectors, VectorSums
from privateer.errors import BatchRefused, OutOfRange, SpecError
from privateer.mechanisms.vector_bits import BinomialPlan, people_of, plan, whole
from privateer.sampling.entropy import NoiseSource
from privateer.vectors import Ball, VectorTotal

SHARE: Final = np.dtype([("coordinate", "<u2"), ("share", "<u4")])
_SHARE_BITS: Final = 32
_SHARES_COST: Final = 0.01
"""Share of delta that splitting into shares may take."""


def shares_needed(epsilon: float, delta: float, coordinates: int, least: int) -> int:
    """Shares of each integer after whose shuffling next to nothing but the total can be told: 1 % of delta in all.

    Notes
    -----
    Split and mix (Ishai et al. 2006) as analysed by Balle, Bell, Gascon and Nissim (CCS 2020): for n >= 19 people and
    m >= 3 shares in a group of q elements, sigma = ((m - 1)(log2 n - log2 e) - log2 q) / 2 bounds the mean of the
    statistical distance by 2^-sigma, over two random inputs of one total. A share more makes of it a bound of
    2 * 2^-sigma for any two inputs x and y of one total: given the shares r that are added, the rest splits x - r and
    y - r, each uniform, and both are compared with a third input, drawn at random with their total. Without that share
    the bound fails: exact enumeration in tests/unit/privateer/test_shares.py.

    Raises
    ------
    SpecError
        If there are fewer than 19 people.
    """
    if least < 19:
        raise SpecError(f"{least} honest people, splitting needs 19", field="min_batch", remedy="raise it")
    sigma = 1 + math.log2(coordinates * (1 + math.exp(epsilon)) / (_SHARES_COST * delta))
    return max(3, math.ceil((2 * sigma + _SHARE_BITS) / (math.log2(least) - math.log2(math.e)) + 1)) + 1


def share_vectors(ball: Ball, epsilon: float, delta: float, least: int) -> "ShareVectors":
    """Shares for an (epsilon, delta)-private shuffled sum: 99 % of delta is for the noise, the rest for splitting.

    Raises
    ------
    SpecError
        If the promise is out of the certified range, or there are too few or too many people.
    """
    made = plan(ball, epsilon, (1 - _SHARES_COST) * delta, least)
    return ShareVectors(made, shares_needed(epsilon, delta, ball.coordinates, least))


@dataclass(frozen=True)
class ShareVectors:
    """Integers sent as random shares modulo 2^32, whose sum is the integer.

    Parameters
    ----------
    plan
        As for bits: the same noise.
    shares
        Of every integer; `shares_needed` says how many.

    Notes
    -----
    Privacy cost: as `BitVectors`, and what splitting adds to delta; `share_vectors` calibrates both together.

    Raises
    ------
    SpecError
        If fewer than 2 shares are asked for, or even the least number of people may exceed the modulus.
    """

    plan: BinomialPlan
    shares: int

    def __post_init__(self) -> None:
        if self.shares < 2:
            raise SpecError("must be at least 2", field="shares", remedy="use what the calibration gives")
        if self.plan.least > self.people_most:
            raise SpecError("the sum may exceed 32 bits", field="privacy.epsilon", remedy="raise it, or send bits")

    @property
    def people_most(self) -> int:
        """People whose sum cannot exceed the modulus."""
        return ((1 << _SHARE_BITS) - 1) // (self.plan.levels + self.plan.bits)

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return self.plan.ball.coordinates * self.shares

    @property
    def report_size(self) -> int:
        """Bytes of one message."""
        return SHARE.itemsize

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.void]:
        """Messages of n people, shape (n, messages), dtype `SHARE`."""
        integers = self.plan.integers(contributions.values, noise)
        size = integers.size * (self.shares - 1)
        random = (noise.words(size) >> np.uint64(32)).astype(np.uint32).reshape(*integers.shape, self.shares - 1)
        messages = np.empty((*integers.shape, self.shares), dtype=SHARE)
        messages["coordinate"] = np.arange(integers.shape[1])[None, :, None]
        messages["share"][..., :-1] = random
        messages["share"][..., -1] = integers.astype(np.uint32) - random.sum(axis=-1, dtype=np.uint32)
        return messages.reshape(len(integers), -1)

    def parse(self, rows: bytes) -> NDArray[np.void]:
        """Messages from their concatenated bytes, in any order.

        Raises
        ------
        OutOfRange
            If the bytes are not whole messages, or name no coordinate.
        """
        messages = whole(rows, SHARE)
        if np.any(messages["coordinate"] >= self.plan.ball.coordinates):
            raise OutOfRange("not a coordinate", remedy="send what the client library makes")
        return messages

    def empty(self) -> VectorTotal:
        """The total of no messages; ``reports`` counts messages, sums are modulo 2^32."""
        return VectorTotal(0, np.zeros(self.plan.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, messages: NDArray[np.void]) -> VectorTotal:
        """``total`` with messages, of any shape and order, counted in."""
        flat = messages.ravel()
        sums = np.zeros(self.plan.ball.coordinates, np.uint32)
        np.add.at(sums, flat["coordinate"], flat["share"])
        return self.merge(total, VectorTotal(len(flat), sums.astype(np.int64)))

    def merge(self, left: VectorTotal, right: VectorTotal) -> VectorTotal:
        """The total of two disjoint sets of messages."""
        both = left.merged(right)
        return VectorTotal(both.reports, both.sums % (1 << _SHARE_BITS))

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """What the learner may see.

        Raises
        ------
        BatchRefused
            If fewer people than the promise counts on sent their messages, or more than the modulus has room for.
        """
        people = people_of(total, self.messages)
        self._check(people)
        return self.plan.released(people, total.sums)

    def _check(self, people: int) -> None:
        self.plan.check(people)
        if people > self.people_most:
            raise BatchRefused(
                f"{people} people, whose sums fit for {self.people_most}",
                field="min_batch",
                remedy="make rounds smaller",
            )

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release."""
        self._check(len(contributions))
        return self.plan.simulate(contributions, rng)
