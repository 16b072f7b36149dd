"""What the best attack on one person achieves, by the certified curve of what is seen of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Parallel
from privateer_core.certificate import Claim

_EPSILONS: Final = 120
_BEYOND: Final = 1.2
"""The curve is read up to so many times the promised epsilon."""


def true_positives(claim: Claim, false: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest share of true positives, (n,), of an attack with these shares of false ones.

    An attack says whether a person's record is this one or another one. At every epsilon with the curve's delta, true
    positives are at most e^epsilon false + delta, and 1 - e^-epsilon (1 - delta - false) (Kairouz, Oh and Viswanath
    2015; Dong, Roth and Su 2022). Where nothing is claimed they may be 1.
    """
    if claim.epsilon is None:
        return np.ones_like(false)
    found = np.ones_like(false)
    for epsilon, delta in curve(claim):
        lower, upper = np.exp(epsilon) * false + delta, 1 - np.exp(-epsilon) * (1 - delta - false)
        found = np.minimum(found, np.minimum(lower, upper))
    return np.clip(found, false, 1.0)


def curve(claim: Claim) -> list[tuple[float, float]]:
    """Return epsilons with the certified delta at each, the claim's own among them."""
    assert claim.epsilon is not None
    points = [(claim.epsilon, claim.delta)]
    if claim.event is not None:
        steps = np.linspace(0.0, _BEYOND * claim.epsilon, _EPSILONS).tolist()
        points += [(one, _delta(claim.event, one) + claim.sampling) for one in steps]
    return [(epsilon, min(1.0, delta)) for epsilon, delta in points]


def _delta(event: Event, epsilon: float) -> float:
    """Return the curve at an epsilon; of rounds with other people in each the worst counts."""
    if isinstance(event, Parallel):
        return max(_delta(one, epsilon) for one in event.events)
    return account(event).delta(epsilon)
