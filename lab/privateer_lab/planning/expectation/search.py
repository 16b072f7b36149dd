"""Runs of a spec and its variants within a time limit, the most informative first; and plans of tests."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

import msgspec

from privateer_core.answer.facts import Table
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.pages.templates import render_paragraphs
from privateer_lab.planning.expectation.choices import (
    CORRECTED_EFFECT_COLUMN,
    SEGMENT_COLUMN,
    VariedSpec,
    find_least_effects,
)
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.plans import Refusal, drop_infinity, find_segment_shares, has_unstated_shares, plan_effects
from privateer_lab.simulation.parallel import Backend, run_tasks

SECONDS: Final = 10.0
_MAX_RUN_SHARE: Final = 0.3
"""Largest share of a core's time for one run."""
_KIND_RANKS: Final = {"as it is": 0, "features": 1, "trust": 2, "algorithm": 3}
"""Order of the first kinds of changes; then follow the spec again, for the variance, and the others."""
_N_EARLY_OWN_RUNS: Final = 3
"""Number of runs of the spec before the last variants have a run."""
_MAX_SEEDS: Final = {"as it is": 16, "trust": 8, "features": 8}
"""Most runs of a variant by kind; others have half as many."""
_REPORT_SECONDS: Final = 1.0
"""Seconds reserved for the report."""
Show: TypeAlias = Callable[[Iterable[Any], int], list[Any]]
"""Collects a number of results; fewer after an interruption."""


@dataclass(frozen=True)
class _TaskRun:
    index: int
    seed: int
    run: PartialRun | SpecError | None


