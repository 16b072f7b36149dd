"""Evidence that fades: several memories side by side on the same releases, of which the best predictor is used."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.partition.turns import wider

Array = NDArray[np.float64]

_ENDLESS: Final = 0.7
"""Probability beforehand that nothing moves; the other memories share the rest."""
_SHARED: Final = 20_000.0
"""People after whom half of what is known of the memories' merits is forgotten: it may be another's turn."""
_STICKY: Final = 2.0
"""Another memory takes over when it is this many times as probable."""


@dataclass(frozen=True)
class Bank:
    """What each memory knows. All have the same bins, and all learn from every round.

    Attributes
    ----------
    precision, moment, past_precision, past_moment
        Shapes (memories, bins, arms) and (memories, past bins, arms), as in a learner's state, faded.
    probabilities
        Shape (memories,): how probable it is that each predicts best.
    used
        The memory whose knowledge makes policies.
    own
        The experiment's own people who had reported when it was last brought up to date.
    """

    precision: Array
    moment: Array
    past_precision: Array
    past_moment: Array
    probabilities: Array
    used: int
    own: int

    def faded(self, half_lives: tuple[float, ...], people: int) -> "Bank":
        """Return what is left of it after so many people."""
        left = 0.5 ** (people / np.array(half_lives))[:, None, None]
        return replace(
            self,
            precision=left * self.precision,
            moment=left * self.moment,
            past_precision=left * self.past_precision,
            past_moment=left * self.past_moment,
        )

    def learned(self, precision: Array, moment: Array) -> "Bank":
        """Add what was observed, (bins, arms) each, to every memory."""
        return replace(self, precision=self.precision + precision, moment=self.moment + moment)

    def weighed(self, scores: Array, people: int) -> "Bank":
        """Use the memory that predicts best, after the logarithms of the densities (memories,) that they predicted."""
        left = 0.5 ** (people / _SHARED)
        merits = left * self.probabilities + (1 - left) * beforehand(len(scores))
        merits = merits * np.exp(scores - np.max(scores))
        merits = np.maximum(merits / merits.sum(), 1e-12)
        best = int(np.argmax(merits))
        used = best if merits[best] > _STICKY * merits[self.used] else self.used
        return replace(self, probabilities=merits, used=used)

    def rearmed(self, added: int) -> "Bank":
        """Return it with so many more arms at the end, of which nothing is known."""
        return wider(self, added, ("precision", "moment", "past_precision", "past_moment"))

    def halved(self, copies: NDArray[np.int64], fresh: NDArray[np.bool_], ready: NDArray[np.bool_]) -> "Bank":
        """Return it after bins that are ``ready`` were halved; the arguments are as `halving.halved` has them."""
        kept = ~fresh[:, None]
        return replace(
            self,
            precision=self.precision[:, copies] * kept,
            moment=self.moment[:, copies] * kept,
            past_precision=np.concatenate([self.past_precision, self.precision[:, ready]], axis=1),
            past_moment=np.concatenate([self.past_moment, self.moment[:, ready]], axis=1),
        )


def beforehand(memories: int) -> Array:
    """How probable it is that each memory predicts best, before anything is known; the endless one is the first."""
    probabilities = np.full(memories, (1 - _ENDLESS) / max(1, memories - 1))
    probabilities[0] = _ENDLESS
    return probabilities


def new_bank(half_lives: tuple[float, ...], arms: int, used: int) -> Bank:
    """Return a bank that knows nothing, with one bin, of which one memory is used."""
    nothing, past = np.zeros((len(half_lives), 1, arms)), np.zeros((len(half_lives), 0, arms))
    return Bank(nothing, nothing, past, past, beforehand(len(half_lives)), used, 0)
