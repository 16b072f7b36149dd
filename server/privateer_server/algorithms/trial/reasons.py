"""Reasons why a trial has no interval for an effect, and the decisions of its looks so far."""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, Self

import numpy as np

from privateer_core.arrays import Array, Bools, Ints
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums


@dataclass(frozen=True)
class StandingDecisions:
    """Decisions on effects, with the last interval of each; arrays of any shape S.

    Few people get an arm that is dropped, so that later looks have no interval for it. Its decision stands, and so does
    its last interval: intervals of all looks hold together.
    """

    intervals: Array  # shape (*S, 3): estimate and ends at the last look that had an interval; nan where none had
    people: Ints  # shape S, int64: how many people had reported at that look
    # shape S: whether a test has decided it at some look, as the spec corrects for several effects, and the interval
    # leaves 0 out
    decided: Bools
    tested: Bools  # shape S: whether a test has decided it at some look
    better: Bools  # shape S: whether it is decided, and above 0

    @classmethod
    def from_interval_path(
        cls, path: Array, people: Array, tested: Bools, contribution_ends: tuple[Array, Array]
    ) -> "StandingDecisions":
        """Return the decisions from the intervals of all looks, (looks, *S, 3), and the participants at each.

        Where no look had an interval, the ends ``contribution_ends``, S each, give the sign of the effect.
        """
        is_known = np.isfinite(path[..., 0])
        last = len(path) - 1 - np.argmax(is_known[::-1], axis=0)
        intervals = np.take_along_axis(path, last[None, ..., None], axis=0)[0]
        low, high = (np.where(is_known.any(axis=0), intervals[..., end], contribution_ends[end - 1]) for end in (1, 2))
        better = tested & (low > 0)
        return cls(intervals, people.astype(np.int64)[last], better | (tested & (high < 0)), tested, better)

    @property
    def worse(self) -> Bools:
        """Shape S: whether the effect is decided, and below 0."""
        return self.decided & ~self.better


def find_leader(effects: Array) -> int:
    """Return the arm with the largest of effects (K,); the control if none is above 0."""
    return int(np.argmax(np.concatenate([[0.0], np.nan_to_num(effects)])))


def choose_arms(decisions: StandingDecisions, average: StandingDecisions | None, arm_values: Array) -> tuple[Ints, int]:
    """Return the arm of each segment, (J,), and the overall arm: the control unless another is decided to be better.

    What is decided on average holds in a segment of which nothing is decided, unless it is decided to be worse there.

    arm_values (J, K + 1): values by which the better arms are ranked.
    """
    best_arms = 1 + np.where(decisions.better, arm_values[:, 1:], -np.inf).argmax(axis=1)
    segment_arms = np.where(decisions.better.any(axis=1), best_arms, 0)
    if average is None:
        return segment_arms, int(segment_arms[0])
    for_all = find_leader(np.where(average.better, average.intervals[:, 0], 0.0))
    if not for_all:
        return segment_arms, 0
    return np.where((segment_arms > 0) | decisions.worse[:, for_all - 1], segment_arms, for_all), for_all


_REWARD_DEVIATIONS: Final = 8.0  # standard deviations from their mean within which rewards are taken to be


class ReasonCode(IntEnum):
    """The reason why an effect has no interval, or a wide interval."""

    NONE = 0
    FEW = 1  # an arm has too few people, and noise is not in the way: no interval
    SHARE = 2
    """The segment's share of people is not told from 0, so the effect's scale is unknown: the contribution is known."""
    SMALL = 3  # not decided, and the trial will not find effects as small as the owner asks for
    LOOK = 4  # the look added too few people to be one, or lies beyond the plan: wait, or read the look before
    UNRESOLVED = 5
    """Rewards vary by less than their bounds resolve, so that nobody knows how much estimates vary: no interval."""
    NOISE = 7  # an arm has too few people beside the noise: no interval
    NOBODY = 10  # nobody in an arm is told from the noise: no interval
    RARE = 8  # yes or no is too rare in an arm: there is an estimate, and no interval
    HEAVY = 9  # too few rewards bear the mean of an arm: an estimate, and no interval
    HIDDEN = 6
    """Noise, which goes with the bounds, hides how much rewards vary: intervals are wider than with narrower ones."""