class Search:
    """Runs of the spec itself and of variants, which ``show`` collects as they finish."""

    def __init__(self, choices: Sequence[VariedSpec], show: Show, jobs: int | None, backend: Backend) -> None:
        self._choices, self._show = choices, show
        self._jobs, self._backend = jobs, backend
        self._task_runs: list[_TaskRun] = []
        self.is_interrupted = False  # whether somebody ended the search

    @property
    def runs(self) -> dict[int, list[PartialRun]]:
        """Return runs by the index of the choice, in the order of seeds."""
        runs: dict[int, list[PartialRun]] = {}
        for task_run in sorted(self._task_runs, key=lambda task_run: (task_run.index, task_run.seed)):
            if isinstance(task_run.run, PartialRun):
                runs.setdefault(task_run.index, []).append(task_run.run)
        return runs

    @property
    def refused(self) -> dict[int, Refusal]:
        """Return refused promises by the index of the choice."""
        errors = {task_run.index: task_run.run for task_run in self._task_runs if isinstance(task_run.run, SpecError)}
        variants = {index: self._choices[index].variant for index in errors}
        return {index: Refusal(variant.model, variant.epsilon, errors[index]) for index, variant in variants.items()}

    def run_fully(self, seeds: int) -> None:
        """Run each choice with a number of seeds, without time-out."""
        self._run_tasks([(index, seed) for seed in range(seeds) for index in range(len(self._choices))], inf, 0.0)

    def run_within(self, seconds: float, started: float) -> None:
        """Run within seconds of each core from ``started``: the most informative runs first, others may be left out."""
        tasks = [
            (index, seed)
            for index, choice in enumerate(self._choices)
            for seed in range(_MAX_SEEDS.get(choice.kind, _MAX_SEEDS["trust"] // 2))
        ]
        self._run_tasks(sorted(tasks, key=self._rank_task), seconds - _REPORT_SECONDS, started)

    def _rank_task(self, task: tuple[int, int]) -> tuple[int, int, int]:
        """Return a task's sort key: each choice once, the spec again before the last kinds."""
        index, seed = task
        if not index and 0 < seed < _N_EARLY_OWN_RUNS:
            return 0, len(_KIND_RANKS), 0
        return seed, _KIND_RANKS.get(self._choices[index].kind, len(_KIND_RANKS)), index

    def _run_tasks(self, tasks: list[tuple[int, int]], seconds: float, started: float) -> None:
        """Run pairs of variant and seed in parallel, keep their runs, and note an interruption."""
        work = [(index, self._choices[index], seed, seconds, (os.getpid(), started)) for index, seed in tasks]
        task_runs = self._show(run_tasks(_run_task, work, self._jobs, self._backend), len(work))
        self._task_runs += task_runs
        self.is_interrupted = len(task_runs) < len(work)


def _run_task(index: int, choice: VariedSpec, seed: int, seconds: float, parent: tuple[int, float]) -> _TaskRun:
    """Run a choice while each process, workers from their start, has processor time left; the spec always once."""
    seconds_left = seconds - time.process_time() + (parent[1] if os.getpid() == parent[0] else 0.0)
    if seconds_left <= 0 and (index or seed):
        return _TaskRun(index, seed, None)
    return _TaskRun(index, seed, choice.play(seed, min(seconds_left, _MAX_RUN_SHARE * seconds)))


_MAX_FURTHER_SHARE: Final = 0.25
"""Largest share of the time for plans of further promises."""


def plan_tests(
    choices: Sequence[VariedSpec], seconds: float, jobs: int | None, backend: Backend
) -> list[dict[str, Any]]:
    """Return the plan of a test under each promise, if the learner plans effects in advance.

    The spec's own promise and no privacy come first, without time-out; others, if they take a part of ``seconds``.
    """
    promises = [choice.variant for choice in choices if choice.kind in ("as it is", "trust", "epsilon")]
    first = [variant for index, variant in enumerate(promises) if not index or not variant.spec.privacy.trust.promises]
    started = time.perf_counter()
    plans = plan_effects(first, jobs, backend)
    mean_seconds = (time.perf_counter() - started) / len(first)
    other_variants = [variant for variant in promises if variant not in first]
    if plans and mean_seconds * len(other_variants) <= _MAX_FURTHER_SHARE * seconds:
        plans += plan_effects(other_variants, jobs, backend)
    empty = _find_empty_segments(choices[0].spec) if plans else set()

    def drop_empty_segments(table: Table) -> Table:
        rows = tuple(row for row in table.rows if table.names[0] != SEGMENT_COLUMN or row[0] not in empty)
        return msgspec.structs.replace(table, rows=rows)

    return drop_infinity({**plan, "tables": [*map(drop_empty_segments, plan["tables"])]} for plan in plans)


def _find_empty_segments(spec: Spec) -> set[str]:
    """Return the names of segments without participants of the spec."""
    return {name for name, share in find_segment_shares(spec).items() if not share}


def describe_tests(spec: Spec, plans: Sequence[dict[str, Any]]) -> list[str]:
    """Describe the least effects of plans, the spec's own first, segments without any, and remedies, if any."""
    rows = [(plan, find_least_effects(plan["tables"])) for plan in plans]
    if not rows or not rows[0][1]:
        return []
    (_, effects), *others = rows
    corrected = find_least_effects(plans[0]["tables"], CORRECTED_EFFECT_COLUMN)
    pairs = [(value, corrected.get(segment)) for segment, value in effects.items()]
    hidden = [segment for segment, value in effects.items() if value is None]
    exact = next((least for plan, least in others if plan["epsilon"] is None), effects)
    return render_paragraphs(
        "planned_test.txt",
        {"effect": partial(_format_effect, spec)},
        people=getattr(spec.experiment, spec.people_key),
        sizes={segment: value for segment, value in effects.items() if value is not None},
        has_unknown_shares=len(effects) > 1 and has_unstated_shares(spec) and not spec.population,
        ratio=max((other / value for value, other in pairs if value and other), default=1.0),
        hidden=hidden,
        helped_by_epsilon=any(exact[segment] is not None for segment in hidden),
        empty=sorted(_find_empty_segments(spec)),
        others=others,
    )


def _format_effect(spec: Spec, value: float) -> str:
    amount = f"{100 * value:.2g} points" if spec.reward.is_rate else f"{float(f'{value:.3g}'):,g}"
    largest_rise = (1 - getattr(spec, "base_rate", 0.0)) * spec.reward.span
    return amount if value <= largest_rise else f"{amount} downwards, as the reward cannot rise so far"
