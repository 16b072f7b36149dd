"""Cells of features, on each of which a shape function is constant, and questions that merge cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from privateer_core.arrays import Array, Bools, Ints
from privateer_core.spec.categories import Ordinal
from privateer_core.spec.columns import clipped_columns
from privateer_core.spec.features import Feature

_MERGED_COUNTS: Final = (2, 4, 8)
"""Numbers of merged bins in which reports are about an ordered feature, besides its own bins."""


@dataclass(frozen=True)
class ShapeCells:
    """The cells of a feature, numbered from 0."""

    start: int  # its first column in an encoded context
    bins: int  # equal parts of a number's column; 0 for levels without an order
    codes: tuple[int, ...] = ()  # the codes of levels, whose bits are the columns; empty for a number
    columns: int = 1  # number of columns of the code, or 1
    missing: bool = False  # whether a number may be missing, which is the last cell
    cyclic: bool = False  # whether the first bin comes after the last one

    @property
    def count(self) -> int:
        """Number of cells."""
        return (self.bins or len(self.codes)) + self.missing

    def merge_bins(self, n_bins: int) -> Ints:
        """Return the merged cell (count,) of each cell, with ``n_bins`` merged bins; a missing number is not merged."""
        cells = np.arange(self.bins) * n_bins // self.bins
        return np.append(cells, n_bins) if self.missing else cells


@dataclass(frozen=True)
class Cells:
    """The cells of all features."""

    features: tuple[ShapeCells, ...]  # the cells of each feature, in order

    @classmethod
    def from_features(cls, features: Mapping[str, Feature], n_bins: int) -> "Cells":
        """Return the cells of a spec's features: ``n_bins`` per number, and 1 per ordered level."""
        shape_cells, start = [], 0
        for feature in features.values():
            block = feature.blocks[0]
            if block.codes:
                shape_cells.append(ShapeCells(start, 0, block.codes, block.columns))
            else:
                n_cells = len(feature.levels) if isinstance(feature, Ordinal) else n_bins
                shape_cells.append(ShapeCells(start, n_cells, missing=feature.missing, cyclic=block.cyclic))
            start += feature.columns
        return cls(tuple(shape_cells))

    @cached_property
    def starts(self) -> Ints:
        """The term of each feature's first cell, (features + 1,); term 0 is the intercept."""
        return np.cumsum([1, *(feature.count for feature in self.features)])

    @property
    def count(self) -> int:
        """Number of terms of an arm: the intercept, and 1 per cell."""
        return int(self.starts[-1])

    def feature_slice(self, index: int) -> slice:
        """Return the slice of the terms of a feature's cells."""
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def locate(self, contexts: Array) -> Ints:
        """Return the terms (n, features) of participants with these encoded contexts."""
        clipped, terms = clipped_columns(contexts), np.empty((len(contexts), len(self.features)), np.int64)
        numbers, levels = self._encoded_features
        if len(numbers.indices):
            cells = (clipped[:, numbers.columns] * numbers.bins).astype(np.int64)
            cells = np.minimum(cells, numbers.bins - 1)
            if numbers.may_be_missing.any():
                is_missing = clipped[:, numbers.columns + numbers.may_be_missing] > 1 / 2
                cells = np.where(is_missing & numbers.may_be_missing, numbers.bins, cells)
            terms[:, numbers.indices] = cells + numbers.starts
        if len(levels.indices):
            codes = np.rint(clipped[:, levels.columns]) @ levels.powers
            terms[:, levels.indices] = levels.terms[codes.astype(np.int64) + levels.starts]
        return terms

    @cached_property
    def _encoded_features(self) -> "tuple[_NumericFeatures, _CodedFeatures]":
        return _NumericFeatures.from_cells(self), _CodedFeatures.from_cells(self)


@dataclass(frozen=True)
class _NumericFeatures:
    """Arrays (numbers,) of the features with bins, so that locating a participant takes no loop over features."""

    indices: Ints  # index of each among the features
    columns: Ints
    bins: Ints
    may_be_missing: Bools  # whether the next column flags a missing number
    starts: Ints  # the term of its first bin

    @classmethod
    def from_cells(cls, cells: Cells) -> "_NumericFeatures":
        """Return the arrays of all features of this kind."""
        shapes = zip(cells.features, cells.starts.tolist(), strict=False)
        numbers = [(index, shape, term) for index, (shape, term) in enumerate(shapes) if shape.bins]
        rows = [(index, shape.start, shape.bins, shape.missing, term) for index, shape, term in numbers]
        indices, columns, bins, may_be_missing, starts = np.array(rows, np.int64).reshape(-1, 5).T
        return cls(indices, columns, bins, may_be_missing > 0, starts)


