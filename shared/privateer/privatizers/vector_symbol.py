"""One symbol for a vector: which of a few public random directions it points to, by randomized response."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import betainc, ndtri

from privateer.contributions import BoundedVectors, VectorSums
from privateer.errors import OutOfRange
from privateer.privacy.noise import NoiseSource
from privateer.privacy.response import RandomizedResponse
from privateer.slots import mix
from privateer.vectors import Ball

Array = NDArray[np.float64]
REPORT: Final = np.dtype([("slot", "<u4"), ("symbol", "<u2")])
DIRECTIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BLOCK: Final = 1 << 20
"""Random numbers made at a time."""


@dataclass(frozen=True)
class SymbolVectorTotal:
    """Sums over reports of the signed directions they name, shape (coordinates + 1,) in fixed point."""

    reports: int
    sums: NDArray[np.int64]


_FIXED: Final = 1 << 30
"""Units of a fixed-point direction: integer sums do not depend on the order of addition."""


@dataclass(frozen=True)
class VectorSymbol:
    """Randomize a vector to a symbol: the public direction, and its sign, that it has the largest product with.

    A slot gives ``directions`` independent uniform directions in one dimension more than the vector has; the vector,
    lifted by that coordinate to length 1, points to one of them with a sign. Randomized response protects the pair. The
    direction named, divided by its mean product with the vector and by the response's gain, is unbiased. With one
    direction and small epsilon this is the best local mechanism there is up to constants (the optimal hemispheres of
    Bhowmick et al. 2018), and every probability on the way is certified, since only a symbol is random in secret.

    Parameters
    ----------
    ball
        What people may tell; its L2 radius counts.
    epsilon
        Pure local privacy of a report.
    directions
        At least 1; the alphabet has twice as many symbols.
    seed
        Public seed of the round, 64 bits.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; slots and directions are independent of the data).
    """

    ball: Ball
    epsilon: float
    directions: int
    seed: int

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, 2 * self.directions)

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return REPORT.itemsize

    @property
    def scale(self) -> float:
        """What a named direction is multiplied by to be unbiased for a person's vector."""
        product = mean_product(self.ball.coordinates + 1, self.directions)
        return self.ball.radius / (product * self.response.gain)

    @property
    def error(self) -> float:
        """Mean squared error of one report, all coordinates together; at least that for short vectors."""
        return self.scale**2 * self.ball.coordinates / (self.ball.coordinates + 1)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.void]:
        """Reports of n people, shape (n,), dtype `REPORT`."""
        reports = np.empty(len(contributions), dtype=REPORT)
        reports["slot"] = contributions.slots
        reports["symbol"] = self.response.randomize(self._truth(contributions), noise)
        return reports

    def _truth(self, contributions: BoundedVectors) -> NDArray[np.int64]:
        unit = self.ball.clip(contributions.values) / self.ball.radius
        lift = np.sqrt(np.maximum(0.0, 1 - np.square(unit).sum(axis=1, keepdims=True)))
        lifted = np.concatenate([unit, lift], axis=1)
        truth = np.empty(len(unit), np.int64)
        step = max(1, _BLOCK // (self.directions * lifted.shape[1]))
        for start in range(0, len(unit), step):
            rows = slice(start, start + step)
            every = np.arange(self.directions)
            named = self._directions(contributions.slots[rows, None], every[None, :])
            products = np.einsum("nhd,nd->nh", named, lifted[rows])
            best = np.abs(products).argmax(axis=1)
            truth[rows] = 2 * best + (np.take_along_axis(products, best[:, None], axis=1)[:, 0] > 0)
        return truth

    def _directions(self, slots: NDArray[np.uint32], indices: NDArray[np.int64]) -> Array:
        """Unit vectors of (slot, index), which broadcast; shape (..., coordinates + 1)."""
        places = np.arange(self.ball.coordinates + 1, dtype=np.uint64)
        words = mix(mix(slots.astype(np.uint64) + np.uint64(self.seed)) ^ mix(indices.astype(np.uint64)))
        bits = mix(words[..., None] + places * np.uint64(0xD1342543DE82EF95)) >> np.uint64(11)
        normal = ndtri((bits.astype(np.float64) + 0.5) * 2.0**-53)
        return np.asarray(normal / np.linalg.norm(normal, axis=-1, keepdims=True))

    def parse(self, rows: bytes) -> NDArray[np.void]:
        """Reports from their concatenated bytes, shape (n,), dtype `REPORT`.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports or a symbol is not in the alphabet.
        """
        if len(rows) % REPORT.itemsize:
            raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
        reports = np.frombuffer(rows, dtype=REPORT)
        if np.any(reports["symbol"] >= self.response.symbols):
            raise OutOfRange("not a symbol of this round's alphabet", remedy="send what the client library makes")
        return reports

    def empty(self) -> SymbolVectorTotal:
        """The total of no reports."""
        return SymbolVectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    def add(self, total: SymbolVectorTotal, reports: NDArray[np.void]) -> SymbolVectorTotal:
        """``total`` with ``reports`` (n,) counted in."""
        sums = np.zeros(self.ball.coordinates, np.int64)
        step = max(1, _BLOCK // (self.ball.coordinates + 1))
        for start in range(0, len(reports), step):
            part = reports[start : start + step]
            symbols = part["symbol"].astype(np.int64)
            named = self._directions(part["slot"], symbols >> 1)[:, :-1]
            fixed = np.rint(named * _FIXED).astype(np.int64)
            sums += ((2 * (symbols & 1) - 1)[:, None] * fixed).sum(axis=0)
        return self.merge(total, SymbolVectorTotal(len(reports), sums))

    def merge(self, left: SymbolVectorTotal, right: SymbolVectorTotal) -> SymbolVectorTotal:
        """The total of two disjoint sets of reports."""
        return SymbolVectorTotal(left.reports + right.reports, left.sums + right.sums)

    def release(self, total: SymbolVectorTotal, _: NoiseSource) -> VectorSums:
        """What the learner may see: a function of randomized reports alone, without further cost or noise."""
        noise = total.reports * self.scale**2 / (self.ball.coordinates + 1)
        return VectorSums(total.reports, total.sums / _FIXED * self.scale, noise)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release: the real path with simulated randomness, which no aggregate law shortens."""
        symbols = self._truth(contributions)
        swapped = rng.random(len(symbols)) >= self.response.truth - self.response.other
        symbols[swapped] = rng.integers(0, 2 * self.directions, int(swapped.sum()))
        reports = np.empty(len(symbols), dtype=REPORT)
        reports["slot"], reports["symbol"] = contributions.slots, symbols
        total = self.add(self.empty(), reports)
        noise = total.reports * self.scale**2 / (self.ball.coordinates + 1)
        return VectorSums(total.reports, total.sums / _FIXED * self.scale, noise)


@lru_cache(maxsize=1024)
def mean_product(dimension: int, directions: int) -> float:
    """Mean of the largest absolute product of a unit vector with independent uniform directions.

    One product's square is Beta(1/2, (dimension - 1) / 2); dimension is at least 2.
    """
    half = (dimension - 1) / 2
    return float(quad(lambda x: 1 - betainc(0.5, half, x * x) ** directions, 0.0, 1.0, limit=400, epsabs=1e-12)[0])


@lru_cache(maxsize=256)
def best_directions(coordinates: int, epsilon: float) -> int:
    """The number of directions with the least error at a local epsilon."""

    def error(directions: int) -> float:
        gain = RandomizedResponse(epsilon, 2 * directions).gain
        return 1 / (mean_product(coordinates + 1, directions) * gain)

    return min(DIRECTIONS, key=error)
