"""The actions of an experiment: public vectors, given or drawn by a seed, or the points of a box."""

from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import mix_words, words_to_normals
from privateer_core.spec.box import SIDES_MAX, Box
from privateer_core.spec.features import BOUND_MAX
from privateer_core.spec.sections import Finite, Section

COUNT_MAX: Final = 20_000
DIMENSION_MAX: Final = 128
_MAX_LENGTH: Final = 1 + 1e-9  # maximum length of an action, with room for rounding to decimal digits
_MIN_SIDE_RATIO: Final = 1e-9
Vector = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=DIMENSION_MAX)]
Corner = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=SIDES_MAX)]


class Actions(Section):
    """``vectors``, or ``count`` of them drawn from the unit sphere of ``dimension`` by ``seed``, or a box."""

    # distinct non-zero vectors within the unit ball, of equal dimension; they need not span the space
    vectors: tuple[Vector, ...] | None = Field(default=None, max_length=COUNT_MAX)
    # count, dimension, seed: for simulation, reproducible on all machines
    count: int | None = Field(default=None, ge=1, le=COUNT_MAX)
    dimension: int | None = Field(default=None, ge=1, le=DIMENSION_MAX)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    # low, high: the box's corners, in the units of its coordinates. Rewards are a polynomial of ``degree`` in these.
    low: Corner | None = None
    high: Corner | None = None
    degree: Literal[1, 2] = 2

    @model_validator(mode="after")
    def _check_actions(self) -> "Actions":
        """Refuse two forms or none, vectors of unequal length, and a single action."""
        pairs = ((self.count, self.dimension), (self.low, self.high), (self.vectors, self.vectors))
        is_half_given = any((first is None) != (second is None) for first, second in pairs)
        if is_half_given or sum(first is not None for first, _ in pairs) != 1:
            remedy = "give vectors, or count and dimension to draw them, or low and high of a box"
            raise _error("one of three forms is needed", remedy)
        if self.low is not None and self.high is not None:
            self._check_box(self.low, self.high)
            return self
        if len({len(vector) for vector in self.vectors or ()}) > 1:
            raise _error("all must have the same number of coordinates", "fill up the shorter ones")
        if self.shape[0] == 1:
            raise _error("a single action leaves nothing to learn", "give two at least")
        self._check_geometry(self.matrix)
        return self

    @staticmethod
    def _check_box(low: Vector, high: Vector) -> None:
        """Refuse corners of unequal length, and sides that are empty or beyond what floats resolve."""
        if len(low) != len(high):
            raise _error("low and high have different numbers of coordinates", "give one of each for every side")
        for number, bounds in enumerate(zip(low, high, strict=True), 1):
            width, largest = bounds[1] - bounds[0], max(map(abs, bounds))
            if largest > BOUND_MAX:
                raise _error(f"side {number} is beyond {BOUND_MAX:g}", "change its unit")
            if not width > max(_MIN_SIDE_RATIO * largest, 1 / BOUND_MAX):
                raise _error(f"side {number} is empty: low must be below high", "leave the coordinate out, or widen it")

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
    def box(self) -> Box | None:
        """The box, if the actions are its points."""
        if self.low is None or self.high is None:
            return None
        return Box(np.array(self.low), np.array(self.high), self.degree)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of actions and of their coordinates: the terms of a box."""
        if self.vectors is not None:
            return len(self.vectors), len(self.vectors[0])
        if self.box is not None:
            return self.box.count_points(self.box.last_level), self.box.term_count
        return self.count or 0, self.dimension or 0

    @property
    def matrix(self) -> Array:
        """The actions, shape (k, d); a new array at every call."""
        if self.vectors is not None:
            return np.array(self.vectors, dtype=np.float64)
        if self.box is not None:
            return self.box.compute_terms(self.box.locate(self.box.list_rows(self.box.last_level)))
        return draw_sphere_points(*self.shape, self.seed)


def draw_sphere_points(n_points: int, dimension: int, seed: int) -> Array:
    """Draw uniform independent points of the unit sphere by a seed; shape (n_points, dimension)."""
    indices = np.arange(n_points * dimension, dtype=np.uint64).reshape(n_points, dimension)
    normal = words_to_normals(mix_words(mix_words(np.full(1, seed, np.uint64)) ^ mix_words(indices + np.uint64(1))))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _error(detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field="actions", remedy=remedy)
