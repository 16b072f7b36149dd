"""Rounds carry no more than was expected at creation: a batch that is too large would never arrive."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_server.algorithms.phased.design import near_optimal_design
from privateer_server.experiments.experiment import measure_experiment
from privateer_server.rounds.loop import Schedule

EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Spec:
    return parse_spec(tomllib.loads((EXAMPLES / f"{name}.toml").read_text()))


@pytest.mark.parametrize("name", ["stations", "sparse", "additive-shuffle", "linear", "trial", "convex-two-point"])
def test_no_seed_changes_the_size_that_is_admitted(name: str) -> None:
    schedule = Schedule(example(name))
    sizes = [measure_experiment(schedule, schedule.open(seed)) for seed in (0, 1, 2**40 + 7, 2**63 - 1)]
    assert sizes.count(sizes[0]) == len(sizes)


def test_the_size_of_phases_does_not_depend_on_the_round_that_it_is_asked_in() -> None:
    """A warm start begins in a later phase, which plays other actions than the first."""
    schedule = Schedule(example("stations"))
    first: Any = schedule.open(3)
    averages = np.linspace(-1, 1, len(first.policy.support))
    later: Any = schedule.close(first, VectorSums(first.batch_size, first.batch_size * averages, 0.0), 3)
    assert len(later.policy.support) != len(first.policy.support)  # or the test shows nothing
    assert measure_experiment(schedule, later) == measure_experiment(schedule, first)


@pytest.mark.parametrize("max_actions", [20, 25, 40])
def test_a_design_never_plays_more_actions_than_it_may(max_actions: int) -> None:
    rng = np.random.default_rng(max_actions)
    for actions in (rng.normal(size=(300, 20)) for _ in range(5)):
        free, bounded = near_optimal_design(actions, 1.05), near_optimal_design(actions, 1.05, max_actions)
        assert len(free.support) > 40  # or the bound does nothing
        assert len(bounded.support) == max_actions
        assert (bounded.rank, bounded.weights.min() > 0, bounded.weights.sum()) == (20, True, pytest.approx(1))


def test_phases_carry_no_more_than_was_expected_at_creation() -> None:
    tables = tomllib.loads((EXAMPLES / "dpe.toml").read_text())
    tables["actions"]["seed"] = 2
    spec = parse_section(PhasedSpec, tables)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=20)
    schedule = Schedule(spec)
    step = first = schedule.open(3)
    carried, played = [], []
    while step.batch_size:
        carried.append(step.policy.terms.messages)
        actions = step.policy.decide(np.zeros((1, 0)), np.zeros(1, np.uint32)).actions
        played.append(len(actions))
        averages = spec.actions.matrix[actions] @ (theta / np.linalg.norm(theta))
        noisy = averages + rng.normal(size=len(averages)) * 0.1 / np.sqrt(step.batch_size)
        step = schedule.close(step, VectorSums(step.batch_size, step.batch_size * noisy, 0.0), 3)
    assert max(played) > played[0]  # or the test shows nothing
    expected = schedule.learner.list_round_volumes(first)
    assert all(now <= planned.messages for now, planned in zip(carried, expected, strict=False))
