"""What a reference policy is: it plays the same people as the experiment's own policy, and learns in its own way."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer.experiment import Spec


@dataclass(frozen=True)
class Visitors:
    """Some of a round's people, in order.

    Attributes
    ----------
    number
        Of this group, from 0.
    raw
        Shape (n, population's features): contexts in their own units.
    contexts
        Shape (n, d): features clipped and scaled to [0, 1], as a device does.
    means
        Shape (n, arms): expected rewards, the truth. Of all references the oracle alone looks at it.
    """

    number: int
    raw: NDArray[np.float64]
    contexts: NDArray[np.float64]
    means: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.contexts)


class Baseline:
    """A policy to compare with. Rounds are opened, played by groups of people, and closed.

    Parameters
    ----------
    spec
        Of the experiment: arms, features, horizon and epsilon.
    seed
        Of everything that the reference draws.
    """

    private: ClassVar[bool] = False
    """Whether it is made for local privacy, so that the spec must promise an epsilon."""
    leaks: ClassVar[bool] = False
    """Whether it breaks the promise that it makes."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng([seed, 5])

    def open(self, batch: int) -> None:
        """A round of ``batch`` people begins; 0: nobody is asked any more, and the people left play what is best."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Arms of the next people of the round, shape (n,)."""
        raise NotImplementedError

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """What these people, who were the last to choose, received: rewards scaled to [0, 1], shape (n,)."""

    def close(self) -> None:
        """The round is over: the policy may change."""
