"""What policies decide."""

from dataclasses import dataclass
from typing import TypeAlias

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


Decisions: TypeAlias = Arms | Plays
