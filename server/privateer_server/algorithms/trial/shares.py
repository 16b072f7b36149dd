"""Segments' shares of the people."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence import Sums, by_people, rates

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """Estimates and their variances, shape (J,) each; variance 0 if the owner declared them."""

    estimate: Array
    variance: Array


def counted_shares(sums: Sums) -> Shares:
    """Shares told by hits: (v - 2 o)/q, with v a segment's hits per person."""
    rate, q, o, people = rates(sums)
    variance = (np.maximum(rate * (1 - rate), 0.0) / people + sums.hits_noise / np.square(sums.people)) / np.square(q)
    return Shares(((rate - 2 * o) / q).mean(axis=1), np.asarray(variance.mean(axis=1)))


def told_shares(sums: Sums) -> Shares:
    """Shares told by people who were asked for their segment, and said yes.

    `by_people` has a segment's share times (1 - 1/2), whichever arm its people got.
    """
    values, variances = by_people(sums)
    return Shares(2 * values[..., 0].mean(axis=1), 4 * variances[..., 0].mean(axis=1))
