"""Libraries that others wrote, without privacy, as they come: Vowpal Wabbit and mabwiser."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.descent import centred

Array = NDArray[np.float64]
Arms = NDArray[np.int64]
_LIBRARIES: Final = ("vowpalwabbit", "mabwiser.mab")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        detail, remedy = f"{name.partition('.')[0]} is not installed", "install privateer-lab[benchmark]"
        raise SpecError(detail, field="peers", remedy=remedy) from None


class VowpalWabbit(Baseline):
    """A linear model of every arm's cost, which is the reward with its sign changed, and an explorer of Vowpal Wabbit.

    Notes
    -----
    Privacy: none.
    """

    def __init__(self, explorer: str, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        options = f"--cb_explore {spec.arm_count} {explorer} --quiet --random_seed {seed + 1}"
        self.model = _library(_LIBRARIES[0]).Workspace(options)
        self.texts: list[str] = []
        self.shares: Array = np.zeros(0)

    def choose(self, visitors: Visitors) -> Arms:
        """Return arms (n,) drawn by the explorer's shares."""
        names = [f"x{place}" for place in range(self.spec.dimension)]
        rows = centred(visitors.contexts)[:, 1:].tolist()
        self.texts = ["|f " + " ".join(map("{}:{:.6g}".format, names, row)) for row in rows]
        shares = np.array([self.model.predict(text) for text in self.texts]).reshape(len(rows), -1)
        ends = np.cumsum(shares, axis=1)
        arms = (self.rng.random((len(rows), 1)) * ends[:, -1:] > ends).sum(axis=1)
        self.shares = np.take_along_axis(shares, arms[:, None], axis=1)[:, 0]
        return np.asarray(arms)

    def learn(self, _visitors: Visitors, arms: Arms, values: Array) -> None:
        """Learn from these people, one after the other."""
        told = zip(arms.tolist(), values.tolist(), self.shares.tolist(), self.texts, strict=True)
        for arm, value, share, text in told:
            self.model.learn(f"{arm + 1}:{-value:.6g}:{share:.6g} {text}")


class MabWiser(Baseline):
    """A learning policy of mabwiser, with a constant before the features if there are any.

    Notes
    -----
    Privacy: none.
    """

    def __init__(self, policy: Callable[[Any], Any], spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        library = _library(_LIBRARIES[1])
        self.model = library.MAB(list(range(spec.arm_count)), policy(library.LearningPolicy), seed=seed)
        self.knows = False

    def choose(self, visitors: Visitors) -> Arms:
        """Return the policy's arms, (n,); arms by lot before anybody has reported."""
        if not self.knows:
            return self.rng.integers(0, self.spec.arm_count, len(visitors))
        if self.spec.dimension:
            found = self.model.predict(centred(visitors.contexts))
            return np.atleast_1d(np.asarray(found, np.int64))
        return np.array([self.model.predict() for _ in range(len(visitors))], np.int64)

    def learn(self, visitors: Visitors, arms: Arms, values: Array) -> None:
        """Learn from these people at once."""
        learn = self.model.partial_fit if self.knows else self.model.fit
        learn(arms, values, *([centred(visitors.contexts)] if self.spec.dimension else []))
        self.knows = True


_EXPLORERS: Final = {"epsilon-greedy": "--epsilon 0.05", "SquareCB": "--squarecb", "cover": "--cover 5"}


def peers_of(spec: ArmsSpec) -> dict[str, Callable[[ArmsSpec, int], Baseline]]:
    """Return what makes each peer, by name: the policies of mabwiser are those for contexts, if there are any.

    Raises
    ------
    SpecError
        If a library is not installed.
    """
    for library in _LIBRARIES:
        _library(library)
    found: dict[str, Callable[[ArmsSpec, int], Baseline]] = {
        f"Vowpal Wabbit, {name}": partial(VowpalWabbit, options) for name, options in _EXPLORERS.items()
    }
    policies = ("LinTS", "LinUCB") if spec.dimension else ("ThompsonSampling", "UCB1")
    return found | {f"mabwiser, {name}": partial(MabWiser, partial(_made, name)) for name in policies}


def _made(name: str, policies: Any) -> Any:
    return getattr(policies, name)()
