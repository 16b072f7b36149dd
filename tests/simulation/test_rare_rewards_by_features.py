"""Additive bandits where rewards are rare, or revenue that is mostly 0, beside a bandit that sees no features.

Four options, two numbers and two lists of levels; each of four classes of people has an option that is right for it.
Fixed seeds, nothing drawn: the figures are those of the seeds, and the slack is what other seeds differ by.
"""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.environments.environment import Environment
from privateer_lab.simulation.simulation import Simulation

pytestmark = pytest.mark.nightly

FEATURES = {
    "age": {"low": 0.0, "high": 1.0},
    "visits": {"low": 0.0, "high": 1.0},
    "device": {"levels": ["phone", "tablet", "desktop"]},
    "source": {"levels": ["search", "mail", "advert", "friend"]},
}
PROMISES = {
    "central": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
    "shuffle": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "local_epsilon_max": 8.0},
}
CAP = 200.0
SLACK = 0.02


class Shoppers(Environment):
    """People of whom .02 buy if they get the right option, and .005 else; ``spends``: how much they spend counts."""

    def __init__(self, spends=False):
        self.spends = spends
        # The mean of what a buyer spends: a log-normal number of median 30, up to the cap.
        self.spent = np.minimum(CAP, self._amounts(200_000, np.random.default_rng(0))).mean() if spends else 1.0

    def contexts(self, seen, people, rng):
        levels = [rng.integers(0, top, people) for top in (3, 4)]
        return np.column_stack([rng.random((people, 2)), *levels])

    def right(self, contexts):
        age, _, device, source = contexts[:, :4].T
        scores = [age, 0.3 + 0.4 * (device == 0), 0.35 + 0.5 * (source == 1), 1.0 - age + 0.2 * (device == 2)]
        return np.argmax(scores, axis=0)

    def means(self, contexts):
        return self.spent * (0.005 + 0.015 * (self.right(contexts)[:, None] == np.arange(4)))

    @staticmethod
    def _amounts(people, rng):
        return rng.lognormal(np.log(30.0), 1.0, people)

    def rewards(self, contexts, decisions, rng):
        chances = self.means(contexts)[np.arange(len(contexts)), decisions.arms] / self.spent
        bought = (rng.random(len(contexts)) < chances).astype(float)
        return bought * np.minimum(CAP, self._amounts(len(contexts), rng)) if self.spends else bought


def shares_right(name, model, people, seeds, spends=False):
    """Share of people who got their right option, by seed, and that of the best single option."""
    people_of = Shoppers(spends)
    usual = 0.0085 * people_of.spent
    reward = {"kind": "numeric", "low": 0.0, "high": CAP, "base_rate": usual} if spends else {"base_rate": usual}
    tables = {
        "experiment": {"name": "rare", "arms": ["a", "b", "c", "d"], "horizon": people},
        "reward": reward,
        "privacy": PROMISES[model],
        "algorithm": {"name": name},
    } | ({"context": {"features": FEATURES}} if name == "additive" else {})
    found = []
    for seed in seeds:
        simulation = Simulation(parse_spec(tables), seed, environment=people_of)
        while simulation.step.batch:
            simulation.close_round()
        simulation.finish()
        run = simulation.outcome()
        lost = 0.015 * people_of.spent * run.people
        found.append((1 - run.regret / lost, 1 - run.best_constant_regret / lost))
    return np.array(found).T


@pytest.mark.parametrize("spends", [False, True])
@pytest.mark.parametrize("model", PROMISES)
def test_features_are_worth_more_than_the_best_single_option_among_many(model, spends):
    own, best = shares_right("additive", model, 500_000, (200, 201), spends)
    assert own.mean() > best.mean() + 2 * SLACK


@pytest.mark.parametrize("spends", [False, True])
def test_among_few_people_features_do_no_harm(spends):
    own, _ = shares_right("additive", "central", 54_000, range(200, 204), spends)
    without, _ = shares_right("bandit", "central", 54_000, range(200, 204), spends)
    assert own.mean() > without.mean() - SLACK
