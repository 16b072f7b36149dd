"""The links of generalized linear rewards: from x theta to the expected reward."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
_SURE: Final = 0.02
"""No reward is predicted closer to 0 or 1 than this: residuals are divided by the larger of the distances."""


@dataclass(frozen=True)
class Link:
    """A link, for rewards in [0, 1].

    Attributes
    ----------
    name
        What specs call it.
    centre
        x theta of an expected reward of 1/2.
    scale
        How much x theta changes where the expected reward, near 1/2, changes by 1.
    unit
        What x theta is in, for people.
    """

    name: str
    centre: float
    scale: float
    unit: str

    def means(self, products: Array) -> Array:
        """Return expected rewards, away from 0 and 1, at products x theta of any shape."""
        if self.name == "identity":
            return np.asarray(np.minimum(np.maximum(products, _SURE), 1 - _SURE))
        return np.asarray(_SURE + (1 - 2 * _SURE) * expit(products))

    def slopes(self, means: Array) -> Array:
        """Return the derivative of the expected reward at ``means``; of the identity without its clipping."""
        if self.name == "identity":
            return np.ones_like(means)
        share = (means - _SURE) / (1 - 2 * _SURE)
        return np.asarray((1 - 2 * _SURE) * share * (1 - share))

    def truths(self, products: Array) -> Array:
        """Return the expected rewards that the model says: as `means`, without clipping of the identity."""
        return products if self.name == "identity" else self.means(products)


LINKS: Final = {
    link.name: link
    for link in (
        Link("identity", 0.5, 1.0, "the mean reward, from 0 at its lower bound to 1 at its upper one"),
        Link("logistic", 0.0, 4.0, "log odds of the mean reward, from 0 at its lower bound to 1 at its upper one"),
    )
}
