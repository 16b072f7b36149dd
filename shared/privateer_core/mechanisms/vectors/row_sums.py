"""Sums of residuals and second moments of rows, of which a curator gets a record from each participant."""

import math
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from typing_extensions import override

from privateer_core.arrays import Ints, Records
from privateer_core.errors import InputError
from privateer_core.mechanisms.mechanism import VectorTotal, check_valid, index_type, view_rows
from privateer_core.mechanisms.vectors.vector_noise import CuratedSums
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.clipping import clip_norm
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.row_ball import JOINT, RowBall
from privateer_core.sampling.randomness import NoiseSource, RandomSource, round_to_integers

RECORD_GRID: Final = 1 << 14
"""Steps of 1 in a record's value and coordinates."""
_BLOCK_NUMBERS: Final = 1 << 21
"""Number of coordinates of vectors made at a time, to limit memory."""


class RowSums(CuratedSums, frozen=True, tag="row-sums"):
    """A curator's sums of vectors that it makes itself, from an arm, a row and a value of each participant.

    No device can move the sums further than another, whatever it sends.

    Parameters
    ----------
    ball
        The vectors, and how far apart two are.
    standard_deviation
        Standard deviation of the noise in each coordinate, in grid points; 0: no noise.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's sensitivity for a released sum, plus `sampling_cost` in
    delta.
    """

    ball: RowBall

    @cached_property
    def _record(self) -> np.dtype[Any]:
        arm = index_type(self.ball.arms)
        return np.dtype([("arm", arm), ("value", "<i2"), ("row", "<i2", (self.ball.dimension,))])

    @property
    @override
    def report_size(self) -> int:
        return self._record.itemsize

    @property
    def _max_norm(self) -> float:
        """The largest norm of a row before it is rounded: afterwards it is at most 1 long."""
        return 1 - math.sqrt(self.ball.dimension) / RECORD_GRID

    def randomize(self, contributions: RowValues, noise: NoiseSource) -> Records:
        """Return the records of n participants, values and rows clipped and rounded at random; shape (n,)."""
        return self._records(contributions, noise)

    def _records(self, contributions: RowValues, source: RandomSource) -> Records:
        values, rows = contributions.values, contributions.rows
        is_valid = values.shape == contributions.arms.shape and rows.shape == (len(values), self.ball.dimension)
        if not (is_valid and np.isfinite(values).all() and np.isfinite(rows).all()):
            raise InputError("must be finite numbers", field="row", remedy="send what the experiment asks for")
        records = np.empty(len(contributions), self._record)
        records["arm"] = contributions.arms
        records["value"] = round_to_integers(RECORD_GRID * np.clip(values, -1.0, 1.0), source)
        records["row"] = round_to_integers(RECORD_GRID * clip_norm(rows, self._max_norm), source)
        return records

    @override
    def parse(self, rows: bytes) -> Records:
        records = view_rows(rows, self._record)
        check_valid(not np.any(records["arm"] >= self.ball.arms), "not an arm of this round")
        check_valid(not np.any(np.abs(records["value"].astype(np.int64)) > RECORD_GRID), "a value out of its bounds")
        squares = np.square(records["row"].astype(np.int64)).sum(axis=1)
        check_valid(not np.any(squares > RECORD_GRID**2), "a row that is too long")
        return records

    @override
    def add(self, total: VectorTotal, reports: Any) -> VectorTotal:
        return total.merge_with(VectorTotal(len(reports), self._sum_records(reports)))

    def _sum_records(self, records: Records) -> Ints:
        """Return the sum of the vectors of records, (coordinates,)."""
        ball = self.ball
        n_blocked = ball.arms * ball.block
        sums = np.zeros(ball.coordinates, np.int64)
        blocks, common = sums[:n_blocked].reshape(ball.arms, ball.block), sums[n_blocked:]
        n_parts = max(1, len(records) * ball.coordinates // _BLOCK_NUMBERS)
        for part in np.array_split(records, n_parts):
            rows, values = part["row"] / RECORD_GRID, part["value"] / RECORD_GRID
            own_parts, common_parts = (np.rint(x / ball.step).astype(np.int64) for x in ball.split_rows(rows, values))
            np.add.at(blocks, part["arm"].astype(np.int64), own_parts)
            common += common_parts.sum(axis=0)
        return sums

    @override
    def simulate(self, contributions: RowValues, rng: "np.random.Generator") -> VectorSums:
        return self._simulate_release(self.add(self.empty(), self._records(contributions, rng)), rng)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        ball = RowBall(2, 3, 0.3)
        others = {"residuals": RowBall(2, 2, 0.0), "joint": RowBall(2, 2, JOINT)}
        noisy = {name: cls(rows, 600_000.0) for name, rows in {"noisy": ball, **others}.items()}
        return {**noisy, "exact": cls(ball, 0.0)}
