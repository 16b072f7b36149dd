"""What a trial's evidence says, in units of rewards scaled to [0, 1]."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.effects import (
    CORRECTIONS,
    AverageEffects,
    Correction,
    Effects,
    average_effects,
    effects,
    excludes_zero,
)
from privateer_server.algorithms.trial.line import Limits, Line, asked_limits
from privateer_server.algorithms.trial.state import TrialState

Array = NDArray[np.float64]
_CORRECTIONS: Final[dict[str, Correction]] = {"holm": "holm", "bh": "bh", "none": "holm"}


@dataclass(frozen=True)
class Findings:
    """Effects by segment and treatment (J, K), their averages (K,), and what follows from them.

    Attributes
    ----------
    effects, average
        None before the first look.
    decided
        Shape (J, K): effects that are decided, as the spec corrects for several, and whose interval leaves 0 out.
    best
        Shape (J,), int64: the arm that looks best.
    sure
        Shape (J,): whether it is better than all others, in all segments at once.
    """

    effects: Effects | None
    average: AverageEffects | None
    decided: NDArray[np.bool_]
    best: NDArray[np.int64]
    sure: NDArray[np.bool_]

    @classmethod
    def of(cls, state: TrialState, spec: TrialSpec) -> "Findings":
        """Return what a state says at the last look."""
        evidence = state.evidence
        size, treatments = spec.segment_count, spec.arm_count - 1
        if not evidence.looks:
            none = np.zeros((size, treatments), bool)
            return cls(None, None, none, np.zeros(size, np.int64), np.zeros(size, bool))
        section = spec.algorithm
        found = effects(evidence, state.asked, spec.smallest, _CORRECTIONS[section.correction])
        if state.line:
            found = _strict(found, state.line, _limits(state, spec), _CORRECTIONS[section.correction])
        apart = excludes_zero(found.low, found.high) | excludes_zero(found.contribution_low, found.contribution_high)
        decided = (found.p_value <= section.level) & apart if section.correction == "none" else found.decided
        # Precision weights: those of intervals forget an early decision where shares are extreme.
        ahead = np.concatenate([np.zeros((size, 1)), evidence.precise.difference], axis=1)
        best = np.argmax(ahead, axis=1)
        average = average_effects(evidence, next(iter(state.everybody), None)) if size > 1 else None
        return cls(found, average, decided, best, _sure(found, best))

    @property
    def constant(self) -> int:
        """The arm that is best if everybody gets the same."""
        assert self.effects is not None
        source = self.effects.contribution.sum(axis=0) if self.average is None else self.average.estimate
        return int(np.argmax(np.concatenate([[0.0], np.nan_to_num(source)])))

    @property
    def intervals(self) -> Array:
        """Estimates and interval ends, (J, K, 3); nan where nothing is said."""
        if self.effects is None:
            return np.zeros((*self.decided.shape, 3))
        return _stacked(self.effects.estimate, self.effects.low, self.effects.high)

    @property
    def average_intervals(self) -> Array:
        """The same of average effects, (K, 3)."""
        if self.average is None:
            return np.full((self.decided.shape[1], 3), np.nan)
        return _stacked(self.average.estimate, self.average.low, self.average.high)


def _stacked(estimate: Array, low: Array, high: Array) -> Array:
    found = np.stack([estimate, low, high], axis=-1)
    return np.where(np.isfinite(found).all(axis=-1, keepdims=True), found, np.nan)


def _limits(state: TrialState, spec: TrialSpec) -> Limits | None:
    """Return limits of the segments' shares of the people, with half of the level, where people are asked for them."""
    if state.members is None:
        return None
    people = spec.experiment.horizon * spec.questions[-1].share
    return asked_limits(state.members, spec.algorithm.level / 2, people * state.evidence.design.hit)


def _strict(found: Effects, line: Line, asked: Limits | None, correction: Correction) -> Effects:
    """Return the effects with the intervals of a line, which need no gate."""
    limits, share = line.effect(asked), line.contribution()
    adjusted = CORRECTIONS[correction](line.p_value)
    return replace(
        found,
        estimate=limits.estimate,
        low=limits.low,
        high=limits.high,
        joint_low=np.full_like(limits.low, -np.inf),
        joint_high=np.full_like(limits.high, np.inf),
        contribution=share.estimate,
        contribution_low=share.low,
        contribution_high=share.high,
        p_value=line.p_value,
        adjusted=adjusted,
        decided=(adjusted <= line.design.alpha)
        & (excludes_zero(limits.low, limits.high) | excludes_zero(share.low, share.high)),
    )


def _sure(found: Effects, best: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the joint interval of the best arm is above those of all others; the control's is 0 alone."""
    size = len(best)
    low = np.concatenate([np.zeros((size, 1)), np.nan_to_num(found.joint_low, nan=-np.inf)], axis=1)
    high = np.concatenate([np.zeros((size, 1)), np.nan_to_num(found.joint_high, nan=np.inf)], axis=1)
    rows = np.arange(size)
    own = low[rows, best]
    high[rows, best] = -np.inf
    return np.asarray(own > high.max(axis=1))
