"""The actions of an experiment: public vectors, given or drawn by a seed."""

from typing import Annotated, Final

import numpy as np
from pydantic import Field, model_validator

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import mix_words, words_to_normals
from privateer_core.spec.sections import Finite, Section

COUNT_MAX: Final = 20_000
DIMENSION_MAX: Final = 128
_MAX_LENGTH: Final = 1 + 1e-9  # maximum length of an action, with room for rounding to decimal digits
Vector = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=DIMENSION_MAX)]


class Actions(Section):
    """Either ``vectors``, or ``count`` of them drawn uniformly from the unit sphere of ``dimension`` by ``seed``."""

    # distinct non-zero vectors within the unit ball, of equal dimension; they need not span the space
    vectors: tuple[Vector, ...] | None = Field(default=None, max_length=COUNT_MAX)
    # count, dimension, seed: for simulation, reproducible on all machines
    count: int | None = Field(default=None, ge=1, le=COUNT_MAX)
    dimension: int | None = Field(default=None, ge=1, le=DIMENSION_MAX)
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _check_actions(self) -> "Actions":
        """Refuse none or both of the two forms, vectors of unequal length, and a single action."""
        is_drawn = self.count is not None and self.dimension is not None
        if is_drawn == (self.vectors is not None) or (self.count is None) != (self.dimension is None):
            raise _error("one of two forms is needed", "give vectors, or count and dimension to draw them")
        if len({len(vector) for vector in self.vectors or ()}) > 1:
            raise _error("all must have the same number of coordinates", "fill up the shorter ones")
        if self.shape[0] == 1:
            raise _error("a single action leaves nothing to learn", "give two at least")
        self._check_geometry(self.matrix)
        return self

    def _check_geometry(self, matrix: Array) -> None:
        """Check lengths, and that actions are distinct; errors number them from 1, as lines of a file."""
        with np.errstate(over="ignore"):  # a length beyond floats is above 1, too
            lengths = np.linalg.norm(matrix, axis=1)
        longest, shortest = int(np.argmax(lengths)), int(np.argmin(lengths))
        if lengths[longest] > _MAX_LENGTH:
            length = f"{lengths[longest]:.6g}"
            raise _error(f"action {longest + 1} has length {length}, above 1", f"divide every action by {length}")
        if not lengths[shortest] > 0:
            raise _error(f"action {shortest + 1} is zero, whose reward is known", "remove it")
        _, first_rows = np.unique(matrix, axis=0, return_index=True)
        if len(first_rows) < len(lengths):
            repeated = int(np.setdiff1d(np.arange(len(lengths)), first_rows)[0])
            raise _error(f"action {repeated + 1} repeats an earlier one", "remove it")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of actions and of their coordinates."""
        if self.vectors is not None:
            return len(self.vectors), len(self.vectors[0])
        return self.count or 0, self.dimension or 0

    @property
    def matrix(self) -> Array:
        """The actions, shape (k, d); a new array at every call."""
        if self.vectors is not None:
            return np.array(self.vectors, dtype=np.float64)
        return draw_sphere_points(*self.shape, self.seed)


def draw_sphere_points(n_points: int, dimension: int, seed: int) -> Array:
    """Draw uniform independent points of the unit sphere by a seed; shape (n_points, dimension)."""
    indices = np.arange(n_points * dimension, dtype=np.uint64).reshape(n_points, dimension)
    normal = words_to_normals(mix_words(mix_words(np.full(1, seed, np.uint64)) ^ mix_words(indices + np.uint64(1))))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _error(detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field="actions", remedy=remedy)
