"""Sums of products of a value's parts and a covariate's parts, with the noise of the value's parts alone."""

from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from privateer_core.arrays import Ints, Records
from privateer_core.mechanisms.cell_pairs import CellTriples
from privateer_core.mechanisms.mechanism import NO_KEY, UNIT
from privateer_core.mechanisms.named_symbol import PartTotal
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.randomness import RandomSource, round_stochastically

RECORD: Final = np.dtype([("key", "<u4"), ("value", "<u2"), ("number", "<u2")])
_N_PARTS: Final = 3
"""Number of parts of value and covariate each: nine products."""


class CellProducts(CellTriples, frozen=True, tag="cell-products"):
    """Sums per key of b_i(x) b_j(r), with b the parts ((1 - r)^2, 2 r (1 - r), r^2) of values r and of covariates x.

    Over the parts of covariates they add up to the sums of `CellTriples`, each with the noise of three products. They
    also give the covariance of covariates and values, and the variance of covariates.

    Parameters and errors are those of `CellPairs`.

    Notes
    -----
    Privacy cost: that of `CellPairs`, for key, value and covariate together. The nine products are at least 0 and sum
    up to 1 (a partition of unity), also on the grid of squares, where each part of a value is divided again: two shares
    are rounded down, and the third is the remainder. A replacement changes all sums by 2.
    """

    message: ClassVar = RECORD

    @property
    @override
    def noise(self) -> float:
        """Variance of the noise in each part of values, summed over the parts of covariates."""
        return _N_PARTS * super().noise

    @override
    def _records(self, contributions: KeyedValues, source: RandomSource) -> Records:
        """Return records with a covariate beside the value; 1/2 for participants without one."""
        records = super()._records(contributions, source)
        numbers = np.full(len(contributions), 0.5) if contributions.numbers is None else contributions.numbers
        records["number"] = np.where(records["key"] == NO_KEY, 0, round_stochastically(numbers, UNIT, source))
        return records

    @override
    def _split_records(self, records: Records) -> Ints:
        return self.multiply_parts(records["value"].astype(np.int64), records["number"].astype(np.int64))

    def multiply_parts(self, values: Ints, numbers: Ints) -> Ints:
        """Return the products of the parts of numbers and values on the grid, (9, n), grouped by the number's part."""
        value_parts, number_parts = super().split_values(values), super().split_values(numbers)
        # Products of two parts fit 64 bits without a sign.
        wide_parts, unit = value_parts.astype(np.uint64), np.uint64(self.unit)
        low_products, high_products = (
            (wide_parts * number_parts[index].astype(np.uint64) // unit).astype(np.int64) for index in (0, 2)
        )
        # The third part of a number gets the remainder of rounding, so that the value's parts are those of triples.
        return np.concatenate([low_products, value_parts - low_products - high_products, high_products])

    @override
    def split_values(self, values: Ints) -> Ints:
        """Return the products for participants without a covariate, whose covariate is taken as 1/2."""
        return self.multiply_parts(values, np.full(values.shape, UNIT // 2))

    @override
    def empty(self) -> PartTotal:
        return PartTotal.empty(_N_PARTS**2, self.layout.keys, 1)

    @override
    def _build_release(self, total: PartTotal, noise: Ints) -> CellHits:
        products = (total.cells + noise.reshape(total.cells.shape)).reshape(_N_PARTS, _N_PARTS, *total.cells.shape[1:])
        return self._build_hits(total, products.sum(axis=0), products=products / self.unit)

    @override
    def can_answer(self, question: KeyedHits) -> bool:
        return question.expected is not None and question.has_covariate
