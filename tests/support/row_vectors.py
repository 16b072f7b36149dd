"""The vectors that a curator makes from records, before they are rounded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import clip_norm
from privateer_core.primitives.row_ball import RowBall

Array = NDArray[np.float64]


def make_vectors(ball: RowBall, arms: NDArray[np.int64], rows: Array, values: Array) -> Array:
    """Return the vectors (n, coordinates) of rows at most 1 long, and of values in their bounds."""
    own_parts, common_parts = ball.split_rows(rows, values)
    blocks = np.zeros((len(rows), ball.arms, ball.block))
    blocks[np.arange(len(rows)), arms] = own_parts
    return np.concatenate([blocks.reshape(len(rows), -1), common_parts], axis=1)


def vectors_of(policy: Any, contributions: Any) -> Array:
    """Return the vectors of contributions to a linear policy's round, whoever makes them."""
    if isinstance(contributions, BoundedVectors):
        return contributions.values
    rows, values = clip_norm(contributions.rows, 1.0), np.clip(contributions.values, -1, 1)
    return make_vectors(policy.mechanism.ball, contributions.arms, rows, values)
