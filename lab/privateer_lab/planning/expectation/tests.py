"""What tests of arms against a control find, in words: the least effects, and what privacy costs of them."""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.answer.facts import Table
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.plain_tests import SEGMENT, least_effects
from privateer_lab.planning.plans import foreseen, with_finite
from privateer_lab.simulation.devices import scaled
from privateer_lab.simulation.parallel import Backend
from privateer_lab.simulation.scores import compares
from privateer_server.rounds.loop import Schedule

_PEOPLE: Final = 20_000
"""People of whom it is seen which segments somebody is in."""
_SHOWN: Final = 6
"""Segments that the words name."""
_ALIKE: Final = ", if all segments have as many people"
_SHARE: Final = 0.25
"""Share of the time that figures of further promises may take."""


def found_by_tests(
    choices: Sequence[VariedSpec], seconds: float, jobs: int | None, backend: Backend
) -> list[dict[str, Any]]:
    """Return what can be found under each promise, where learners know it before anybody is asked.

    The spec's own promise and none come first, as long as they take; others, if that takes a part of ``seconds``.
    """
    promises = [one.variant for one in choices if one.kind in ("as it is", "trust", "epsilon")]
    first = [one for place, one in enumerate(promises) if not place or not one.spec.privacy.trust.promises]
    started = time.perf_counter()
    found = foreseen(first, jobs, backend)
    took = (time.perf_counter() - started) / len(first)
    others = [one for one in promises if one not in first]
    if found and took * len(others) <= _SHARE * seconds:
        found += foreseen(others, jobs, backend)
    empty = empty_segments(choices[0].spec) if found else set()
    return with_finite({**one, "tables": [_inhabited(table, empty) for table in one["tables"]]} for one in found)


def empty_segments(spec: Spec) -> set[str]:
    """Return names of segments in which none of a spec's people is."""
    if (
        spec.population is None
        or not isinstance(spec, ArmsSpec)
        or not compares(policy := Schedule(spec).open(0).policy)
    ):
        return set()
    people = min(_PEOPLE, spec.experiment.horizon)
    contexts = environment_for(spec, 0).contexts(0, people, np.random.default_rng(0))
    groups = set(policy.groups(scaled(contexts, spec)).tolist())
    compared = [one for one in policy.comparisons(spec) if one[1] is not None]
    return {name.removeprefix(f"{spec.options[arm]}: ") for name, group, arm, _ in compared if group not in groups}


def _inhabited(table: Table, empty: Collection[str]) -> Table:
    """Return a table without the rows of segments in which nobody is."""
    if table.names[0] != SEGMENT:
        return table
    return msgspec.structs.replace(table, rows=tuple(row for row in table.rows if row[0] not in empty))


def words_of_tests(spec: Spec, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Say the least effects that are found, where none is, and what would help; nothing where no plan is for effects.

    found: what `found_by_tests` returns, the spec's own promise first.
    """
    rows = [(one, least_effects(one["tables"])) for one in found]
    if not rows or not rows[0][1]:
        return
    (_, own), *others = rows
    people = f"{getattr(spec.experiment, spec.people_key):,}"
    finds = [f"{where}: {_points(spec, value)}" for where, value in own.items() if value is not None]
    if finds:
        more = f"; and {len(finds) - _SHOWN} more below" if len(finds) > _SHOWN else ""
        sizes = f"sizes on{_ALIKE}" if len(own) > 1 and _are_assumed_alike(spec) else "sizes on"
        yield f"With {people} people this test finds effects from these {sizes}: {'; '.join(finds[:_SHOWN])}{more}."
    if len(finds) < len(own):
        yield _nothing(people, own, next((least for one, least in others if one["epsilon"] is None), own))
    if empty := sorted(empty_segments(spec)):
        more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
        where = f"{', '.join(empty[:_SHOWN])}{more}"
        yield f"Nobody of these people is in {where}: segments that have their part as well are told more of."
    for one, least in others:
        promise = f"Under {one['model']} at epsilon {one['epsilon']:g}" if one["epsilon"] else "Without privacy"
        known = [value for value in least.values() if value is not None]
        yield f"{promise} the smallest is {_points(spec, min(known))}." if known else f"{promise} it finds none."


def _are_assumed_alike(spec: Spec) -> bool:
    """Tell whether the spec leaves it open how many people are in each segment."""
    segments = getattr(spec, "segments", None)
    return segments is not None and segments.shares is None


def _nothing(people: str, own: dict[str, float | None], exact: dict[str, float | None]) -> str:
    """Say where no effect is found, and whether more people alone would help: noise is not all that hides effects."""
    hidden = [where for where, value in own.items() if value is None]
    beyond = f" and {len(hidden) - _SHOWN} more" if len(hidden) > _SHOWN else ""
    of_what = f", however large, of {', '.join(hidden[:_SHOWN])}{beyond}" if len(hidden) < len(own) else " at all"
    helps = "raise experiment.horizon, or have fewer segments or arms"
    if any(exact[where] is not None for where in hidden):
        helps = f"raise privacy.epsilon or {helps.removeprefix('raise ')}"
    return f"With {people} people this test can find no effect{of_what}: {helps}."


def _points(spec: Spec, value: float) -> str:
    said = f"{100 * value:.2g} points" if spec.reward.is_rate else f"{float(f'{value:.3g}'):,g}"
    room = (1 - getattr(spec, "rate", 0.0)) * spec.reward.span
    return said if value <= room else f"{said} downwards, as the reward cannot rise so far"
