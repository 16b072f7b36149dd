"""Settings of trials, their looks, and sums by trial of many drawn at once."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from privateer_papers.paper_4.frontier import Array, Trials, TrialSetting
from privateer_server.algorithms.trial.evidence.epochs import (
    Epoch,
    PlannedEpoch,
    TrialDesign,
    common_weights,
    contrast_variances,
)
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import POWER, find_drift
from privateer_server.algorithms.trial.power.power_analysis import effect_deviations, look_times

__all__ = [
    "SETTINGS",
    "TrialSetting",
    "Trials",
    "add_in_common",
    "by_trial",
    "central",
    "detectable",
    "growing_fractions",
    "named_symbol",
    "one_bit",
]


def named_symbol(epsilon: float, segments: int) -> TrialSetting:
    """Return randomized response over segments and bits, of this local epsilon."""
    total = np.exp(epsilon) + 2 * segments - 1
    return TrialSetting(float(np.expm1(epsilon) / total), float(1 / total))


def one_bit(epsilon: float) -> TrialSetting:
    """Return reports of one bit about all segments, under public signs."""
    return TrialSetting(float(np.tanh(epsilon / 2)), counted=False)


def central(epsilon: float) -> TrialSetting:
    """Return a curator's pairs."""
    return TrialSetting(decay=float(np.exp(-epsilon / 2)))


SETTINGS: Final = {
    "none": TrialSetting(),
    "central 1": central(1.0),
    "shuffle 1": named_symbol(5.5, 4),
    "local 2": named_symbol(2.0, 4),
    "local 1": one_bit(1.0),
}
"""Those that intervals are tested in, for four segments; a shuffled batch of 10,000 allows a local epsilon of 5.5."""


def by_trial(sums: Sums, count: int) -> Sums:
    """The same sums with trials as treatments: what is summed over segments is summed within each trial."""

    def split(values: Array) -> Array:
        split = values.reshape(count, -1, *values.shape[1:])
        return np.moveaxis(split, 0, 1).reshape(split.shape[1], -1, *values.shape[2:])

    return sums.map_arrays(split)


def add_in_common(sums: Sums, evidence: TrialEvidence, epoch: Epoch, count: int) -> Sums:
    """Add an epoch of so many trials, with a common weight of each trial's segments, as `TrialEvidence.common` has."""
    design = evidence.design
    variances = contrast_variances(design, epoch)
    planned, actual = (np.moveaxis(variance.reshape(count, -1, variance.shape[1]), 0, 1) for variance in variances)
    return sums.add(epoch, np.moveaxis(common_weights(planned, actual), 0, 1).reshape(epoch.shares.shape[0], -1))


def growing_fractions(first: float, people: float, ratio: float = 1.5) -> tuple[float, ...]:
    """Information fractions of epochs growing by a ratio, of which the first has at least ``first`` people."""
    times = [1.0]
    while times[0] / ratio * people >= first:
        times.insert(0, times[0] / ratio)
    return tuple(times)


def detectable(design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float) -> Array:
    """Smallest effects (J, K) that a trial finds with a power of .8 at some look."""
    return find_drift(look_times(design, epochs), design.alpha, POWER) * effect_deviations(design, epochs, rate)
