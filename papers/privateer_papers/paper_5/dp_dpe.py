"""DP-DPE (paper 5) as printed: its spec and policy, and its learner with the paper's design, width and end."""

import math
from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.phased import PhasedPolicy, PhasedSection, PhasedSpec
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.errors import SpecError
from privateer_core.primitives.clipping import Ball
from privateer_core.privacy.trust import Crowd
from privateer_papers.published_trust import EPSILON_MAX, PublishedPrivacy, recast
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.phased.learner import PhasedLearner, PhasedState, PhaseEstimate

_MODELS: Final = ("local", "shuffle", "central")


class DpDpeSection(PhasedSection):
    """The ``[algorithm]``."""

    name: Literal["paper-5-dp-dpe"]  # type: ignore[assignment] # one of its own


class DpDpeSpec(PhasedSpec):
    """An experiment with DP-DPE, in simulation alone."""

    privacy: PublishedPrivacy
    algorithm: DpDpeSection

    @model_validator(mode="after")
    def _check_theorem_epsilon(self) -> Self:
        """Refuse a shuffled epsilon above that of the theorem."""
        if self.privacy.trust.crowd is Crowd.BATCH and self.privacy.bound > EPSILON_MAX:
            raise SpecError(
                f"must be at most {EPSILON_MAX:g} by the theorem", field="privacy.epsilon", remedy="lower it"
            )
        return self

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promise = {"epsilon": 4.0, "delta": 1e-6}
        return {model: cls._example({"model": model, **promise}, 1.0, name="paper-5-dp-dpe") for model in _MODELS}


@dataclass(frozen=True)
class DpDpePolicy(PhasedPolicy):
    """A policy of one phase, in which shuffled averages may be clipped farther out."""

    @override
    def _is_clipped_to_rewards(self, ball: Ball, spec: PhasedSpec) -> bool:
        return ball.bound >= spec.reward.half_range


ALGORITHM: Final = Algorithm(DpDpeSpec, DpDpePolicy)


class DpDpeLearner(PhasedLearner):
    """Algorithm 1 with phases drawn without replacement; all actions are compared by eq. (3)."""

    gap = 2.0

    @override
    def policy(self, state: PhasedState, next_round: NewRound) -> DpDpePolicy:
        return recast(super().policy(state, next_round), DpDpePolicy)

    @override
    def _final_plays(self, state: PhasedState, support: Ints, plays: Ints, n_rounds_left: int) -> tuple[Ints, Ints]:
        """Return the part of the last phase that the remaining participants can play."""
        if len(state.active) == 1:
            return super()._final_plays(state, support, plays, n_rounds_left)
        cut = np.diff(np.cumsum(plays) * n_rounds_left // plays.sum(), prepend=0)
        return support[cut > 0], cut[cut > 0]

    @override
    def _select_active(
        self, closed: int, policy: PhasedPolicy, people: int, _points: Array, values: Array, _estimate: PhaseEstimate
    ) -> Bools:
        """Keep actions by line 18, with W of eq. (3) and, as its proofs have it, sigma_n = 2 sigma_noise sqrt(d)."""
        dimension = self.actions.shape[1]
        length = self.spec.first_phase_length * 2.0**closed
        rewards = self.spec.reward.half_range * math.sqrt(2 * dimension / (people * length))
        sampled = self.spec.algorithm.participant_standard_deviation / math.sqrt(people)
        noise = 2 * math.sqrt(policy.mechanism.error_bounds(people)[0] * dimension)
        width = (rewards + sampled + noise) * math.sqrt(2 * self.log)
        return np.asarray(np.max(values) - values <= 2 * width)
