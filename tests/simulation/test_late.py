"""People who report some time after they have chosen. Fixed seeds; false-alarm rates are 1e-6 a comparison."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import EarlierChoices
from privateer_lab.environments import check_population
from privateer_lab.simulation.delayed_reports import LateSimulation
from privateer_lab.simulation.scores import SeededNoise
from privateer_lab.simulation.simulate import make_simulation, simulate_once
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import centred, same_law

PEOPLE = {"population.name": "peaks", "experiment.horizon": 12_000, "experiment.round_size": 1000}
NONE = {"privacy.model": "none", "privacy.epsilon": None}
LOCAL = {"privacy.epsilon": 4.0}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
REWARDS = np.array([0.2, 0.6, 0.8])
"""The arms have these mean rewards, which are on a curator's grid."""
MODELS = {"local": LOCAL, "shuffle": SHUFFLE, "central": CENTRAL, "none": NONE}


def with_delay(law="exponential", mean=2000.0, **changes):
    return make_spec({**PEOPLE, **changes, "population.delay": {"law": law, "mean": mean}})


def run_rounds(spec, rounds, seed=3):
    run = LateSimulation(spec, seed)
    for _ in range(rounds):
        run.close_round()
    return run


@pytest.mark.parametrize("model", MODELS)
def test_every_choice_is_reported_once_and_none_is_lost(model):
    run = simulate_once(with_delay(**MODELS[model]), 1)
    assert run.people == run.costs.people == 12_000
    assert run.facts["lost"] == 0


@pytest.mark.parametrize("people", [5_000, pytest.param(12_000, marks=pytest.mark.nightly)])
def test_a_delay_of_zero_has_the_regret_of_no_delays(people):
    """20 seeds each way: regret and the number of bins at the end."""
    changes = {**LOCAL, "experiment.horizon": people}
    figures = [
        [(run.regret, run.facts["bins"]) for run in (simulate_once(spec, seed) for seed in seeds)]
        for spec, seeds in (
            (make_spec({**PEOPLE, **changes}), range(20)),
            (with_delay("fixed", 0.0, **changes), range(20, 40)),
        )
    ]
    assert same_law(*np.array(figures))


def test_a_fixed_delay_holds_everything_up_by_as_many_people():
    run = run_rounds(with_delay("fixed", 500.0, **NONE), 1)
    assert (run.now, run.people) == (1499.0, 1500)
    assert run.pending.due.tolist() == [float(due) for due in range(1500, 2000)]
    run.close_round()
    assert (run.now, run.people) == (2499.0, 2500)
    ages, counts = np.unique(run.pending.decided, return_counts=True)
    assert dict(zip(ages.tolist(), counts.tolist(), strict=True)) == {2: 500}


def policies_of_two_rounds(changes):
    """Return the policies of an earlier round of fewer bins, and of the round that takes reports on its decisions."""
    run = run_rounds(with_delay(**PEOPLE, **changes), 0)
    policies = [run.step.policy]
    while len(policies) < 9:
        run.close_round()
        policies.append(run.step.policy)
    return next(policy for policy in policies if 1 < len(policy.bins) < len(policies[-1].bins)), policies[-1]


def draw_people(earlier, rng, count=3000):
    contexts, coins = rng.random((count, 2)), rng.integers(0, 2**32, count, dtype=np.uint32)
    return contexts, coins, earlier.decide(contexts, coins).arms


def release_reports(policy, earlier, rng, analyzer=None):
    """A release of reports, by the real path: every arm is worth its place, whatever the context."""
    contexts, coins, arms = draw_people(earlier, rng)
    contributions = policy.contribute(contexts, coins, Arms(arms), REWARDS[arms])
    rows = policy.mechanism.randomize(contributions, SeededNoise(int(rng.integers(2**63)))).tobytes()
    total = (analyzer or policy.make_analyzer(earlier)).tally(policy.mechanism, rows)
    return policy.mechanism.release(total, SeededNoise(int(rng.integers(2**63))))


