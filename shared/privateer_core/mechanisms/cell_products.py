"""Sums of products of a value's parts and those of a number beside it, with the noise of the value's parts alone."""

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.mechanisms.cell_pairs import CellTriples
from privateer_core.mechanisms.mechanism import NO_KEY, UNIT
from privateer_core.mechanisms.named_symbol import PartTotal
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import rounded

RECORD: Final = np.dtype([("key", "<u4"), ("value", "<u2"), ("number", "<u2")])
_PARTS: Final = 3
"""Parts of each: nine products."""


class CellProducts(CellTriples, frozen=True, tag="cell-products"):
    """Sums per key of b_i(x) b_j(r), with b the parts ((1 - r)^2, 2 r (1 - r), r^2) of values r and of numbers x.

    Over the parts of numbers they add up to the sums of `CellTriples`, of which each then has the noise of three. They
    also tell the covariance of numbers and values, and the variance of numbers.

    Parameters and errors are those of `CellPairs`.

    Notes
    -----
    Privacy cost: that of `CellPairs`, for key, value and number together. The nine products are at least 0 and sum up
    to 1 (a partition of unity), also on the grid of squares, where each part of a value is parted anew: two are rounded
    down, and the third is the rest. A replacement changes all sums by 2.
    """

    message: ClassVar = RECORD

    @property
    @override
    def noise(self) -> float:
        """Variance of what is added to each part of values, summed over those of numbers."""
        return _PARTS * super().noise

    @override
    def _records(self, contributions: KeyedValues, source: "NoiseSource | np.random.Generator") -> NDArray[np.void]:
        made = super()._records(contributions, source)
        numbers = np.full(len(contributions), 0.5) if contributions.numbers is None else contributions.numbers
        made["number"] = np.where(made["key"] == NO_KEY, 0, rounded(numbers, UNIT, source))
        return made

    @override
    def _parts_of(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        return self.products(records["value"].astype(np.int64), records["number"].astype(np.int64))

    def products(self, values: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the products of parts of values and numbers on the grid, (9, n), those of a number's part together."""
        of_value, of_number = super().parted(values), super().parted(numbers)
        # Products of two parts fit 64 bits without a sign.
        whole, unit = of_value.astype(np.uint64), np.uint64(self.unit)
        none, all_ = ((whole * of_number[at].astype(np.uint64) // unit).astype(np.int64) for at in (0, 2))
        # What rounding takes from two parts of a number is in the third, so that those of a value are as of triples.
        return np.concatenate([none, of_value - none - all_, all_])

    @override
    def parted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the products for people of whom no number is known: it is taken to be in the middle."""
        return self.products(values, np.full(values.shape, UNIT // 2))

    @override
    def empty(self) -> PartTotal:
        return PartTotal.empty(_PARTS**2, self.layout.keys, 1)

    @override
    def _released(self, total: PartTotal, drawn: NDArray[np.int64]) -> CellHits:
        products = (total.cells + drawn.reshape(total.cells.shape)).reshape(_PARTS, _PARTS, *total.cells.shape[1:])
        return self._hits(total, products.sum(axis=0), products=products / self.unit)

    @override
    def fits(self, question: KeyedHits) -> bool:
        return question.expected is not None and question.beside
