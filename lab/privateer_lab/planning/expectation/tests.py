"""What tests of arms against a control find, in words: the least effects, and what privacy costs of them."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from privateer_core.answer.facts import Table
from privateer_core.spec.spec import Spec
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.plain_tests import CORRECTED, SEGMENT, least_effects
from privateer_lab.planning.plans import foreseen, with_finite
from privateer_lab.planning.segment_shares import leaves_shares_open, named_shares
from privateer_lab.simulation.parallel import Backend

_SHOWN: Final = 6
"""Segments that the words name."""
_ALIKE: Final = ", if all segments have as many people"
_SAME: Final = 1.005
"""Ratio of two least effects up to which they are one."""
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
    return {name for name, share in named_shares(spec).items() if not share}


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
        sizes = f"sizes on{_ALIKE}" if len(own) > 1 and leaves_shares_open(spec) and not spec.population else "sizes on"
        yield f"With {people} people this test finds effects from these {sizes}: {'; '.join(finds[:_SHOWN])}{more}."
        yield from _corrected(own, least_effects(found[0]["tables"], CORRECTED))
    if len(finds) < len(own):
        yield _nothing(people, own, next((least for one, least in others if one["epsilon"] is None), own))
    if empty := sorted(empty_segments(spec)):
        more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
        where = f"{', '.join(empty[:_SHOWN])}{more}"
        yield f"Nobody of these people is in {where}."
    for one, least in others:
        promise = f"Under {one['model']} at epsilon {one['epsilon']:g}" if one["epsilon"] else "Without privacy"
        known = [value for value in least.values() if value is not None]
        yield f"{promise} the smallest is {_points(spec, min(known))}." if known else f"{promise} it finds none."


def _corrected(own: Mapping[str, float | None], decided: Mapping[str, float | None]) -> Iterator[str]:
    """Say how much larger effects must be that are decided among several; nothing where that is the same."""
    pairs = ((value, decided[where]) for where, value in own.items() if where in decided)
    times = max((more / value for value, more in pairs if value and more), default=1.0)
    if times > _SAME:
        yield (
            "The own interval of each leaves out 0. Corrected for several effects, each is decided from up to "
            f"{times:.3g} times that size on: the worst case of Holm, if all others are none."
        )


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
