"""What releases tell of rare rewards: without bias, and as sure as it is said to be."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, layout
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.sections import parse_section
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.bandit.posterior import ArmPosterior
from privateer_server.algorithms.bandit.sampling_rules import thompson
from privateer_server.algorithms.bandit.success_counts import SuccessCounts

RATES = np.array([0.01, 0.03, 0.005])
SHARES = np.array([0.6, 0.3, 0.1])


def learned(model, runs=300, people=4000, weaker=1.0):
    """Posteriors after a round each, of people who play three arms; ``weaker`` divides a curator's noise, unsaid."""
    spec, choice = BanditSpec.instances()[model], layout(9, SHARES)
    own = choice if spec.privacy.arm_in_key else None
    policy = BanditPolicy(1, calibrate(spec.privacy, people, spec.asked(choice)), own)
    learner, rng, none = learner_for(spec), np.random.default_rng(11), np.zeros((people, 0))
    mechanism = policy.terms.mechanism.weaker(weaker) if weaker != 1 else policy.terms.mechanism
    for _ in range(runs):
        coins = rng.integers(0, 1 << 32, people, np.uint32)
        decisions = policy.decide(none, coins)
        rewards = rng.binomial(1, RATES[decisions.arms]).astype(float)
        told = mechanism.simulate(policy.contribute(none, coins, decisions, rewards), rng)
        if weaker != 1:
            told = replace(told, noise=policy.terms.mechanism.noise)
        yield learner.learn(learner.start(1), policy, told).posterior


def squares(model, **changes):
    """Mean squares of errors by their variances, and mean errors by their standard errors, of each arm."""
    found = [(one.means - RATES, one.variances) for one in learned(model, **changes)]
    off, variances = (np.array(part) for part in zip(*found, strict=True))
    return np.mean(off**2 / variances, axis=0), off.mean(axis=0) / np.sqrt(variances.mean(axis=0) / len(off))


@pytest.mark.parametrize("model", ["none", "central", "shuffle", "local"])
def test_rare_rewards_vary_as_much_as_is_said(model):
    """300 rounds: mean squares from .65 to 1.4, 4 standard deviations; biases within 4.5. False alarms below 1e-3."""
    square, bias = squares(model)
    assert (square > 0.65).all()
    assert (square < 1.4).all()
    assert (np.abs(bias) < 4.5).all()


def test_half_the_noise_is_not_as_much_as_is_said():
    """A planted defect: a curator who adds half the noise, and does not say so."""
    assert (squares("central", weaker=2.0)[0] < 0.65).any()


def test_who_plays_an_arm_is_no_reward():
    """An arm's mean of pairs varies with its rewards and noise: a twentieth of what sums of scores vary."""
    found = np.array([one.means for one in learned("central", runs=100)])
    linear = np.array([one.bounded for one in learned("central", runs=100)])
    assert found.std(axis=0)[0] < linear.std(axis=0)[0] / 2


def test_pairs_are_released_unless_normal_noise_is_less():
    """At epsilon 1 pairs; at a small epsilon and a large delta the classic sums."""
    spec = BanditSpec.instances()["central"]
    for changes, kind in (({}, CellPairs), ({"delta": 0.0}, CellPairs), ({"epsilon": 0.1, "delta": 0.2}, CentralSums)):
        privacy = spec.privacy.model_copy(update=changes)
        question = spec.asked(layout(3, SHARES))
        terms = calibrate(privacy, 1000, question)
        assert isinstance(terms.mechanism, kind)
        assert terms.holds
        assert not replace(terms, mechanism=terms.mechanism.weaker(2.0)).holds


def test_noise_weighs_small_shares_less():
    """A combination by the weights varies less than one without, where noise is the same for all shares."""
    people = np.array([900.0, 100.0])
    exact = SuccessCounts(people, people / 2, people, people, np.zeros(2))
    noisy = replace(exact, noise=np.array([8.0, 8.0]))
    assert exact.weighted(0.01).people == pytest.approx(people)
    assert noisy.weighted(0.01).means == pytest.approx([0.5, 0.5])
    seen, rare = np.ones(2, bool), replace(noisy, successes=0.01 * people)
    turned = SuccessCounts(*(values[::-1] for values in vars(rare).values()))
    together = [
        one.plus(other, seen).variances[0]
        for one, other in ((rare, turned), (rare.weighted(0.01), turned.weighted(0.01)))
    ]
    assert together[1] < 0.85 * together[0]


def test_an_arm_below_zero_is_tried_again_and_one_beyond_reach_is_not():
    """Noise takes an estimate below 0: as no rate is, people go on to try the arm. Seeds are fixed."""
    people, all_arms = np.full(2, 500.0), np.ones(2, bool)
    for rates, tried in (([0.004, -0.012], True), ([0.4, 0.1], False)):
        counts = SuccessCounts(people, people * np.array(rates), people, people, np.full(2, 10.0))
        one = ArmPosterior(people, people, people / 2, np.zeros(2), counts)
        assert (thompson(one, all_arms, 400, 50_000, 3)[1] > 0.05) == tried


@pytest.mark.parametrize(("model", "grows"), [("central", 0.3), ("shuffle", 0.3), ("local", 0.0), ("none", 0.0)])
def test_rounds_of_rare_rewards_grow_where_each_has_noise(model, grows):
    """What the spec says wins, and everybody who reads the spec has the same."""
    data = BanditSpec.instances()[model].model_dump(exclude_none=True)
    given = data["experiment"].pop("round_growth")
    assert parse_section(BanditSpec, data).experiment.round_growth == given == 0
    for rate, wanted in ((0.01, grows), (0.99, grows), (0.2, 0.0)):
        data["reward"] = {"base_rate": rate}
        made = parse_section(BanditSpec, data)
        assert made.experiment.round_growth == wanted
        assert BanditSpec.model_validate_json(made.model_dump_json()) == made
        chosen = data | {"experiment": data["experiment"] | {"round_growth": 0.0}}
        assert parse_section(BanditSpec, chosen).experiment.round_growth == 0
