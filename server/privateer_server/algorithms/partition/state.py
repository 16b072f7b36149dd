"""What the tuned learner of the partition bandit knows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.partition.contradiction import Earlier
from privateer_server.algorithms.partition.memory import Bank
from privateer_server.algorithms.partition.screening import Screening


@dataclass(frozen=True)
class PartitionState:
    """What the server knows of the bins. Values are 2 mean reward - 1, averaged over a bin.

    Attributes
    ----------
    rounds, seen, own
        Closed rounds, people who reported, and those among them who belong to no source.
    axes
        Shape (levels,): column that each level halves, as far as bins have been halved.
    depths, paths
        Shape (bins,): the bins, as in `PartitionPolicy`, in order.
    active
        Shape (bins, arms): arms that are tried.
    precision, moment
        Shape (bins, arms): what reports on the bin say of its values: precision, and precision times mean.
    past_depths, past_paths, past_precision, past_moment
        The same of bins that were halved since, shapes (past,) and (past, arms).
    mass, mass_precision
        Shape (cohorts, bins): share of a cohort's people in the bin, and the precision of that; own people first.
    lengths, spread
        The smoothness in use (`Smoothness`), without its space.
    mean, variance
        Shape (bins, arms): posterior of the values when ``computed`` people had reported.
    computed, fitted
        People who had reported when posteriors were computed and when smoothness was fitted, last.
    turn, heard
        The cohort of the last round, and its people who have reported.
    bank
        Evidence that fades, by half-life; ``precision`` and the like are then those of the one in use. None without
        memory.
    earlier
        What was known when the window opened whose rounds are compared with those before.
    screening
        What rounds about one feature at a time said; None where no feature was asked about alone.
    """

    rounds: int
    seen: int
    own: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    precision: NDArray[np.float64]
    moment: NDArray[np.float64]
    past_depths: NDArray[np.int64]
    past_paths: NDArray[np.int64]
    past_precision: NDArray[np.float64]
    past_moment: NDArray[np.float64]
    mass: NDArray[np.float64]
    mass_precision: NDArray[np.float64]
    lengths: NDArray[np.int64]
    spread: int
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    computed: int
    fitted: int
    turn: str
    heard: int
    bank: Bank | None = None
    earlier: Earlier | None = None
    screening: Screening | None = None
