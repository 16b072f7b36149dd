"""Decisions of policies: arms, points, and plays of actions."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class Arms:
    """An arm for each person.

    Attributes
    ----------
    arms
        Shape (n,), int64: indices of the experiment's arms. Whoever sees an arm may learn something about its person.
    """

    arms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arms)


@dataclass(frozen=True)
class Plays:
    """Actions that are played for everybody, whoever is asked about them: public.

    Attributes
    ----------
    actions
        Shape (s,), int64: rows of the experiment's actions, rising.
    times
        Shape (s,), int64: how often each is played.
    """

    actions: NDArray[np.int64]
    times: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Points(Arms):
    """Points for each person, in the directions of their arms.

    Attributes
    ----------
    points
        Shape (n, k, d), float64: one point a person, or two.
    """

    NAMES: ClassVar[tuple[str, str]] = ("first", "second")
    """What the two points of a person are called."""

    points: NDArray[np.float64]

    @property
    def shown(self) -> list[float] | dict[str, list[float]]:
        """What the application of the first person is given: a point's coordinates, or those of each of the two."""
        first: list[list[float]] = self.points[0].tolist()
        return first[0] if len(first) == 1 else dict(zip(self.NAMES, first, strict=True))


Decisions: TypeAlias = Arms | Plays
