"""Specs with some of their features, for the same people."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment, PlayedRewards

Array = NDArray[np.float64]


class KeptFeatures(Environment):
    """The people of another environment, of whom devices know some features only, and who get some options only.

    people: the environment.
    kept: places of the features that are left, of so many ``features``.
    features: how many there are.
    options: places of the options that are left; None: all of them.
    """

    def __init__(
        self, people: Environment, kept: Sequence[int], features: int, options: Sequence[int] | None = None
    ) -> None:
        self._people, self._options = people, None if options is None else np.array(options)
        self._first = [*kept, *(j for j in range(features) if j not in kept)]

    def _restored(self, contexts: Array) -> Array:
        found = contexts.copy()
        found[:, self._first] = contexts[:, : len(self._first)]
        return found

    @override
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        found = self._people.contexts(seen, people, rng)
        return np.concatenate([found[:, self._first], found[:, len(self._first) :]], axis=1)

    @override
    def means(self, contexts: Array) -> Array:
        found = self._people.means(self._restored(contexts))
        return found if self._options is None else found[:, self._options]

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        return self._people.rewards(self._restored(contexts), self._decided(decisions), rng)

    @override
    def play(self, decisions: Any, contexts: Array) -> PlayedRewards:
        """Return what decisions may expect beside what all options would bring, also those that nobody gets."""
        return self._people.play(self._decided(decisions), self._restored(contexts))

    def _decided(self, decisions: Any) -> Any:
        return decisions if self._options is None else Arms(self._options[decisions.arms])

    @override
    def before(self, contexts: Array, names: Sequence[str]) -> Array:
        return self._people.before(self._restored(contexts), names)


def people_told(people: Environment, known: ArmsSpec, spec: ArmsSpec) -> Environment:
    """Return the people of one spec, of whom devices know the features of another alone, and who get its options."""
    names, options = list(known.features), None
    if spec.options != known.options:
        options = [known.options.index(one) for one in spec.options]
    if list(spec.features) == names and options is None:
        return people
    return KeptFeatures(people, [names.index(one) for one in spec.features], len(names), options)
