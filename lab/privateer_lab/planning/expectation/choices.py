"""What a reader may change in a spec: who is trusted, epsilon, features, the algorithm, people, rounds."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import default_environment, environment_for
from privateer_lab.planning.expectation.kept_features import people_told
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.feature_sets.afforded import sets_for, with_some
from privateer_lab.planning.other_algorithms import by_features, candidate_names, tables_of, with_algorithm
from privateer_lab.planning.plain_tests import is_test
from privateer_lab.planning.plans import EPSILON_MAX, Refused, Variant, possible, refusal

Kind: TypeAlias = Literal["as it is", "trust", "epsilon", "features", "algorithm", "people", "rounds"]
"""What a choice changes."""
_TIMES: Final = 3
"""How much larger or smaller rounds are tried."""
_GROWTH: Final = 0.3
"""Growth of rounds that is tried where they hardly grow."""
_USUAL_EPSILON: Final = 1.0
"""The promise to compare with where a spec has none."""


@dataclass(frozen=True)
class VariedSpec:
    """A spec with one thing changed."""

    kind: Kind  # what is changed
    change: str  # how, in a few words
    variant: Variant  # the spec that comes of it, under its promise
    whole: ArmsSpec | None = None  # the spec whose people they are, where this one has some of its features only

    @property
    def spec(self) -> Spec:
        """The changed spec."""
        return self.variant.spec

    @property
    def is_contextual(self) -> bool:
        """Whether its algorithm chooses by features."""
        return isinstance(self.spec, ArmsSpec) and self.spec.algorithm.name in by_features()

    def play(self, seed: int, seconds: float) -> PartialRun | SpecError:
        """Run it once, as `partial_runs.played` does; a refusal says under which promise."""
        whole, spec = self.whole, cast(ArmsSpec, self.spec)
        people = (lambda own: people_told(environment_for(whole, own), whole, spec)) if whole else None
        found = played(self.spec, seed, seconds, people)
        return refusal(self.spec, found) if isinstance(found, SpecError) else found


def choices_of(
    spec: Spec, models: Sequence[str] | None = None, epsilons: Sequence[float] | None = None
) -> tuple[list[VariedSpec], list[Refused]]:
    """Return what to compare, the spec as it is first; and what is not possible.

    spec: it has a population.
    models, epsilons: trust models and values of epsilon, each with each; by default what a reader would try next.
    """
    own = VariedSpec("as it is", "as the spec says", Variant(spec.privacy.model, spec.privacy.bound, spec))
    if models or epsilons:
        usual = [spec.privacy.bound if spec.privacy.trust.promises else _USUAL_EPSILON]
        promised = [name for name, row in TRUST.items() if row.promises]
        found, refused = _possible(spec, models or promised, epsilons or usual)
        others = [one for one in found if (one.model, one.epsilon) != (own.variant.model, own.variant.epsilon)]
        return [own, *(VariedSpec("trust", _promise(one), one) for one in others)], refused
    promises, refused = _promises(spec)
    return [own, *promises, *_features(spec), *_algorithms(spec), *_sizes(spec)] if not is_test(spec) else [
        own,
        *promises,
    ], refused


def _promise(one: Variant) -> str:
    return f"{one.model}, epsilon {one.epsilon:g}" if math.isfinite(one.epsilon) else "without privacy"


def _promises(spec: Spec) -> tuple[list[VariedSpec], list[Refused]]:
    """Return the other trust models at the same epsilon, that without a promise first, and other epsilons."""
    own = spec.privacy
    epsilon = own.bound if own.trust.promises else _USUAL_EPSILON
    others = sorted((row for row in TRUST.values() if row != own.trust), key=lambda row: row.promises)
    found, refused = _possible(spec, [row.name for row in others], [epsilon])
    made = [VariedSpec("trust", _promise(one), one) for one in found]
    if own.trust.promises:
        near = [one for one in (2 * epsilon, epsilon / 2) if one <= EPSILON_MAX]
        found, more = _possible(spec, [own.model], near)
        made += [VariedSpec("epsilon", f"epsilon {one.epsilon:g}", one) for one in found]
        refused += more
    return made, refused


def _possible(spec: Spec, models: Sequence[str], epsilons: Sequence[float]) -> tuple[list[Variant], list[Refused]]:
    """Return what is possible, as `plans.possible`, and nothing where nothing is: the spec itself is."""
    found: list[Variant] = []
    refused: list[Refused] = []
    for model in models:
        for epsilon in epsilons if TRUST[model].promises else [math.inf]:
            try:
                found += possible(spec, [model], [epsilon])[0]
            except SpecError as error:
                refused.append(Refused(model, epsilon, error))
    return found, refused


def _features(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec with the features alone that pay, and with another algorithm for them, that earns most so."""
    if (
        not isinstance(spec, ArmsSpec)
        or not spec.capabilities.context_decides
        or len(spec.features) < 2
        or spec.sources
    ):
        return
    sets = sets_for(spec)
    promise = spec.privacy.model, spec.privacy.bound
    for kept in sets.names:
        if len(kept) < len(spec.features):
            with suppress(SpecError):  # what it says beside features needs one of the others
                changed = cast(ArmsSpec, parse_spec(with_some(spec.model_dump(exclude_none=True), kept)))
                yield VariedSpec("features", listed(tuple(changed.features)), Variant(*promise, changed), spec)
    name, best = sets.best, sets.by_algorithm[sets.best].last.names
    if best and name != spec.algorithm.name:
        tables = with_some(tables_of(spec), best)
        if (other := with_algorithm(tables, name)) is not None:
            change = f"{listed(tuple(other.features))}, by {name!r}"
            yield VariedSpec("features", change, Variant(*promise, other), spec)


