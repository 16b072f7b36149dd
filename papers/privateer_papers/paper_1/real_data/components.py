"""Contexts that are principal components of many columns of a file, as those of paper 1's Section 4.2."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_lab.tables.data_column import Categories, Column, Numbers

_BLOCK_NUMBERS: Final = 1 << 20
"""Numbers in a block of rows: one-hot, all rows at once would take many times the memory of the file."""
_SCALING_QUANTILES: Final = (0.005, 0.995)


@dataclass(frozen=True)
class Projection:
    """The columns of a file whose leading principal components are features."""

    numbers: Sequence[str]  # standardized to mean 0 and variance 1
    categories: Sequence[str]  # one-hot: a column of 0 and 1 for every value that occurs


class Components:
    """The leading principal components of columns, whose directions come from the rows themselves."""

    def __init__(self, projection: Projection, n_components: int) -> None:
        self._numbers = [Numbers(name) for name in projection.numbers]
        self._categories = [Categories(name) for name in projection.categories]
        self._n_components = n_components

    @property
    def columns(self) -> list[Column]:
        """The columns to fill."""
        return [*self._numbers, *self._categories]

    @property
    def width(self) -> int:
        """The number of numeric columns plus that of all values of categories."""
        return len(self._numbers) + sum(len(column.names) for column in self._categories)

    def contexts(self) -> Array:
        """Return components, shape (n, d), scaled so that [0, 1] holds 99 in 100 rows; devices clip the others."""
        for column in self.columns:
            if column.values.min() == column.values.max():
                detail = f"column {column.name!r} is constant: every row has the same value"
                raise SpecError(detail, field="projection", remedy="give the whole file")
        n_rows = len(self.columns[0].values)
        mean = np.sum([block.sum(axis=0) for block in self._iterate_blocks()], axis=0) / n_rows
        scatter = np.sum([(block - mean).T @ (block - mean) for block in self._iterate_blocks()], axis=0)
        leading = np.linalg.eigh(scatter / n_rows)[1][:, ::-1][:, : self._n_components]
        # the largest entry of each is positive
        directions = leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(self._n_components)])
        scores = np.concatenate([(block - mean) @ directions for block in self._iterate_blocks()])
        low, high = np.quantile(scores, _SCALING_QUANTILES, axis=0)
        low, high = np.where(high > low, (low, high), (scores.min(axis=0), scores.max(axis=0)))
        return np.asarray((scores - low) / (high - low))

    def _iterate_blocks(self) -> Iterator[Array]:
        """Yield standardized and one-hot columns in blocks of rows."""
        units = [(column.values.mean(), column.values.std()) for column in self._numbers]
        n_rows = max(1, _BLOCK_NUMBERS // self.width)
        for start in range(0, len(self.columns[0].values), n_rows):
            rows = slice(start, start + n_rows)
            scaled = [(column.values[rows, None] - m) / s for column, (m, s) in zip(self._numbers, units, strict=True)]
            one_hot = [column.values[rows, None] == np.arange(len(column.names)) for column in self._categories]
            yield np.concatenate([*scaled, *one_hot], axis=1, dtype=np.float64)
