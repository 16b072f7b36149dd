"""The cells of features, in each of which a shape function has one value, and the questions that merge cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.categories import Ordinal
from privateer_core.spec.columns import clipped_columns
from privateer_core.spec.features import Feature

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_COARSER: Final = (2, 4, 8)
"""Numbers of merged cells in which a feature in order is asked about, besides its own cells."""


@dataclass(frozen=True)
class ShapeCells:
    """The cells of one feature, numbered from 0."""

    start: int  # its first column in an encoded context
    bins: int  # equal parts of a number's column; 0 for levels without an order
    codes: tuple[int, ...] = ()  # the codes of levels, whose bits are the columns; empty for a number
    columns: int = 1  # how many columns the code has, or 1
    missing: bool = False  # whether a number may be missing, which is a cell of its own, the last one
    cyclic: bool = False  # whether the first bin comes after the last one

    @property
    def count(self) -> int:
        """How many cells there are."""
        return (self.bins or len(self.codes)) + self.missing

    def merged(self, parts: int) -> Ints:
        """Return the merged cell (count,) of each cell, of so many merged bins; a missing number stays apart."""
        cells = np.arange(self.bins) * parts // self.bins
        return np.append(cells, parts) if self.missing else cells


@dataclass(frozen=True)
class Cells:
    """The cells of all features."""

    features: tuple[ShapeCells, ...]  # those of each feature, in order

    @classmethod
    def of(cls, features: Mapping[str, Feature], bins: int) -> "Cells":
        """Return the cells of a spec's features; numbers have so many bins, and levels in order one each."""
        found, start = [], 0
        for feature in features.values():
            block = feature.blocks[0]
            if block.codes:
                found.append(ShapeCells(start, 0, block.codes, block.columns))
            else:
                own = len(feature.levels) if isinstance(feature, Ordinal) else bins
                found.append(ShapeCells(start, own, missing=feature.missing, cyclic=block.cyclic))
            start += feature.columns
        return cls(tuple(found))

    @cached_property
    def starts(self) -> Ints:
        """The place of each feature's first cell among all, (features + 1,); 0 is the term that everybody has."""
        return np.cumsum([1, *(feature.count for feature in self.features)])

    @property
    def count(self) -> int:
        """How many terms an arm has: one that everybody has, and one of each cell."""
        return int(self.starts[-1])

    def of_feature(self, place: int) -> slice:
        """Return where the terms of a feature's cells are."""
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def locate(self, contexts: Array) -> Ints:
        """Return the terms (n, features) of people with these encoded contexts."""
        clipped, found = clipped_columns(contexts), np.empty((len(contexts), len(self.features)), np.int64)
        numbers, levels = self._numbers, self._levels
        if len(numbers.places):
            cells = (clipped[:, numbers.columns] * numbers.bins).astype(np.int64)
            cells = np.minimum(cells, numbers.bins - 1)
            if numbers.gaps.any():
                gone = clipped[:, numbers.columns + numbers.gaps] > 1 / 2
                cells = np.where(gone & numbers.gaps, numbers.bins, cells)
            found[:, numbers.places] = cells + numbers.starts
        if len(levels.places):
            codes = np.rint(clipped[:, levels.columns]) @ levels.powers
            found[:, levels.places] = levels.terms[codes.astype(np.int64) + levels.starts]
        return found

    @cached_property
    def _numbers(self) -> "_Numbers":
        return _Numbers.of(self)

    @cached_property
    def _levels(self) -> "_CodedLevels":
        return _CodedLevels.of(self)


@dataclass(frozen=True)
class _Numbers:
    """The features that have bins, all at once: one person's cells must not take a loop over features."""

    # places, columns, bins: shape (numbers,): of each its place among the features, its column, and its bins
    places: Ints
    columns: Ints
    bins: Ints
    gaps: NDArray[np.bool_]  # shape (numbers,): whether the column after it says that it is missing
    starts: Ints  # shape (numbers,): the term of its first bin

    @classmethod
    def of(cls, cells: Cells) -> "_Numbers":
        """Return those of all features."""
        own = [(place, one) for place, one in enumerate(cells.features) if one.bins]
        rows = [(place, one.start, one.bins, one.missing, int(cells.starts[place])) for place, one in own]
        places, columns, bins, gaps, starts = np.array(rows, np.int64).reshape(-1, 5).T
        return cls(places, columns, bins, gaps > 0, starts)


