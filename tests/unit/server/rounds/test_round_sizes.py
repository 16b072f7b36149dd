"""Rounds carry no more than was expected at creation: a batch that is too large would never arrive."""

import tomllib
from pathlib import Path

import numpy as np

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.spec.sections import parse_section
from privateer_server.rounds.loop import Schedule


def test_phases_carry_no_more_than_was_expected_at_creation() -> None:
    tables = tomllib.loads((Path(__file__).parents[4] / "examples" / "dpe.toml").read_text())
    tables["actions"]["seed"] = 2
    spec = parse_section(PhasedSpec, tables)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=20)
    schedule = Schedule(spec)
    step = first = schedule.open(3)
    carried, played = [], []
    while step.batch:
        carried.append(step.policy.terms.messages)
        actions = step.policy.decide(np.zeros((1, 0)), np.zeros(1, np.uint32)).actions
        played.append(len(actions))
        averages = spec.actions.matrix[actions] @ (theta / np.linalg.norm(theta))
        noisy = averages + rng.normal(size=len(averages)) * 0.1 / np.sqrt(step.batch)
        step = schedule.close(step, VectorSums(step.batch, step.batch * noisy, 0.0), 3)
    assert max(played) > played[0]  # or the test shows nothing
    expected = schedule.learner.bulk(first)
    assert all(now <= most.messages for now, most in zip(carried, expected, strict=False))