@dataclass(frozen=True)
class ArmCounts:
    """The counts of the two arms of each effect that an interval requires, (..., 2) each."""

    # people, noise: how many people each mean is as good as, and the standard deviation of the noise in their number
    people: Array
    noise: Array
    rare: Array  # how many of them had the rarer outcome of bits
    # needed, rare_needed: shape (...): the least people, and the least of the rarer outcome
    min_people: Array
    rare_needed: Array
    # shape (...): how many equal rewards would bear a mean as uncertain as that of the arm with fewer of them
    n_effective_rewards: Array

    @classmethod
    def from_sums(cls, sums: Sums) -> Self:
        """Return the counts of sums, (J, K)."""
        noise = np.sqrt(sums.noise_of_hits) / np.where(sums.den > 0, sums.den, np.inf) * sums.people_of_arms
        people = np.where(sums.den > 0, sums.people_of_arms, 0.0)
        return cls(people, noise, sums.rare_people, sums.min_people, sums.min_rare_outcomes, sums.n_effective_rewards)

    def select(self, *cell: int) -> "ArmCounts":
        """Return the counts of an effect, or of a row of effects."""
        return ArmCounts(*(getattr(self, field.name)[cell] for field in fields(self)))

    def format_figures(self, names: tuple[str, str]) -> dict[str, str]:
        """Return the formatted figures of an effect, with the name of the arm that has fewer participants."""
        index = int(np.argmin(self.people))
        count = round(float(self.people[index]))
        return {
            "arm": names[index],
            "people": f"{count:,} {'person' if count == 1 else 'people'}",
            "noise": f" beside noise of {float(self.noise[index]):,.2g}" if self.noise[index] > 0 else "",
            "needed": f"{float(self.min_people):,.0f}",
            "own": f"{round(float(self.rare[0])):,}",
            "other": f"{round(float(self.rare[1])):,}",
            "rare_needed": f"{float(self.rare_needed):,.0f}",
            "n_effective_rewards": f"{int(self.n_effective_rewards):,}",
        }


ESTIMATE_ONLY_CODES: Final = (ReasonCode.RARE, ReasonCode.HEAVY)  # why there is an estimate, and no interval
NO_INTERVAL_CODES: Final = (
    ReasonCode.FEW,
    ReasonCode.NOBODY,
    ReasonCode.NOISE,
    *ESTIMATE_ONLY_CODES,
    ReasonCode.UNRESOLVED,
)
"""Why there is no interval at any look with so little."""


def choose_reason_codes(
    sums: Sums, is_share_known: Bools, is_look: bool, is_decided: Bools, detectable: Array, smallest: float | None
) -> Ints:
    """Return the reason codes of effects, (J, K)."""
    is_small = ~is_decided & (detectable > (np.inf if smallest is None else smallest))
    conditions = {
        ReasonCode.SHARE: ~is_share_known,
        ReasonCode.LOOK: np.full(is_share_known.shape, not is_look),
        ReasonCode.SMALL: is_small & ~sums.is_variance_within_noise,
    }
    codes = choose_codes_of_missing_effects(sums)
    has_no_interval = np.isin(codes, (*NO_INTERVAL_CODES,))
    return np.select([has_no_interval, *conditions.values()], [codes, *conditions], codes).astype(np.int64)


def choose_codes_of_missing_effects(sums: Sums) -> Ints:
    """Return the reason codes of missing or wide intervals from the sums alone."""
    codes = {
        ReasonCode.NOBODY: sums.has_nobody,
        ReasonCode.NOISE: sums.has_noise,
        ReasonCode.FEW: sums.has_few_people,
        ReasonCode.RARE if sums.values is None else ReasonCode.HEAVY: sums.has_few_rare,
        ReasonCode.UNRESOLVED: sums.is_unresolved,
        ReasonCode.HIDDEN: sums.is_variance_within_noise,
    }
    return np.select([*codes.values()], [*codes], ReasonCode.NONE).astype(np.int64)


def default_missing_codes(sums: Sums) -> Ints:
    """Return the reason codes of missing intervals without a reason of their own, (J, K): noise or few people."""
    return np.where(sums.is_randomized, ReasonCode.NOISE, ReasonCode.FEW).astype(np.int64)


def suggest_narrower_bounds(sums: Sums) -> Array:
    """Return bounds, (J, K, 2), that hold rewards of both arms within eight standard deviations."""
    resolution = sums.values.resolution if sums.values else 0.0
    radii = _REWARD_DEVIATIONS * np.sqrt(np.maximum(sums.spread_of_hits, resolution)) + np.abs(sums.difference) / 2
    ends = sums.middle[..., None] + radii[..., None] * np.array([-1.0, 1.0])
    return np.asarray(np.clip(ends, 0.0, 1.0))