@dataclass(frozen=True)
class _CodedFeatures:
    """Arrays of the features with codes."""

    indices: Ints  # shape (coded,): the index of each among the features
    columns: Ints  # shape (bits,): the columns of all their codes
    powers: Array  # shape (bits, coded): value of each bit in each code
    starts: Ints  # shape (coded,): start of each feature's codes in ``terms``
    # the term of each possible code, feature by feature; a code without a level has the term of the next code
    terms: Ints

    @classmethod
    def from_cells(cls, cells: Cells) -> "_CodedFeatures":
        """Return the arrays of all features of this kind."""
        coded = [(index, feature) for index, feature in enumerate(cells.features) if feature.codes]
        widths = np.array([feature.columns for _, feature in coded], np.int64)
        powers, tables, end = np.zeros((int(widths.sum()), len(coded))), [np.zeros(0, np.int64)], 0
        for position, (index, feature) in enumerate(coded):
            powers[end : end + feature.columns, position] = 1 << np.arange(feature.columns - 1, -1, -1)
            end += feature.columns
            levels = np.searchsorted(np.array(feature.codes), np.arange(1 << feature.columns))
            tables.append(int(cells.starts[index]) + np.minimum(levels, len(feature.codes) - 1))
        columns = [np.arange(feature.start, feature.start + feature.columns) for _, feature in coded]
        return cls(
            np.array([index for index, _ in coded], np.int64),
            np.concatenate([np.zeros(0, np.int64), *columns]),
            powers,
            np.cumsum(1 << widths) - (1 << widths),
            np.concatenate(tables),
        )


@dataclass(frozen=True)
class Questions:
    """The questions about a participant's cells: the first is about the arm alone, each further about a feature.

    A question partitions the cells of its feature: each part is one cell, or merges neighbours.
    """

    cells: Cells  # the cells of all features
    merges: bool  # whether there are questions about merged cells of ordered features, too

    @cached_property
    def partitions(self) -> tuple[tuple[int, Ints], ...]:
        """The feature of each question, or -1, and the part (cells of the feature,) of every cell."""
        partitions: list[tuple[int, Ints]] = [(-1, np.zeros(1, np.int64))]
        for index, feature in enumerate(self.cells.features):
            partitions.append((index, np.arange(feature.count)))
            if self.merges:
                partitions += [(index, feature.merge_bins(parts)) for parts in _MERGED_COUNTS if parts < feature.bins]
        return tuple(partitions)

    @property
    def count(self) -> int:
        """Number of questions."""
        return len(self.partitions)

    @cached_property
    def sizes(self) -> Ints:
        """Number of parts of each question, (questions,)."""
        return np.array([int(parts.max()) + 1 for _, parts in self.partitions])

    @cached_property
    def starts(self) -> Ints:
        """The index of each question's first part among all parts, (questions + 1,)."""
        return np.append(0, np.cumsum(self.sizes))

    @cached_property
    def question_of_part(self) -> Ints:
        """The question of every part, (parts,)."""
        return np.repeat(np.arange(self.count), self.sizes)

    @cached_property
    def feature_of_part(self) -> Ints:
        """The feature of every part, (parts,), or -1."""
        return np.array([index for index, _ in self.partitions])[self.question_of_part]

    @cached_property
    def incidence_matrix(self) -> Array:
        """The incidence matrix of parts and terms, (parts, terms), of 1 and 0; the first part has the intercept."""
        matrix = np.zeros((int(self.starts[-1]), self.cells.count))
        matrix[0, 0] = 1.0
        for (index, parts), start in zip(self.partitions[1:], self.starts[1:], strict=False):
            matrix[start + parts, self.cells.starts[index] + np.arange(len(parts))] = 1.0
        return matrix

    @cached_property
    def table(self) -> Ints:
        """The part, within its question, of every term, (questions, terms); 0 for terms of other features."""
        table = np.zeros((self.count, self.cells.count), np.int64)
        for row, (index, parts) in zip(table[1:], self.partitions[1:], strict=True):
            row[self.cells.feature_slice(index)] = parts
        return table

    @cached_property
    def features(self) -> Ints:
        """The feature of each question, (questions,); the first question has feature 0, and part 0 of it."""
        return np.maximum(0, [index for index, _ in self.partitions])

    def locate(self, terms: Ints) -> Ints:
        """Return the parts (n, questions), within each question, of participants with these terms (n, features)."""
        return self.table[np.arange(self.count), terms[:, self.features]]
