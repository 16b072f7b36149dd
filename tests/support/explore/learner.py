"""What learns when people explore, then commit: the mean reward of every arm, with an interval."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from privateer_core.algorithms.explore import ExplorePolicy, ExploreSpec

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.contributions import KeyedSums
from privateer_core.errors import SpecError
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step, must_agree

_CONFIDENCE: Final = 0.95
_DEVIATIONS: Final = 3.0
"""Standard deviations of an interval: enough for 95 % and up to 16 arms together."""


@dataclass(frozen=True)
class ExploreState:
    """People who reported, and for each arm the unbiased sum of their scores 2 reward - 1, and its variance."""

    heard: int
    scores: NDArray[np.float64]
    variances: NDArray[np.float64]


class ExploreLearner:
    """Adds up what is released, and commits to the arm of the best mean."""

    state_type = ExploreState
    repeats: Final = False
    publishes_result: Final = True
    growth: Final = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: ExploreSpec) -> None:
        self.spec = spec
        self.exploring = math.ceil(spec.algorithm.share * spec.experiment.horizon)

    def start(self, _seed: int) -> ExploreState:
        """Return the state before any report."""
        return ExploreState(0, np.zeros(self.spec.arm_count), np.zeros(self.spec.arm_count))

    def next(self, state: ExploreState, version: int, seed: int) -> Step:
        """Return the next round: exploration, or the commitment, which asks nobody."""
        batch = self.spec.turn("", state.heard).batch if state.heard < self.exploring else 0
        question, best = self.spec.asked(seed), -1 if batch else int(np.argmax(state.scores))
        privacy = self.spec.privacy
        terms = calibrate(privacy, batch, question) if batch else nobody_asked(privacy, question)
        return Step(state, ExplorePolicy(version, self.spec.arm_count, best, seed, terms), batch, state.heard)

    def last(self, state: ExploreState, version: int, seed: int) -> Step:
        """Return the commitment to the best arm so far."""
        question, best = self.spec.asked(seed), int(np.argmax(state.scores))
        terms = nobody_asked(self.spec.privacy, question)
        return Step(state, ExplorePolicy(version, self.spec.arm_count, best, seed, terms), 0, state.heard)

    def changed(self, state: ExploreState, before: ExploreSpec) -> ExploreState:
        """Take a longer horizon, and refuse other arms.

        Raises
        ------
        SpecError
            If the arms differ.
        """
        must_agree(before, self.spec, ("experiment.arms", "experiment.retired"))
        return state

    def begun(self, state: ExploreState, before: ExploreSpec) -> ExploreState:
        """Refuse to begin with what others have learned: its scores are sums over people of one experiment.

        Raises
        ------
        SpecError
            Always.
        """
        detail = f"nothing of {before.name} tells this learner anything"
        raise SpecError(detail, field="algorithm.name", remedy="begin without it")

    def learn(self, state: ExploreState, _policy: ExplorePolicy, release: KeyedSums) -> ExploreState:
        """Return the state with a round's release counted in."""
        scores = state.scores + release.sums[:, 0] / release.gain
        added = (np.maximum(release.hits, 0.0) + release.noise) / release.gain**2
        return ExploreState(state.heard + release.reports, scores, state.variances + added)

    def miss(self, state: ExploreState, _policy: ExplorePolicy, *, again: bool) -> ExploreState:
        """Return the state as it is: other people report in the next round."""
        del again
        return replace(state)

    def failed(self, _state: ExploreState) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def answer(self, state: ExploreState) -> Answer:
        """Return the mean of every arm once people reported, and the best arm at the end."""
        over = state.heard >= self.exploring
        return Answer(
            status="ended" if over else "learning",
            people=state.heard,
            rounds=None,
            confidence=_CONFIDENCE,
            recommended=self.spec.options[int(np.argmax(state.scores))] if over else None,
            ended="its rule" if over else None,
            estimates=self._means(state) if state.heard else (),
        )

    def _means(self, state: ExploreState) -> tuple[Estimate, ...]:
        low, half_range = self.spec.reward.low, self.spec.reward.half_range
        people, estimates = state.heard / self.spec.arm_count, []
        for name, *sums in zip(self.spec.options, state.scores.tolist(), state.variances.tolist(), strict=True):
            score, variance = sums
            value, off = low + half_range * (1 + score / people), half_range * math.sqrt(variance) / people
            estimates.append(Estimate(name, value, value - _DEVIATIONS * off, value + _DEVIATIONS * off))
        return tuple(estimates)

    def bulk(self, first: Step) -> list[Bulk]:
        """Return what the largest round carries at most."""
        return [Bulk(self.spec.largest_batch(), 1, first.policy.terms.mechanism.report_size)]

    def figures(self, state: ExploreState) -> dict[str, float]:
        """Return the share of people who explored."""
        return {"explored": min(1.0, state.heard / self.exploring)}


def learner(spec: ExploreSpec) -> ExploreLearner:
    """Return the learner that a spec names."""
    return ExploreLearner(spec)
