"""Specs with some of their features, for the same people; and which of them tell most of what is best for whom."""

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms import parse_spec
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment, PlayedRewards, environment_for

Array = NDArray[np.float64]
_PEOPLE: Final = 20_000
"""People over whom features are compared."""
_PARTS: Final = 6
"""Parts into which a number is cut for that, each with as many people."""
_MOST: Final = 3
"""Most features of a subset: more divide these people too far."""
_MORE: Final = 0.01
"""A further feature must add such a share of what all people's best options earn above one option for all."""


class KeptFeatures(Environment):
    """The people of another environment, of whom devices know some features only.

    people: the environment.
    kept: places of the features that are left, of so many ``features``.
    features: how many there are.
    """

    def __init__(self, people: Environment, kept: Sequence[int], features: int) -> None:
        self._people = people
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
        return self._people.means(self._restored(contexts))

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        return self._people.rewards(self._restored(contexts), decisions, rng)

    @override
    def play(self, decisions: Any, contexts: Array) -> PlayedRewards:
        return self._people.play(decisions, self._restored(contexts))

    @override
    def before(self, contexts: Array, names: Sequence[str]) -> Array:
        return self._people.before(self._restored(contexts), names)


def with_features(spec: ArmsSpec, kept: Sequence[str]) -> ArmsSpec:
    """Return a spec with some of its features."""
    tables = spec.model_dump(exclude_none=True)
    features = tables["context"]["features"]
    tables["context"]["features"] = {name: features[name] for name in features if name in kept}
    return cast(ArmsSpec, parse_spec(tables))


def people_with(spec: ArmsSpec, kept: Sequence[str], seed: int) -> Environment:
    """Return the people of a spec, of whom devices know the features that are kept."""
    names = list(spec.features)
    return KeptFeatures(environment_for(spec, seed), [names.index(one) for one in names if one in kept], len(names))


def telling(spec: ArmsSpec) -> list[tuple[str, ...]]:
    """Return the features that tell most, the best one first, then with the next, as long as another one adds to it.

    What a feature tells is what those could earn who know it, and all mean rewards; no learner is asked.
    """
    names = list(spec.features)
    rng = np.random.default_rng(0)
    people = environment_for(spec, 0)
    contexts = people.contexts(0, min(_PEOPLE, spec.experiment.horizon), rng)
    means = people.means(contexts)[:, [place for place, may in enumerate(spec.playable) if may]]
    codes = [_codes(contexts[:, j]) for j in range(len(names))]
    single = float(means.mean(axis=0).max())
    least = _MORE * (float(means.max(axis=1).mean()) - single)
    found: list[tuple[str, ...]] = []
    cells, earned = np.zeros(len(means), np.int64), single
    for _ in range(min(_MOST, len(names) - 1)):
        left = [j for j in range(len(names)) if not found or names[j] not in found[-1]]
        values = [_earned(_finer(cells, codes[j]), means) for j in left]
        best = int(np.argmax(values))
        if values[best] <= earned + least:
            break
        cells, earned = _finer(cells, codes[left[best]]), values[best]
        chosen = {names[left[best]], *(found[-1] if found else ())}
        found.append(tuple(name for name in names if name in chosen))
    return found


def _codes(values: Array) -> NDArray[np.int64]:
    """Return a number for each person's value, (n,): its own if there are few, that of its part otherwise."""
    known = np.unique(values[~np.isnan(values)])
    edges = known if len(known) <= 2 * _PARTS else np.quantile(values[~np.isnan(values)], np.arange(1, _PARTS) / _PARTS)
    return np.where(np.isnan(values), -1, np.searchsorted(edges, np.nan_to_num(values))).astype(np.int64)


def _finer(cells: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    named = cells * (int(codes.max()) + 2) + codes + 1
    return np.asarray(np.unique(named, return_inverse=True)[1], np.int64)


def _earned(cells: NDArray[np.int64], means: Array) -> float:
    """Return what people earn if each gets the best option of the others in their cell: half of them choose for half.

    cells: shape (n,).
    means: shape (n, options).
    """
    order = np.arange(len(cells)) % 2
    earned = 0.0
    for half in (0, 1):
        ours, theirs = order == half, order != half
        sums = np.zeros((int(cells.max()) + 1, means.shape[1]))
        np.add.at(sums, cells[theirs], means[theirs])
        sums[~np.isin(np.arange(len(sums)), cells[theirs])] = means[theirs].mean(axis=0)
        earned += float(means[ours, sums[cells[ours]].argmax(axis=1)].sum())
    return earned / len(cells)
