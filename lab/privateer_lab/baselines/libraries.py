"""Libraries of bandits that others wrote, without privacy: Vowpal Wabbit and mabwiser."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.plain_columns import PlainColumns

Array = NDArray[np.float64]
ArmIndices = NDArray[np.int64]
LEARNT_AT_ONCE: Final = 100
"""People after whom a library learns. It could learn after each, but takes far longer to be asked for one arm."""


def library(name: str) -> Any:
    """Import a module of the extra ``benchmark``."""
    try:
        return import_module(name)
    except ImportError:
        detail, remedy = f"{name.partition('.')[0]} is not installed", "install privateer-lab[benchmark]"
        raise SpecError(detail, field="peers", remedy=remedy) from None


class VowpalWabbit(Baseline):
    """A linear model of every arm's cost, which is the reward with its sign changed, and an explorer of Vowpal Wabbit.

    Privacy: none.

    options: those of the explorer, and of the model: ``-q ff`` has it look at all pairs of features.
    """

    at_once = LEARNT_AT_ONCE

    def __init__(self, options: str, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        command = f"--cb_explore {spec.arm_count} {options} --quiet --random_seed {seed + 1}"
        self.model = library("vowpalwabbit").Workspace(command)
        self.columns = PlainColumns(spec)
        self.texts: list[str] = []
        self.shares: Array = np.zeros(0)

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return arms (n,) drawn by the explorer's shares."""
        self.texts = [f"|f {text}" for text in self.columns.texts(visitors.contexts)]
        shares = np.array([self.model.predict(text) for text in self.texts]).reshape(len(visitors), -1)
        ends = np.cumsum(shares, axis=1)
        arms = (self.rng.random((len(visitors), 1)) * ends[:, -1:] > ends).sum(axis=1)
        self.shares = np.take_along_axis(shares, arms[:, None], axis=1)[:, 0]
        return np.asarray(arms)

    def learn(self, _visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these people, one after the other."""
        outcomes = zip(arms.tolist(), values.tolist(), self.shares.tolist(), self.texts, strict=True)
        for arm, value, share, text in outcomes:
            self.model.learn(f"{arm + 1}:{-value:.6g}:{share:.6g} {text}")


class MabWiser(Baseline):
    """A learning policy of mabwiser, with a constant before the one-hot features if there are any.

    Notes
    -----
    Privacy: none.
    """

    at_once = LEARNT_AT_ONCE

    def __init__(self, policy: Callable[[Any], Any], spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        made = library("mabwiser.mab")
        self.model = made.MAB(list(range(spec.arm_count)), policy(made.LearningPolicy), seed=seed)
        self.columns = PlainColumns(spec)
        self.knows = False

    def choose(self, visitors: Visitors) -> ArmIndices:
        """Return the policy's arms, (n,); arms by lot before anybody has reported."""
        if not self.knows:
            return self.rng.integers(0, self.spec.arm_count, len(visitors))
        if self.spec.dimension:
            found = self.model.predict(self.columns.one_hot(visitors.contexts))
            return np.atleast_1d(np.asarray(found, np.int64))
        return np.array([self.model.predict() for _ in range(len(visitors))], np.int64)

    def learn(self, visitors: Visitors, arms: ArmIndices, values: Array) -> None:
        """Learn from these people at once."""
        learn = self.model.partial_fit if self.knows else self.model.fit
        learn(arms, values, *([self.columns.one_hot(visitors.contexts)] if self.spec.dimension else []))
        self.knows = True
