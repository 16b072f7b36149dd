"""Baselines play the same people as an experiment's own policy and learn in their own way; they are found by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.plugins import Plugins
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import COLUMNS_MAX
from privateer_core.spec.spec import Spec

GROUP: Final = 1 << 16
"""Most people at a time: bounds memory, whatever the size of a round."""


@dataclass(frozen=True)
class Visitors:
    """Some of a round's people, in order.

    Attributes
    ----------
    number
        The number of this group of people, from 0.
    raw
        Shape (n, d + more): contexts in their own units.
    contexts
        Shape (n, columns), in [0, 1]: features as a device encodes them.
    means
        Shape (n, arms): expected rewards, the truth. Only the oracle among baselines looks at it.
    """

    number: int
    raw: NDArray[np.float64]
    contexts: NDArray[np.float64]
    means: NDArray[np.float64]

    first: int = 0
    """The place of the first of them in their group, 0 unless they are a part of it."""

    def __len__(self) -> int:
        return len(self.contexts)

    def parts(self, most: int) -> Iterator["Visitors"]:
        """Yield them in order, at most so many at a time."""
        for start in range(0, len(self), most):
            some = slice(start, start + most)
            yield Visitors(self.number, self.raw[some], self.contexts[some], self.means[some], self.first + start)


class Baseline:
    """A policy to compare with. Rounds are opened, played by groups of people, and closed.

    Parameters
    ----------
    spec
        The experiment's spec: arms, features, horizon and epsilon.
    seed
        Seeds everything that the baseline draws.
    """

    private: ClassVar[bool] = False
    """Whether it is made for local privacy, so that the spec must promise an epsilon."""
    leaks: ClassVar[bool] = False
    """Whether it breaks the promise that it makes."""
    columns_max: ClassVar[int] = COLUMNS_MAX
    """Columns of an encoded context that it can take."""
    at_once: int = GROUP
    """Most people who get their arms before it is told of their rewards."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng([seed, 5])

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` people; 0: nobody is asked any more, and the people left play what is best."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the arms of the next people of the round, shape (n,)."""
        raise NotImplementedError

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Take the rewards of the people who chose last, scaled to [0, 1], shape (n,)."""

    def close(self) -> None:
        """End the round: the policy may change."""


def with_arms(spec: Spec) -> ArmsSpec:
    """Return the spec of an experiment that chooses arms.

    Raises
    ------
    SpecError
        If it is one of another kind.
    """
    if not isinstance(spec, ArmsSpec):
        raise SpecError(
            "baselines choose an arm for each person, and this experiment has no arms",
            field="--baseline",
            remedy="leave it out",
        )
    return spec


BASELINES: Final = Plugins[type[Baseline]]("privateer.baselines", "distribution that brings it", "--baseline")
"""The installed baselines by name: `Baseline` says what each is."""


def chosen(names: list[str], spec: Spec) -> list[str]:
    """Return the baselines that these names ask for, without repetition; ``all`` is every one that the spec allows.

    Raises
    ------
    SpecError
        If the experiment has no arms, a name is unknown or asks for local privacy where no epsilon is promised, or the
        features make more columns than a baseline can take.
    """
    if names:
        with_arms(spec)
    possible = [name for name, made in BASELINES.items() if spec.privacy.epsilon is not None or not made.private]
    for name in names:
        if name != "all" and name not in BASELINES:
            known = ", ".join(BASELINES)
            raise SpecError(f"no baseline {name!r}", field="--baseline", remedy=f"choose from all, {known}")
        if name != "all" and name not in possible:
            raise SpecError(
                f"{name} needs an epsilon, and the spec promises none",
                field="--baseline",
                remedy="set privacy.model and privacy.epsilon, or leave it out",
            )
        if name != "all" and not _takes(name, spec):
            raise SpecError(
                f"{name} takes 1 to {BASELINES[name].columns_max} columns of features, and there are {spec.dimension}",
                field="--baseline",
                remedy="leave it out",
            )
    return [name for name in possible if _takes(name, spec) and (name in names or "all" in names)]


def _takes(name: str, spec: Spec) -> bool:
    """Whether a baseline can do with a spec's columns: those that learn need one."""
    made = BASELINES[name]
    return (made.learn is not Baseline.learn) <= spec.dimension <= made.columns_max
