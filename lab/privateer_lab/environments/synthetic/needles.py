"""People for whom every arm has many features, few of which matter."""

from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection


@runtime_checkable
class OfArmsSpec(Protocol):
    """A spec whose arms have ``arm_features`` numbers each, within the bounds of ``context``, arm by arm."""

    arm_features: int
    arm_count: int
    context: Any
    reward: Any


class NeedlesSection(EnvironmentSection):
    """Mean rewards are linear in a few of the numbers of the arm: the middle of the range, and their sum of products.

    Attributes
    ----------
    coefficients
        What moving a number by half its range adds to the reward; the seed says which features have them.
    deviation
        Standard deviation of normal noise in rewards.
    correlation
        Of the normal variables, one after the other, whose ranks the numbers of an arm are; they stay uniform.
    intercept
        What is added to every reward, and ``shift``: what is added to every number, in half ranges.
    """

    needs: ClassVar[type] = OfArmsSpec
    name: Literal["needles"]
    coefficients: tuple[float, ...] = Field(default=(0.5, -0.5, 0.5), min_length=1, max_length=1000)
    deviation: float = Field(default=0.5, ge=0, le=1e6, allow_inf_nan=False)
    correlation: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    intercept: float = Field(default=0.0, ge=-1e6, le=1e6, allow_inf_nan=False)
    shift: float = Field(default=0.0, ge=-1, le=1, allow_inf_nan=False)

    def environment(self, spec: OfArmsSpec, seed: int) -> "Needles":
        """Make the environment of a seed, which decides which features matter.

        Raises
        ------
        SpecError
            If there are fewer features than coefficients, or mean rewards leave the spec's range.
        """
        size, half = sum(map(abs, self.coefficients)), spec.reward.half_range
        if len(self.coefficients) > spec.arm_features:
            detail = f"must be at most {spec.arm_features}, the features of an arm"
            raise SpecError(detail, field="population.coefficients", remedy="leave some out")
        if not size + abs(self.intercept) <= half:
            detail = f"add up to {size + abs(self.intercept):g}, and rewards are within {half:g} of their middle"
            remedy = "make them smaller, or widen reward.low and reward.high"
            raise SpecError(detail, field="population.coefficients", remedy=remedy)
        return Needles(self, spec, seed)


class Needles(Environment):
    """Contexts, and rewards of a few of their features.

    Attributes
    ----------
    places
        Which features of an arm matter, (s,), in order.
    coefficients
        Those of their coefficients, (s,).
    """

    def __init__(self, section: NeedlesSection, spec: OfArmsSpec, seed: int) -> None:
        self._section, self._shape = section, (spec.arm_count, spec.arm_features)
        self._low, self._half = spec.context.low, (spec.context.high - spec.context.low) / 2
        self._middle = spec.reward.middle + section.intercept
        rng = np.random.default_rng([seed, 13, spec.arm_features])
        places = rng.choice(spec.arm_features, len(section.coefficients), replace=False)
        order = np.argsort(places)
        self.places, self.coefficients = places[order], np.array(section.coefficients)[order]

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw the numbers of all arms, (n, arms * features), in their own units."""
        arms, features = self._shape
        drawn: Array = (
            self._correlated(people, rng) if self._section.correlation else rng.random((people, arms * features))
        )
        drawn *= 2 * self._half
        drawn += self._low + self._half * self._section.shift
        return np.asarray(np.clip(drawn, self._low, self._low + 2 * self._half) if self._section.shift else drawn)

    def _correlated(self, people: int, rng: np.random.Generator) -> Array:
        """Draw uniform numbers of normal variables, each of which correlates with the one before it."""
        share = self._section.correlation
        normal = rng.normal(size=(people, *self._shape))
        for place in range(1, self._shape[1]):
            normal[:, :, place] = share * normal[:, :, place - 1] + np.sqrt(1 - share**2) * normal[:, :, place]
        return np.asarray(ndtr(normal).reshape(people, self._shape[0] * self._shape[1]))

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        numbers = contexts.reshape(len(contexts), *self._shape)[:, :, self.places]
        return np.asarray(self._middle + ((numbers - self._low) / self._half - 1) @ self.coefficients)

    def rewards(self, contexts: Array, decisions: Arms, rng: np.random.Generator) -> Array:
        """Draw rewards of the arms, (n,)."""
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._section.deviation * rng.normal(size=len(means)))
