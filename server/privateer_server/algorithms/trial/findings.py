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
)
from privateer_server.algorithms.trial.evidence import Evidence
from privateer_server.algorithms.trial.line import Limits, Line, asked_limits
from privateer_server.algorithms.trial.state import TrialState

Array = NDArray[np.float64]
_CORRECTIONS: Final[dict[str, Correction]] = {"holm": "holm", "bh": "bh", "none": "holm"}


@dataclass(frozen=True)
class Called:
    """What tests have called, and where the intervals are that the last look had of each, of any shape S.

    An arm that is dropped tells less and less beside the noise. What was called of it stands, and so does its last
    interval: intervals of all looks hold together.

    Attributes
    ----------
    intervals
        Shape (*S, 3): estimate and ends at the last look that had an interval; nan where none had.
    people
        Shape S, int64: how many people had reported at that look.
    decided
        Shape S: what a test has called at some look, as the spec corrects for several, unless that interval holds 0.
    tested
        Shape S: what a test has called at some look.
    """

    intervals: Array
    people: NDArray[np.int64]
    decided: NDArray[np.bool_]
    tested: NDArray[np.bool_]

    @classmethod
    def of(
        cls, path: Array, people: NDArray[np.float64], tested: NDArray[np.bool_], beside: tuple[Array, Array]
    ) -> "Called":
        """Return it of the intervals of all looks, (looks, *S, 3), and the people at each.

        Where no look had an interval, ``beside`` has the ends of another one, S each, on which side of 0 it is.
        """
        known = np.isfinite(path[..., 0])
        last = len(path) - 1 - np.argmax(known[::-1], axis=0)
        found = np.take_along_axis(path, last[None, ..., None], axis=0)[0]
        low, high = (np.where(known.any(axis=0), found[..., end], beside[end - 1]) for end in (1, 2))
        return cls(found, people.astype(np.int64)[last], tested & ((low > 0) | (high < 0)), tested)


@dataclass(frozen=True)
class Findings:
    """Effects by segment and treatment (J, K), their averages (K,), and what follows from them.

    Attributes
    ----------
    effects, average
        None before the first look.
    called, average_called
        What is decided of each; None where there are none.
    best
        Shape (J,), int64: the arm that looks best.
    sure
        Shape (J,): whether it is better than all others, in all segments at once.
    """

    effects: Effects | None
    average: AverageEffects | None
    called: Called | None
    average_called: Called | None
    best: NDArray[np.int64]
    sure: NDArray[np.bool_]

    @classmethod
    def of(cls, state: TrialState, spec: TrialSpec) -> "Findings":
        """Return what a state says at the last look."""
        evidence = state.evidence
        size = spec.segment_count
        if not evidence.looks:
            return cls(None, None, None, None, np.zeros(size, np.int64), np.zeros(size, bool))
        section = spec.algorithm
        found = effects(evidence, state.asked, spec.smallest, _CORRECTIONS[section.correction])
        if state.line:
            found = _strict(found, state.line, _limits(state, spec), _CORRECTIONS[section.correction])
        # Precision weights: those of intervals forget an early decision where shares are extreme.
        ahead = np.concatenate([np.zeros((size, 1)), evidence.precise.difference], axis=1)
        best = np.argmax(ahead, axis=1)
        average = average_effects(evidence, next(iter(state.everybody), None)) if size > 1 else None
        tested = found.p_value <= section.level if section.correction == "none" else found.decided
        share = found.contribution_low, found.contribution_high
        called = Called.of(_looks(state.path, _intervals(found), evidence), state.ratio.people, tested, share)
        average_called = None
        if average:
            path = _looks(state.average_path, _intervals(average), evidence)
            average_called = Called.of(path, state.ratio.people, average.decided, (average.low, average.high))
        return cls(found, average, called, average_called, best, _sure(found, best))

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Shape (J, K): effects that are decided; empty before the first look."""
        return np.zeros((0, 0), bool) if self.called is None else self.called.decided

    @property
    def constant(self) -> int:
        """The arm that is best if everybody gets the same."""
        assert self.effects is not None
        source = self.effects.contribution.sum(axis=0) if self.average is None else self.average.estimate
        return int(np.argmax(np.concatenate([[0.0], np.nan_to_num(source)])))

    @property
    def intervals(self) -> Array:
        """Estimates and interval ends at this look, (J, K, 3); nan where nothing is said."""
        assert self.effects is not None
        return _intervals(self.effects)

    def average_intervals(self, treatments: int) -> Array:
        """The same of average effects, (K, 3)."""
        return np.full((treatments, 3), np.nan) if self.average is None else _intervals(self.average)


def _looks(path: Array, now: Array, evidence: Evidence) -> Array:
    """Return the intervals of all looks; those of the last one may be on the path, or not yet."""
    return path if len(path) == evidence.looks else np.concatenate([path, now[None]])


def _intervals(found: Effects | AverageEffects) -> Array:
    return _stacked(found.estimate, found.low, found.high)


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
        decided=adjusted <= line.design.alpha,
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