def _algorithms(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec with each other algorithm in its usual settings, that without features among them."""
    if not isinstance(spec, ArmsSpec) or spec.algorithm.name not in by_features() or spec.sources:
        return
    for name in candidate_names():
        changed = with_algorithm(tables_of(spec), name) if name != spec.algorithm.name else None
        if changed is not None:
            variant = Variant(spec.privacy.model, spec.privacy.bound, changed)
            yield VariedSpec("algorithm", name, variant, None if changed.features else spec)


def listed(names: Sequence[str]) -> str:
    """Write names one after the other."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _sizes(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec with more and fewer people, and with other rounds."""
    people, key = getattr(spec.experiment, spec.people_key), spec.people_key
    for times in (0.5, 2):
        wanted = max(1, int(people * times))
        yield from _changed(spec, "people", f"{wanted:,} people", {key: wanted})
    if isinstance(spec, ArmsSpec):
        size, growth = spec.experiment.round_size, spec.experiment.round_growth
        if spec.capabilities.rounds_grow and growth < _GROWTH / 2:
            yield from _changed(spec, "rounds", f"rounds that grow by {_GROWTH:g}", {"round_growth": _GROWTH})
        fewest = spec.smallest_batch
        for wanted in (size * _TIMES, max(fewest, size // _TIMES)):
            if wanted != size:
                yield from _changed(spec, "rounds", f"first rounds of {wanted:,}", {"round_size": wanted})


def _changed(spec: Spec, kind: Kind, change: str, values: dict[str, Any]) -> Iterator[VariedSpec]:
    """Yield the spec with other values in ``[experiment]``, if it may have them."""
    tables = spec.model_dump(exclude_none=True)
    tables["experiment"] |= values
    with suppress(SpecError):
        yield VariedSpec(kind, change, Variant(spec.privacy.model, spec.privacy.bound, parse_spec(tables)))


def peopled(spec: Spec) -> Spec:
    """Return a spec with people: its own, or made-up ones where it has none."""
    return spec if spec.population is not None else spec.model_copy(update={"population": default_environment(spec)})
