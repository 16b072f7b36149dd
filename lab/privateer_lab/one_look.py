"""One look at all rows of a test that is over, by the statistics of an experiment, with a curator's noise or none."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.lower_rewards import LowerRewards
from privateer_lab.notebook.results import Found, found_in
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule

Array: TypeAlias = NDArray[np.float64]
_NO_NOISE: Final = "No privacy is promised to the people of these rows: figures have no noise."
_NOISE: Final = "It costs each person of these rows epsilon {:g} against readers of the answer: noise is in its sums."
_CONFIDENT: Final = 1.96
"""Standard deviations of 95 % confidence."""


@dataclass(frozen=True)
class CountedRows:
    """How many rows an answer rests on, and the standard deviation of the noise in that."""

    count: float
    deviation: float

    def sentence(self, unit: str, total: int) -> str:
        """Say how many of all rows count; noise that tells of no other row says so."""
        radius = math.ceil(_CONFIDENT * self.deviation)
        if not self.deviation:
            others = f" of {total:,}" if unit == "rows" and round(self.count) < total else ""
            return f"It rests on {round(self.count):,}{others} {unit}."
        lost = total - self.count
        if lost <= radius:
            most = max(0, math.ceil(lost)) + radius
            return f"It rests on {total:,} {unit}, less {most:,} at most, as far as noise tells."
        counted = f"about {max(0, round(self.count)):,} of {total:,} {unit}, give or take {radius:,}"
        return f"It rests on {counted}: the others have no named option, or no outcome that counts."


@dataclass(frozen=True)
class OneLook:
    """The rows of a test.

    Attributes
    ----------
    contexts
        Shape (n, columns): segments as devices encode them.
    chosen
        Shape (n,): places of arms.
    is_counted
        Shape (n,): with a promise, which rows have something to contribute; None without one.
    lower
        How less of the reward is better; None: more is.
    warnings
        What the rows themselves warn of.
    """

    contexts: Array
    chosen: NDArray[np.int64]
    is_counted: NDArray[np.bool_] | None
    lower: LowerRewards | None
    warnings: tuple[str, ...] = ()

    def find(self, spec: ArmsSpec, rewards: Array) -> tuple[Found, CountedRows]:
        """Return what one look says of rewards in their own unit, (n,), and how many rows that rests on."""
        step = (schedule := Schedule(spec)).open(0)
        policy: Any = step.policy
        coins, scaled = np.zeros(len(self.chosen), np.uint32), spec.reward.scaled_all(rewards)
        given = policy.contribute(self.contexts, coins, Arms(self.chosen), scaled)
        mechanism: Any = policy.terms.mechanism
        if self.is_counted is None:
            release = mechanism.moments(given)
        else:
            given, noise = replace(given, keys=np.where(self.is_counted, given.keys, -1)), SecureNoise()
            release = mechanism.release(mechanism.add(mechanism.empty(), mechanism.randomize(given, noise)), noise)
        over = schedule.close(step, release, 0)
        answer = schedule.answer(over)
        answer = msgspec.structs.replace(answer, ended="its rows", warnings=(*self.warnings, *answer.warnings))
        answer = self.lower.renamed(answer, spec) if self.lower else answer
        conclusion = conclude(schedule, over, answer)
        said = _NO_NOISE if self.is_counted is None else _NOISE.format(spec.privacy.bound)
        cost = msgspec.structs.replace(conclusion.privacy, sentence=said)
        deviation = math.sqrt(release.hits.size * release.parts.count * release.noise)
        counted = CountedRows(float(release.hits.sum()), deviation)
        return found_in("test", answer, msgspec.structs.replace(conclusion, privacy=cost)), counted
