"""The actions of an experiment: vectors that everybody knows, given or drawn."""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import mix, normals_of
from privateer_core.spec.sections import Finite, Section

Array = NDArray[np.float64]
COUNT_MAX: Final = 20_000
DIMENSION_MAX: Final = 128
_BALL: Final = 1 + 1e-9
"""Lengths may exceed 1 by what writing them down in digits loses."""
Vector = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=DIMENSION_MAX)]


class Actions(Section):
    """Either ``vectors``, or ``count`` of them drawn uniformly from the unit sphere of ``dimension`` by ``seed``."""

    # all of one length of list, each within the unit ball, none 0 and no two equal; they need not span the space
    vectors: tuple[Vector, ...] | None = Field(default=None, max_length=COUNT_MAX)
    # count, dimension, seed: for simulation: the same everywhere for the same seed
    count: int | None = Field(default=None, ge=1, le=COUNT_MAX)
    dimension: int | None = Field(default=None, ge=1, le=DIMENSION_MAX)
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _usable(self) -> "Actions":
        drawn = self.count is not None and self.dimension is not None
        if drawn == (self.vectors is not None) or (self.count is None) != (self.dimension is None):
            raise _refused("one of two forms is needed", "give vectors, or count and dimension to draw them")
        if len({len(vector) for vector in self.vectors or ()}) > 1:
            raise _refused("all must have the same number of coordinates", "fill up the shorter ones")
        if self.shape[0] == 1:
            raise _refused("a single action leaves nothing to learn", "give two at least")
        self._check_geometry(self.matrix)
        return self

    def _check_geometry(self, matrix: Array) -> None:
        """Rows are named from 1, as lines of a file are; actions are public."""
        with np.errstate(over="ignore"):  # whatever is too long to be squared is too long
            lengths = np.linalg.norm(matrix, axis=1)
        longest, shortest = int(np.argmax(lengths)), int(np.argmin(lengths))
        if lengths[longest] > _BALL:
            most = f"{lengths[longest]:.6g}"
            raise _refused(f"action {longest + 1} has length {most}, above 1", f"divide every action by {most}")
        if not lengths[shortest] > 0:
            raise _refused(f"action {shortest + 1} is zero, whose reward is known", "remove it")
        _, first = np.unique(matrix, axis=0, return_index=True)
        if len(first) < len(lengths):
            again = int(np.setdiff1d(np.arange(len(lengths)), first)[0])
            raise _refused(f"action {again + 1} repeats an earlier one", "remove it")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of actions and of their coordinates."""
        if self.vectors is not None:
            return len(self.vectors), len(self.vectors[0])
        return self.count or 0, self.dimension or 0

    @property
    def matrix(self) -> Array:
        """The actions, shape (k, d); made anew at every call."""
        if self.vectors is not None:
            return np.array(self.vectors, dtype=np.float64)
        return sphere(*self.shape, self.seed)


def sphere(count: int, dimension: int, seed: int) -> Array:
    """Points of the unit sphere that a seed draws, uniform and independent; shape (count, dimension)."""
    places = np.arange(count * dimension, dtype=np.uint64).reshape(count, dimension)
    normal = normals_of(mix(mix(np.full(1, seed, np.uint64)) ^ mix(places + np.uint64(1))))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _refused(detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field="actions", remedy=remedy)
