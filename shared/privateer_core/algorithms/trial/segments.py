"""Segments of people: levels of features, bins of numbers, and what they make together."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.shares import CROSSED
from privateer_core.spec.categories import Boolean
from privateer_core.spec.features import Feature, Scaled

Array = NDArray[np.float64]
EVERYBODY = "everybody"


@dataclass(frozen=True)
class Factor:
    """A feature that parts people."""

    # column, columns: its first column of an encoded context, and how many it has
    column: int
    columns: int
    codes: NDArray[np.int64]  # shape (levels,), int64: the codes of levels, rising; empty for numbers
    cuts: Array  # shape (parts - 1,), float64: places where a number is cut; a cut belongs to the part above
    # whether the last column says that the number is missing, which is a part of its own, the last
    flagged: bool = False

    @property
    def parts(self) -> int:
        """How many parts it makes."""
        return len(self.codes) or len(self.cuts) + 1 + self.flagged

    def locate(self, contexts: Array) -> NDArray[np.int64]:
        """Return the part of each of n people, (n,)."""
        if len(self.codes):
            bits = contexts[:, self.column : self.column + self.columns].astype(np.int64)
            found = np.searchsorted(self.codes, bits @ (1 << np.arange(self.columns - 1, -1, -1)))
            return np.asarray(np.minimum(found, len(self.codes) - 1))
        places = np.searchsorted(self.cuts, contexts[:, self.column], side="right")
        if not self.flagged:
            return np.asarray(places)
        return np.where(contexts[:, self.column + 1] > 0, self.parts - 1, places)

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
    """A segmentation of people by their encoded contexts."""

    factors: tuple[Factor, ...]

    @cached_property
    def count(self) -> int:
        """How many segments there are."""
        return int(np.prod([factor.parts for factor in self.factors], dtype=np.int64))

    def locate(self, contexts: Array) -> NDArray[np.int64]:
        """Return the segment of each of n people; ``contexts`` (n, d) in [0, 1]."""
        found = np.zeros(len(contexts), np.int64)
        for factor in self.factors:
            found = found * factor.parts + factor.locate(contexts)
        return found

    def corners(self, columns: int) -> tuple[Array, Array]:
        """Return the lower and upper corners of the segments, (segments, columns) each, of so many columns in all."""
        lower, upper = np.zeros((self.count, columns)), np.ones((self.count, columns))
        places, left = np.arange(self.count), self.count
        for factor in self.factors:
            left //= factor.parts
            own, parts = slice(factor.column, factor.column + factor.columns), places // left % factor.parts
            lower[:, own], upper[:, own] = (corner[parts] for corner in factor.corners())
        return lower, upper


def factor_of(feature: Feature, column: int, cuts: tuple[float, ...]) -> Factor:
    """Return the parts that a feature makes: its levels, or what is between ``cuts`` in its own units."""
    block, none = feature.blocks[0], np.zeros(0, np.int64)
    if block.codes:
        return Factor(column, block.columns, np.array(block.codes, np.int64), np.zeros(0))
    assert isinstance(feature, Scaled)
    return Factor(column, feature.columns, none, feature.places(np.array(cuts)), feature.missing)


def names_of(name: str, feature: Feature, cuts: tuple[float, ...]) -> list[str]:
    """Name the parts that a feature makes, in order."""
    block = feature.blocks[0]
    if block.codes:
        return [f"{name}={_level(feature, code, block.columns)}" for code in block.codes]
    ends = [f"{cut:g}" for cut in cuts]
    between = [f"{low}<={name}<{high}" for low, high in pairwise(ends)]
    named = [f"{name}<{ends[0]}", *between, f"{name}>={ends[-1]}"] if ends else [name]
    return [*named, f"{name} missing"] if feature.missing else named


def _level(feature: Feature, code: int, columns: int) -> str:
    bits = ((code >> np.arange(columns - 1, -1, -1)) & 1).astype(np.float64)
    words = {None: "missing", True: "yes", False: "no"} if isinstance(feature, Boolean) else {None: "missing"}
    return " or ".join(words.get(one, str(one)) for one in feature.shown(bits / 2, (bits + 1) / 2))


def crossed(names: list[list[str]]) -> tuple[str, ...]:
    """Name what several features make together."""
    return tuple(CROSSED.join(parts) for parts in product(*names)) if names else (EVERYBODY,)
