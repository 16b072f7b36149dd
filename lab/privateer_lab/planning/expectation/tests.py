"""What tests of arms against a control find, in words: the least effects, and what privacy costs of them."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from privateer_core.answer.facts import Table
from privateer_core.spec.spec import Spec
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.plain_tests import LEAST
from privateer_lab.planning.plans import foreseen, with_finite
from privateer_lab.simulation.parallel import Backend

_SHOWN: Final = 6
"""Segments that the words name."""
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
    if not found or took * len(others) > _SHARE * seconds:
        return with_finite(found)
    return with_finite(found + foreseen(others, jobs, backend))


def test_sentences(spec: Spec, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Say the least effects that are found; nothing where there are none."""
    rows = [(one, dict(_least(one["tables"]))) for one in found]
    if not rows or not rows[0][1]:
        return
    (_, own), *others = rows
    people = getattr(spec.experiment, spec.people_key)
    listed = list(own.items())
    whom = "; ".join(f"{where}: {_points(spec, value)}" for where, value in listed[:_SHOWN])
    more = f"; and {len(listed) - _SHOWN} more below" if len(listed) > _SHOWN else ""
    yield f"With {people:,} people this test finds effects from these sizes on: {whom}{more}."
    for one, least in others:
        if least:
            promise = f"Under {one['model']} at epsilon {one['epsilon']:g}" if one["epsilon"] else "Without privacy"
            yield f"{promise} the smallest is {_points(spec, min(least.values()))}."


def _least(tables: Sequence[Table]) -> Iterator[tuple[str, float]]:
    table = tables[0]
    if LEAST not in table.names:
        return
    place = table.names.index(LEAST)
    for row in table.rows:
        yield str(row[0]), float(row[place] or 0.0)


def _points(spec: Spec, value: float) -> str:
    return f"{100 * value:.2g} points" if spec.reward.is_rate else f"{value:.3g}"
