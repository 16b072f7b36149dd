"""What a course expects its rounds to carry is what they come to, since a batch too large would never arrive."""

import tomllib
from pathlib import Path

import numpy as np

from privateer.contributions import VectorSums
from privateer.phased import PhasedSpec
from privateer.sections import parse_section
from privateer_server.schedule import PhasedSchedule


def test_phases_carry_no_more_than_was_expected_at_creation() -> None:
    tables = tomllib.loads((Path(__file__).parents[3] / "examples" / "dpe.toml").read_text())
    tables["actions"]["seed"] = 2
    spec = parse_section(PhasedSpec, tables)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=20)
    schedule = PhasedSchedule(spec)
    step = first = schedule.first()
    carried, played = [], []
    while step.batch:
        policy = step.policy
        carried.append(policy.terms.messages)
        played.append(len(policy.support))
        averages = spec.actions.matrix[policy.support] @ (theta / np.linalg.norm(theta))
        noisy = averages + rng.normal(size=len(averages)) * 0.1 / np.sqrt(step.batch)
        learned = schedule.learner.learn(step.state, policy, VectorSums(step.batch, step.batch * noisy, 0.0))
        step = schedule.following(step, learned, step.batch, step.policy.version + 1)
    assert max(played) > played[0]  # or the test shows nothing
    assert all(now <= expected.messages for now, expected in zip(carried, schedule.bulk(first), strict=False))
