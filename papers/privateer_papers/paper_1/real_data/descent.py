"""Paper 1's Linear and NN with auxiliary data: sources report gradients first, under their own promise."""

from typing import Any, Final

import numpy as np

from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.experiment import Source
from privateer_lab.baselines.base import Visitors
from privateer_lab.baselines.descent import Descent, Logistic, Network
from privateer_lab.environments import environment_for
from privateer_lab.simulation.devices import arms_before, scaled, scaled_rewards

_ROUND: Final = 100


class _Sourced(Descent):
    """Descent that begins with the people of the spec's sources, in rounds of 100.

    The paper says that auxiliary data are included "in the stochastic gradient descent of the parameter estimation with
    the required privacy level", and no more. The authors' code gives it the first source alone; here all come, in the
    spec's order, and take the place of the warm start as far as they are as many. Arms of sources are secret, so that
    a report is one gradient for all arms.

    Notes
    -----
    Privacy: epsilon-LDP for everybody, with the epsilon of the source that they are in.
    """

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        own = self.greedy
        for place, source in enumerate(spec.sources):
            self.greedy = type(own).calibrated(own.ball, source.epsilon or spec.privacy.bound, 0)
            self._recall(
                source, environment_for(spec, seed, source.population), np.random.default_rng([seed, 7, place])
            )
        self.greedy = own

    def _recall(self, source: Source, environment: Any, rng: np.random.Generator) -> None:
        for start in range(0, source.people, _ROUND):
            count = min(_ROUND, source.people - start)
            raw = environment.contexts(start, count, rng)
            arms = arms_before(source, self.spec.arm_count, count, rng)
            rewards = scaled_rewards(environment.rewards(raw, Arms(arms), rng), self.spec)
            self.open(count)
            self.warm = False
            self.learn(Visitors(0, raw, scaled(raw, self.spec), environment.means(raw)), arms, rewards)
            self.close()


class SourcedLinear(_Sourced, Logistic):
    """Linear with sources."""


class SourcedNetwork(_Sourced, Network):
    """NN with sources."""
