"""Segments of participants: levels of features, bins of numbers, and their combinations."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from privateer_core.answer.shares import CROSSING_SEPARATOR
from privateer_core.arrays import Array, Ints
from privateer_core.spec.categories import MISSING, name_code
from privateer_core.spec.features import Feature, Scaled

EVERYBODY = "everybody"


@dataclass(frozen=True)
class Factor:
    """A feature that defines segments, by its parts."""

    # column, columns: its first column of an encoded context, and their number
    column: int
    columns: int
    codes: Ints  # shape (levels,), int64: the codes of levels, ascending; empty for numbers
    cuts: Array  # shape (parts - 1,), float64: cut points of a number; a cut point belongs to the part above
    flagged: bool = False  # whether the last column flags a missing number, which is the last part

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.codes) or len(self.cuts) + 1 + self.flagged

    def locate(self, contexts: Array) -> Ints:
        """Return the part of each of n participants, (n,)."""
        if len(self.codes):
            bits = contexts[:, self.column : self.column + self.columns].astype(np.int64)
            levels = np.searchsorted(self.codes, bits @ (1 << np.arange(self.columns - 1, -1, -1)))
            return np.asarray(np.minimum(levels, len(self.codes) - 1))
        parts = np.asarray(np.searchsorted(self.cuts, contexts[:, self.column], side="right"))
        return np.where(contexts[:, self.column + 1] > 0, self.parts - 1, parts) if self.flagged else parts

    def corners(self) -> tuple[Array, Array]:
        """Return the lower and upper corners of its parts, along its own columns, (parts, columns) each."""
        if len(self.codes):
            lower = ((self.codes[:, None] >> np.arange(self.columns - 1, -1, -1)) & 1) / 2
            return lower, lower + 0.5
        ends = np.concatenate([[0.0], self.cuts, [1.0]])
        lower, upper = np.zeros((self.parts, self.columns)), np.ones((self.parts, self.columns))
        lower[: len(ends) - 1, 0], upper[: len(ends) - 1, 0] = ends[:-1], ends[1:]
        if self.flagged:
            upper[:-1, -1], lower[-1, -1] = 0.5, 0.5
        return lower, upper


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of participants by their encoded contexts."""

    factors: tuple[Factor, ...]

    @cached_property
    def count(self) -> int:
        """Number of segments."""
        return int(np.prod([factor.parts for factor in self.factors], dtype=np.int64))

    def locate(self, contexts: Array) -> Ints:
        """Return the segment of each of n participants; ``contexts`` (n, d) in [0, 1]."""
        segments = np.zeros(len(contexts), np.int64)
        for factor in self.factors:
            segments = segments * factor.parts + factor.locate(contexts)
        return segments

    def corners(self, n_columns: int) -> tuple[Array, Array]:
        """Return the lower and upper corners of the segments, (segments, n_columns) each."""
        lower, upper = np.zeros((self.count, n_columns)), np.ones((self.count, n_columns))
        indices, stride = np.arange(self.count), self.count
        for factor in self.factors:
            stride //= factor.parts
            columns, parts = slice(factor.column, factor.column + factor.columns), indices // stride % factor.parts
            lower[:, columns], upper[:, columns] = (corner[parts] for corner in factor.corners())
        return lower, upper


def make_factor(feature: Feature, column: int, cuts: tuple[float, ...]) -> Factor:
    """Return the factor of a feature: its levels, or the intervals between ``cuts`` in its own units."""
    block, none = feature.blocks[0], np.zeros(0, np.int64)
    if block.codes:
        return Factor(column, block.columns, np.array(block.codes, np.int64), np.zeros(0))
    assert isinstance(feature, Scaled)
    return Factor(column, feature.columns, none, feature.positions(np.array(cuts)), feature.missing)


def name_parts(name: str, feature: Feature, cuts: tuple[float, ...]) -> list[str]:
    """Return the names of a feature's parts, in order."""
    block = feature.blocks[0]
    if block.codes:
        return [f"{name}={name_code(feature, code, block.columns)}" for code in block.codes]
    ends = [f"{cut:g}" for cut in cuts]
    between = [f"{low}<={name}<{high}" for low, high in pairwise(ends)]
    names = [f"{name}<{ends[0]}", *between, f"{name}>={ends[-1]}"] if ends else [name]
    return [*names, f"{name} {MISSING}"] if feature.missing else names


def cross_names(names: list[list[str]]) -> tuple[str, ...]:
    """Return the names of segments, combined from the names of each feature's parts."""
    return tuple(CROSSING_SEPARATOR.join(parts) for parts in product(*names)) if names else (EVERYBODY,)
