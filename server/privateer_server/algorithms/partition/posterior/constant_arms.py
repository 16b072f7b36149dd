"""The model that the best arm is the same for everybody, beside the process, weighed by what releases say of both."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privateer_server.algorithms.partition.kernel import ConstantKernel, Kernel, PriorScale
from privateer_server.algorithms.partition.posterior.observations import Observations

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_TELLING: Final = 0.2
"""A level nearer to 0 than this does not tell how many people are in a bin: what they add up to is nearly 0 anyway."""
_LIKELY: Final = 0.5
_WHILE_ASKING: Final = 1 / 50
"""Odds beforehand that arms differ by the same for everybody, in rounds: what their coins do not ask is not learned.
At even odds a few hundred people who report by chance as if it were so keep it so for thousands."""
_CROWDED: Final = (0.05, 10.0)
"""A bin is taken to have this many times the people that are expected, at least and at most."""


@dataclass(frozen=True)
class ConstantArms:
    """What is known of values if arms differ by the same for everybody."""

    probability: float  # that they do, where it is as likely as not before anybody reported: last policies go by it
    # mean, variance: shape (boxes, arms): values then, of bins and of other boxes that were observed, in this order;
    # variances are those without what all arms have in common
    mean: Array
    variance: Array

    @classmethod
    def beside(cls, observations: Observations, kernel: Kernel, prior: PriorScale) -> "ConstantArms":
        """Return it beside the model in use, whose ``kernel`` and ``prior`` these are.

        Both have a common part here, so that wrong shares of people speak for neither. Where a bin has more people than
        expected, arms differ by more in what is observed; values that are far from 0 tell how many people there are.
        """
        constant = [ConstantKernel(kernel.lengths, kernel.spread, kernel.space)]
        if abs(prior.level) > _TELLING:
            values = prior.level + prior.scale * observations.posterior(constant[0])[0].mean(axis=1)
            constant.append(replace(constant[0], crowding=np.clip(values / prior.level, *_CROWDED)))
        likelihoods = [observations.likelihood(one) for one in constant]
        likelier = int(np.argmax(likelihoods))
        odds = likelihoods[likelier] - observations.likelihood(replace(kernel, common=True))
        mean, variance = observations.posterior(constant[likelier])
        return cls(float(expit(odds)), prior.level + prior.scale * mean, prior.scale**2 * variance)

    @property
    def while_asking(self) -> float:
        """The probability that they do, in rounds, where it was unlikely before anybody reported."""
        told = _WHILE_ASKING * self.probability
        return told / (told + 1 - self.probability)

    def averaged(self, mean: Array, asks: bool) -> Array:
        """Return the means of bins under both models, (bins, arms), where those of the model in use are ``mean``.

        ``asks`` is whether they are for a round, whose reports can still correct them, or for a last policy.
        """
        probability = self.while_asking if asks else self.probability
        return np.asarray(probability * self.mean[: len(mean)] + (1 - probability) * mean)

    def warnings(self) -> tuple[str, ...]:
        """Return that last policies go by it, where it is the likelier model."""
        if self.probability <= _LIKELY:
            return ()
        return (
            "reports do not show that contexts matter: one option is best for everybody with probability "
            f"{self.probability:.2f}, and the last policy goes by that",
        )