@pytest.mark.parametrize("model", ["local", pytest.param("none", marks=pytest.mark.nightly)])
def test_sums_are_of_the_arms_that_earlier_coins_chose(model):
    earlier, policy = policies_of_two_rounds(MODELS[model])
    rng = np.random.default_rng(7)
    lower, upper = (corner[policy.bins] for corner in policy.edges())
    masses = np.prod(upper - lower, axis=1)[:, None]
    releases = [release_reports(policy, earlier, rng) for _ in range(400)]
    excess = [(r.sums - r.counts * r.gain * masses * (2 * REWARDS - 1)).ravel() for r in releases]
    assert centred(np.array(excess), 0.0)
    assert {r.reports for r in releases} == {3000}
    # Planted: the coins are read as the round's own.
    wrong = [release_reports(policy, earlier, rng, policy.make_analyzer(policy)) for _ in range(400)]
    excess = [(r.sums - r.counts * r.gain * masses * (2 * REWARDS - 1)).ravel() for r in wrong]
    assert not centred(np.array(excess), 0.0)


@pytest.mark.parametrize("model", ["local", pytest.param("none", marks=pytest.mark.nightly)])
def test_simulated_releases_have_the_law_of_real_ones(model):
    earlier, policy = policies_of_two_rounds(MODELS[model])
    rng = np.random.default_rng(8)

    def simulated():
        contexts, coins, arms = draw_people(earlier, rng)
        contributions = policy.contribute(contexts, coins, Arms(arms), REWARDS[arms])
        return policy.make_analyzer(earlier).simulate(policy.mechanism, contributions, rng)

    def numbers(release):
        return np.concatenate([release.sums.ravel(), release.counts.ravel(), release.hits.ravel()])

    real = np.array([numbers(release_reports(policy, earlier, rng)) for _ in range(300)])
    assert same_law(real, np.array([numbers(simulated()) for _ in range(300)]))


def test_decisions_of_bins_that_were_cut_are_left_out():
    """Bins that earlier decisions cut: their coins chose by more than the key, so no group counts them."""
    earlier, policy = policies_of_two_rounds(LOCAL)
    counts = release_reports(earlier, policy, np.random.default_rng(9))
    assert isinstance(earlier.make_analyzer(policy).choices, EarlierChoices)
    cut = earlier.enclosing_bins(policy, earlier.bins) < 0
    assert cut.any()
    assert (counts.counts[cut] == 0).all()
    assert (counts.sums[cut] == 0).all()


def test_learners_see_the_shares_that_people_followed():
    earlier, policy = policies_of_two_rounds(SHUFFLE)
    half = policy.with_decision_policies([(policy, 0.5), (earlier, 0.5)])
    rng = np.random.default_rng(2)
    contexts = rng.random((200_000, 2))
    coins = rng.integers(0, 2**32, len(contexts), dtype=np.uint32)
    now, earlier_arms = (policy_.decide(contexts, coins).arms for policy_ in (policy, earlier))
    arms = np.where(rng.random(len(contexts)) < 0.5, now, earlier_arms)
    places = policy.key_of_bin[policy.locate(contexts)]
    for key in range(len(policy.bins)):
        played = np.bincount(arms[places == key], minlength=3) / max(1, (places == key).sum())
        assert half.layout.shares[key] == pytest.approx(played, abs=0.03)
    assert policy.with_decision_policies([(policy, 1.0)]) is policy


@pytest.mark.nightly
def test_learning_with_the_wrong_shares_costs_regret():
    """Planted: the learner takes all reports for decisions of the round's own policy."""

    class Blind(LateSimulation):
        def find_deciding_policies(self, _step):
            return ()

    def regret(kind, seed):
        changes = SHUFFLE | {"experiment.horizon": 40_000, "experiment.min_round_fraction": 0.1}
        run = kind(with_delay(mean=4000.0, **changes), seed)
        while run.step.batch_size:
            run.close_round()
        run.finish()
        return run.build_run().regret

    right, wrong = ([regret(kind, seed) for seed in range(6)] for kind in (LateSimulation, Blind))
    assert np.mean(right) < np.mean(wrong)


def test_policies_that_take_no_earlier_decisions_lose_them_unpaid():
    run = simulate_once(with_delay(**{**SHUFFLE, "privacy.arm_visibility": "hidden"}), 1)
    assert run.facts["lost"] > 0
    assert run.costs.people + run.facts["lost"] == run.people


def test_without_delays_nothing_changes():
    assert "lost" not in make_simulation(make_spec(PEOPLE), 0).facts()


def test_delays_out_of_range():
    for delay in ({"law": "often", "mean": 3}, {"law": "fixed", "mean": -1}, {"law": "fixed"}, {"mean": 3.0}):
        with pytest.raises(SpecError, match=r"population.delay"):
            check_population(make_spec({**PEOPLE, "population.delay": delay}))
