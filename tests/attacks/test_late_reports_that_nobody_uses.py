"""A round whose last report would leave the server without a next publication: the learner takes no late reports."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import algorithm
from privateer_core.spec.sections import parse_section
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.rounds.open_round import first_round, following_round
from tests.support.publications import KEY

PEOPLE = 3000
WEEK = 7 * 86_400.0
REWARDS = np.array([0.05, 0.95])
NUMBER = {"context": {"features": {"x": {"low": 0.0, "high": 1.0}}}}
SPECS: dict[str, dict[str, Any]] = {
    "boundaries of planned people": {"algorithm": {"name": "trial", "looks": 1}} | NUMBER,
    "the best arm is known": {"algorithm": {"name": "bandit", "objective": "best-arm"}},
}


@pytest.mark.parametrize("sections", SPECS.values(), ids=SPECS)
def test_the_experiment_ends(sections: dict[str, Any]) -> None:
    table = {"name": "test", "arms": ["a", "b"], "horizon": PEOPLE, "round_size": PEOPLE, "conversion_window": WEEK}
    data = {"experiment": table, "privacy": {"model": "local", "epsilon": 4.0}} | sections
    opened = first_round(parse_section(algorithm(sections["algorithm"]["name"]).spec, data), b"k" * 32)
    closed = replace(opened, received=PEOPLE, taken=True, total=_total(opened.step.policy))
    after = following_round(closed, KEY.public_key().public_bytes_raw, now=1.0)
    assert (after.round.version, after.round.batch, after.drain) == (2, 0, None)


def _total(policy: Any) -> Any:
    """Reports of people who like the second arm."""
    rng = np.random.default_rng(5)
    contexts, coins = np.full((PEOPLE, 1), 0.5), rng.integers(0, 1 << 32, PEOPLE, np.uint32)
    decisions, mechanism = policy.decide(contexts, coins), policy.terms.mechanism
    rewards = (rng.random(PEOPLE) < REWARDS[decisions.arms]).astype(np.float64)
    rows = mechanism.randomize(policy.contribute(contexts, coins, decisions, rewards), SeededNoise(rng))
    return mechanism.add(mechanism.empty(), rows)
