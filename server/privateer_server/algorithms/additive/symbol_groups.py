"""A round's release where coins give some people their arm, as sums that follow from levels and terms."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.coin_arms import LEVEL, CoinArms
from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms.additive.part_sums import hit_rates

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ToldSums:
    """Sums that some people told about one question."""

    arm: int  # the arm that coins gave all of them; -1: everybody got their best one
    place: int  # `LEVEL`, or 1 + the feature
    people: int  # how many there are
    sums: Array  # shape (arms or 1, parts): of values from -1 to 1, of everybody with the arm and the part
    # variance of each sum, if everybody's report was noise, and what is added to it if everybody has the part
    noise: tuple[float, float]

    def variances(self, shares: Array) -> Array:
        """Return the variance of each sum, where these are the shares of people."""
        return self.noise[0] + self.noise[1] * shares


@dataclass(frozen=True)
class SymbolGroups:
    """A release of symbols."""

    told: tuple[ToldSums, ...]  # what people told about rewards
    # counts, doubts: shape (parts,): how many people have each part of each question, and the variance of that,
    # infinite where nobody said
    counts: Array
    doubts: Array

    @classmethod
    def of(cls, policy: AdditivePolicy, plan: CoinArms, release: CellHits) -> "SymbolGroups":
        """Return what a release says."""
        (own_rate, rate), questions = hit_rates(policy.terms), policy.questions
        counts = np.zeros(int(questions.starts[-1]))
        doubts = np.full(len(counts), np.inf)
        for place, question in enumerate(plan.resolutions):
            group = int(np.flatnonzero(plan.groups.counted & (plan.groups.asked == 1 + place))[0])
            people, size = int(release.counts[0, group]), int(questions.sizes[question])
            if people:
                own = slice(int(questions.starts[question]), int(questions.starts[question + 1]))
                times = release.reports / people
                counts[own] = times * release.sums[:size, group] / release.gain
                doubts[own] = times**2 * people * rate / release.gain**2
        return cls(tuple(_told(policy, plan, release, (rate, own_rate - rate))), counts, doubts)


def _told(policy: AdditivePolicy, plan: CoinArms, release: CellHits, rates: tuple[float, float]) -> Iterator[ToldSums]:
    groups, arms = plan.groups, len(plan.playable)
    for arm in (*np.flatnonzero(plan.playable).tolist(), -1):
        for place in range(1 + len(plan.resolutions)):
            own = np.flatnonzero((groups.arms == arm) & (groups.asked == place) & ~groups.counted)
            people = int(release.counts[0, own].sum())
            if not people:
                continue
            size = 1 if place == LEVEL else int(policy.questions.sizes[plan.resolutions[place - 1]])
            sums = release.sums[:, own].sum(axis=1) / release.gain
            shape = (size, arms) if arm < 0 else (size, 1)
            each = people / release.gain**2
            yield ToldSums(
                arm, place, people, sums[: shape[0] * shape[1]].reshape(shape).T, (each * rates[0], each * rates[1])
            )
