"""People whose rewards are normal numbers, on which arms have stated effects, and who had a number like it before."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import Finite, Section
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.environments.synthetic.effects import EffectsSection

Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NumberBefore(Section):
    """A number that people have before anything is chosen for them; normal, and apart from others of its kind.

    Attributes
    ----------
    mean, deviation
        Its law.
    correlation
        With the reward under every arm.
    """

    mean: Finite
    deviation: Deviation
    correlation: float = Field(ge=-1, le=1, allow_inf_nan=False)


class NumbersSection(EnvironmentSection):
    """Normal rewards in their own units.

    Attributes
    ----------
    mean, deviation
        Of the rewards of the first arm; the others have its deviation.
    effects
        What each arm adds to the mean; 0 for arms that are not named.
    before
        Numbers from before by name, of which the spec may adjust rewards by some.
    """

    name: Literal["numbers"] = "numbers"
    mean: Finite
    deviation: Deviation
    effects: dict[str, Finite] = Field(default_factory=dict)
    before: dict[str, NumberBefore] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _some_is_left(self) -> Self:
        if sum(one.correlation**2 for one in self.before.values()) > 1:
            raise ValueError("before: correlations must have a sum of squares of 1 at most")
        return self

    def environment(self, spec: ArmsSpec, seed: int) -> "NumbersEnvironment":
        """Make the environment, which is the same for every seed."""
        for arm in self.effects:
            if arm not in spec.options[1:]:
                raise SpecError("must be arms but the first", field="population.effects", remedy="see experiment.arms")
        for name in spec.reward.adjust:
            if name not in self.before:
                detail = "must be one of population.before"
                raise SpecError(detail, field=f"reward.adjust.{name}", remedy=f"add population.before.{name}")
        return NumbersEnvironment(self, EffectsSection().environment(spec, seed), spec.options)


class NumbersEnvironment(Environment):
    """Independent features, and normal rewards that numbers from before explain in part."""

    def __init__(self, section: NumbersSection, people: Environment, options: tuple[str, ...]) -> None:
        self._section, self._people = section, people
        self._effects = np.array([section.effects.get(arm, 0.0) for arm in options])
        self._slopes = np.array(
            [section.deviation * one.correlation / one.deviation for one in section.before.values()]
        )
        self._means = np.array([one.mean for one in section.before.values()])
        explained = sum(one.correlation**2 for one in section.before.values())
        self._left = section.deviation * np.sqrt(max(0.0, 1 - explained))

    @override
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw features, and last the numbers from before: no device reads them in a context's columns."""
        before = [rng.normal(one.mean, one.deviation, people) for one in self._section.before.values()]
        return np.column_stack([self._people.contexts(seen, people, rng), *before])

    @override
    def means(self, contexts: Array) -> Array:
        above = (self._had(contexts) - self._means) @ self._slopes
        return np.asarray(self._section.mean + above[:, None] + self._effects)

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._left * rng.standard_normal(len(means)))

    @override
    def before(self, contexts: Array, names: Any) -> Array:
        known, had = list(self._section.before), self._had(contexts)
        return np.column_stack([had[:, known.index(name)] for name in names]) if names else had[:, :0]

    def _had(self, contexts: Array) -> Array:
        return contexts[:, contexts.shape[1] - len(self._means) :]