@dataclass(frozen=True)
class _CodedLevels:
    """The features that have codes, all at once."""

    places: Ints  # shape (coded,): the place of each among the features
    columns: Ints  # shape (bits,): the columns of all their codes
    powers: Array  # shape (bits, coded): what each bit counts for in each code
    starts: Ints  # shape (coded,): where the codes of each begin in ``terms``
    # the term of each code that there could be, feature by feature; one that no level has is the next one's
    terms: Ints

    @classmethod
    def of(cls, cells: Cells) -> "_CodedLevels":
        """Return those of all features."""
        own = [(place, one) for place, one in enumerate(cells.features) if one.codes]
        widths = np.array([one.columns for _, one in own], np.int64)
        powers, tables, end = np.zeros((int(widths.sum()), len(own))), [np.zeros(0, np.int64)], 0
        for at, (place, one) in enumerate(own):
            powers[end : end + one.columns, at] = 1 << np.arange(one.columns - 1, -1, -1)
            end += one.columns
            found = np.searchsorted(np.array(one.codes), np.arange(1 << one.columns))
            tables.append(int(cells.starts[place]) + np.minimum(found, len(one.codes) - 1))
        columns = [np.arange(one.start, one.start + one.columns) for _, one in own]
        return cls(
            np.array([place for place, _ in own], np.int64),
            np.concatenate([np.zeros(0, np.int64), *columns]),
            powers,
            np.cumsum(1 << widths) - (1 << widths),
            np.concatenate(tables),
        )


@dataclass(frozen=True)
class Questions:
    """The questions about a person's place in a table: the first is about nothing, each other about one feature.

    A question parts the cells of its feature: each is a part of its own, or neighbours are merged.
    """

    cells: Cells  # the cells of all features
    merges: bool  # whether features in order are asked about in merged cells, too

    @cached_property
    def parts(self) -> tuple[tuple[int, Ints], ...]:
        """For each question its feature, -1 for none, and the part (cells of the feature,) of every cell."""
        found: list[tuple[int, Ints]] = [(-1, np.zeros(1, np.int64))]
        for place, feature in enumerate(self.cells.features):
            found.append((place, np.arange(feature.count)))
            if self.merges:
                found += [(place, feature.merged(parts)) for parts in _COARSER if parts < feature.bins]
        return tuple(found)

    @property
    def count(self) -> int:
        """How many questions there are."""
        return len(self.parts)

    @cached_property
    def sizes(self) -> Ints:
        """How many parts each question has, (questions,)."""
        return np.array([int(parts.max()) + 1 for _, parts in self.parts])

    @cached_property
    def starts(self) -> Ints:
        """The place of each question's first part among those of all, (questions + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])

    @cached_property
    def of_part(self) -> Ints:
        """The question of each of all parts, (parts,)."""
        return np.repeat(np.arange(self.count), self.sizes)

    @cached_property
    def features_of_parts(self) -> Ints:
        """The feature of each of all parts, (parts,), -1 for none."""
        return np.array([place for place, _ in self.parts])[self.of_part]

    @cached_property
    def matrix(self) -> Array:
        """Which terms each part has, (parts, terms): 1 or 0; the part of nothing has the term of everybody."""
        found = np.zeros((int(self.starts[-1]), self.cells.count))
        found[0, 0] = 1.0
        for (place, parts), start in zip(self.parts[1:], self.starts[1:], strict=False):
            found[start + parts, self.cells.starts[place] + np.arange(len(parts))] = 1.0
        return found

    @cached_property
    def table(self) -> Ints:
        """The part, within its question, of every term, (questions, terms); 0 where it has none."""
        found = np.zeros((self.count, self.cells.count), np.int64)
        for row, (place, parts) in zip(found[1:], self.parts[1:], strict=True):
            row[self.cells.of_feature(place)] = parts
        return found

    @cached_property
    def features(self) -> Ints:
        """The feature of each question, (questions,); that of the first is 0, whose parts are all 0 there."""
        return np.maximum(0, [place for place, _ in self.parts])

    def answers(self, terms: Ints) -> Ints:
        """Return the parts (n, questions), within each question, of people with these terms (n, features)."""
        return self.table[np.arange(self.count), terms[:, self.features]]
