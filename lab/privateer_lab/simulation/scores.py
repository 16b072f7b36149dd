"""Scores of a run against the truth that only simulations know: regret, and coverage of intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer import Answer
from privateer_core.policies.policy import Comparing
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards
from privateer_lab.simulation.devices import scaled

Point: TypeAlias = tuple[int, float, float, float]
"""How often anything was chosen, and the regrets of the choices, of the best constant option, and of random ones."""
_DUST: Final = 1e-12
"""What rounding adds to a sum, as a share of it."""
Array = NDArray[np.float64]
_PEOPLE: Final = 1 << 17
"""People over whom the truth is averaged, at most: all of a table that has no more."""
_NONE: Final = 1e-9
"""An effect up to this is none."""


@dataclass
class Score:
    """Sums over all choices so far: rewards received, and what was played in expected rewards."""

    reward: float = 0.0
    played: PlayedRewards = field(default_factory=lambda: PlayedRewards(0, 0.0, 0.0, np.zeros(1)))

    def add(self, played: PlayedRewards, reward: float) -> None:
        """Count choices, and the rewards received for them."""
        self.reward += reward
        so_far = self.played
        self.played = PlayedRewards(
            so_far.times + played.times,
            so_far.expected + played.expected,
            so_far.best + played.best,
            np.asarray(so_far.by_option + played.by_option),
        )

    @property
    def regret(self) -> float:
        """Expected reward that the choices lost against the best option each time."""
        return self._below_best(self.played.expected)

    @property
    def best_constant_regret(self) -> float:
        """Expected reward that the single option loses that is best on the whole."""
        return self._below_best(float(self.played.by_option.max()))

    @property
    def uniform_regret(self) -> float:
        """Expected reward that options at random lose."""
        return self._below_best(float(self.played.by_option.mean()))

    def _below_best(self, expected: float) -> float:
        """Return what is lost; sums in two orders differ by dust."""
        lost = self.played.best - expected
        return lost if lost > _DUST * abs(self.played.best) else 0.0

    @property
    def point(self) -> Point:
        """Where the choices stand."""
        return self.played.times, self.regret, self.best_constant_regret, self.uniform_regret


class Judgement:
    """Compares the intervals of every answer with the truth.

    spec, environment: the experiment, and its people.
    """

    def __init__(self, spec: Spec, environment: Environment) -> None:
        self._spec, self._environment = spec, environment
        self._truth: dict[str, float] = {}
        self._covered: dict[str, list[bool]] = {}
        self._called: set[str] = set()
        self._errors: dict[str, float] = {}
        self._widths: dict[str, float] = {}
        self._values: dict[str, float] = {}
        self._people: tuple[Array, NDArray[np.int64]] | None = None
        self._compared: list[tuple[str, int | None, int, int]] = []

    def see(self, policy: Comparing, answer: Answer) -> None:
        """Judge the estimates of an answer."""
        if not answer.estimates:
            return
        self._truth = self._truth or self._true_effects(policy)
        for one in answer.estimates:
            self._values[one.name] = one.value
            if one.name in self._truth:
                truth = self._truth[one.name]
                self._covered.setdefault(one.name, []).append(one.low <= truth <= one.high)
                if one.low > 0 or one.high < 0:
                    self._called.add(one.name)
                self._errors[one.name], self._widths[one.name] = one.value - truth, (one.high - one.low) / 2

    def _true_effects(self, policy: Comparing) -> dict[str, float]:
        rng = np.random.default_rng(0)
        contexts = self._environment.contexts(0, min(_PEOPLE, self._spec.experiment.horizon), rng)
        means, groups = self._environment.means(contexts), policy.groups(scaled(contexts, self._spec))
        self._people, self._compared = (means, groups), list(policy.comparisons(self._spec))
        found = {}
        for name, group, arm, other in self._compared:
            chosen = means if group is None else means[groups == group]
            if len(chosen):
                found[name] = float((chosen[:, arm] - chosen[:, other]).mean())
        return found

    def facts(self) -> dict[str, float]:
        """Return the shares of intervals that hold the truth, at the end and at all looks; and of false positives.

        Errors and half-widths are of the last estimates. What was never estimated counts nowhere: of nothing they are
        nan, and nothing is lost afterwards.
        """
        none = [name for name in self._covered if abs(self._truth[name]) <= _NONE]
        some = [name for name in self._covered if name not in none]
        return {
            "judged": float(len(self._covered)),
            "coverage": _mean([seen[-1] for seen in self._covered.values()]),
            "coverage_at_all_looks": _mean([all(seen) for seen in self._covered.values()]),
            "false_positives": _mean([name in self._called for name in none]),
            "effects_called": _mean([name in self._called for name in some]),
            "effect_error": float(np.sqrt(_mean([error**2 for error in self._errors.values()]))),
            "half_width": _mean([*self._widths.values()]),
            "welfare_lost": self._lost_afterwards(),
        }

    def _lost_afterwards(self) -> float:
        """Return what a person loses on average who gets the arm of the largest estimate in their group.

        Where nothing is known of a group, that of all people decides; an arm that was never estimated is not taken.
        """
        if self._people is None:
            return 0.0
        means, groups = self._people
        known: dict[int | None, dict[int, float]] = {None: {}}
        for name, group, arm, other in self._compared:
            if name in self._values:
                known.setdefault(group, {})[arm] = self._values[name]
                known[group].setdefault(other, 0.0)
        chosen = np.full(len(means), _largest(known[None]))
        for group, values in known.items():
            if group is not None:
                chosen[groups == group] = _largest(values)
        return float((means.max(axis=1) - means[np.arange(len(means)), chosen]).mean())


def _largest(values: dict[int, float]) -> int:
    """Return the arm of the largest value; the first arm if there are none."""
    return max(values, key=lambda arm: values[arm]) if values else 0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def compares(policy: Any) -> TypeGuard[Comparing]:
    """Tell whether a policy's experiment estimates differences between arms."""
    return hasattr(type(policy), "comparisons")
