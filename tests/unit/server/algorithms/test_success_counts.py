"""What releases tell of rare rewards: without bias, and as sure as it is said to be."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, make_arm_layout
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.sections import parse_section
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.bandit.posterior import ArmPosterior, SuccessCounts
from privateer_server.algorithms.bandit.sampling_rules import thompson

RATES = np.array([0.01, 0.03, 0.005])
SHARES = np.array([0.6, 0.3, 0.1])


def simulate_posteriors(model, runs=300, people=4000, weaker=1.0):
    """Posteriors after a round each, of people who play three arms; ``weaker`` divides a curator's noise, unsaid."""
    spec, choice = BanditSpec.instances()[model], make_arm_layout(9, SHARES)
    layout = choice if spec.privacy.has_arm_in_key else None
    policy = BanditPolicy(1, calibrate(spec.privacy, people, spec.make_question(choice)), layout)
    learner, rng, none = learner_for(spec), np.random.default_rng(11), np.zeros((people, 0))
    mechanism = policy.terms.mechanism.with_less_noise(weaker) if weaker != 1 else policy.terms.mechanism
    for _ in range(runs):
        coins = rng.integers(0, 1 << 32, people, np.uint32)
        decisions = policy.decide(none, coins)
        rewards = rng.binomial(1, RATES[decisions.arms]).astype(float)
        release = mechanism.simulate(policy.contribute(none, coins, decisions, rewards), rng)
        if weaker != 1:
            release = msgspec.structs.replace(release, noise=policy.terms.mechanism.noise)
        yield learner.learn(learner.start(1), policy, release).posterior


def standardize_squares(model, **changes):
    """Mean squares of errors by their variances, and mean errors by their standard errors, of each arm."""
    errors = [(posterior.means - RATES, posterior.variances) for posterior in simulate_posteriors(model, **changes)]
    off, variances = (np.array(part) for part in zip(*errors, strict=True))
    return np.mean(off**2 / variances, axis=0), off.mean(axis=0) / np.sqrt(variances.mean(axis=0) / len(off))


@pytest.mark.parametrize("model", ["none", "central", "shuffle", "local"])
def test_posteriors_of_rare_rewards_have_the_stated_variance(model):
    """300 rounds: mean squares from .65 to 1.4, 4 standard deviations; biases within 4.5. False alarms below 1e-3."""
    square, bias = standardize_squares(model)
    assert (square > 0.65).all()
    assert (square < 1.4).all()
    assert (np.abs(bias) < 4.5).all()


def test_an_understated_noise_is_caught():
    """A planted defect: a curator who adds half the noise, and does not say so."""
    assert (standardize_squares("central", weaker=2.0)[0] < 0.65).any()


def test_arm_counts_add_no_variance_to_mean_rewards():
    """An arm's mean of pairs varies with its rewards and noise: a twentieth of what sums of scores vary."""
    means = np.array([posterior.means for posterior in simulate_posteriors("central", runs=100)])
    linear = np.array([posterior.interval_centres for posterior in simulate_posteriors("central", runs=100)])
    assert means.std(axis=0)[0] < linear.std(axis=0)[0] / 2


def test_pairs_are_released_unless_normal_noise_is_less():
    """At epsilon 1 pairs; at a small epsilon and a large delta the classic sums."""
    spec = BanditSpec.instances()["central"]
    for changes, kind in (({}, CellPairs), ({"delta": 0.0}, CellPairs), ({"epsilon": 0.1, "delta": 0.2}, CentralSums)):
        privacy = spec.privacy.model_copy(update=changes)
        question = spec.make_question(make_arm_layout(3, SHARES))
        terms = calibrate(privacy, 1000, question)
        assert isinstance(terms.mechanism, kind)
        assert terms.keeps_promise
        assert not replace(terms, mechanism=terms.mechanism.with_less_noise(2.0)).keeps_promise


def test_noise_weighs_small_shares_less():
    """A combination by the weights varies less than one without, where noise is the same for all shares."""
    people = np.array([900.0, 100.0])
    exact = SuccessCounts(people, people / 2, people, people, np.zeros(2))
    noisy = replace(exact, noise=np.array([8.0, 8.0]))
    assert exact.weigh_by_information(0.01).people == pytest.approx(people)
    assert noisy.weigh_by_information(0.01).means == pytest.approx([0.5, 0.5])
    rare = replace(noisy, successes=0.01 * people)
    turned = SuccessCounts(*(values[::-1] for values in vars(rare).values()))
    variances = [
        counts.plus(other).variances[0]
        for counts, other in ((rare, turned), (rare.weigh_by_information(0.01), turned.weigh_by_information(0.01)))
    ]
    assert variances[1] < 0.85 * variances[0]


def test_an_arm_with_a_negative_estimate_is_explored_again():
    """Noise takes an estimate below 0: as no rate is, people go on to try the arm. Seeds are fixed."""
    people, all_arms = np.full(2, 500.0), np.ones(2, bool)
    for rates, tried in (([0.004, -0.012], True), ([0.4, 0.1], False)):
        counts = SuccessCounts(people, people * np.array(rates), people, people, np.full(2, 10.0))
        arm_posterior = ArmPosterior(people, people, people / 2, np.zeros(2), counts)
        assert (thompson(arm_posterior, all_arms, 400, 50_000, 3)[1] > 0.05) == tried


@pytest.mark.parametrize(("model", "grows"), [("central", 0.3), ("shuffle", 0.3), ("local", 0.0), ("none", 0.0)])
def test_rounds_of_rare_rewards_grow_where_each_has_noise(model, grows):
    """The growth in the spec wins, and all readers of the spec have the same default."""
    data = BanditSpec.instances()[model].model_dump(exclude_none=True)
    growth = data["experiment"].pop("min_round_fraction")
    assert parse_section(BanditSpec, data).experiment.min_round_fraction == growth == 0
    for rate, expected in ((0.01, grows), (0.99, grows), (0.2, 0.0)):
        data["reward"] = {"base_rate": rate}
        section = parse_section(BanditSpec, data)
        assert section.experiment.min_round_fraction == expected
        assert BanditSpec.model_validate_json(section.model_dump_json()) == section
        chosen = data | {"experiment": data["experiment"] | {"min_round_fraction": 0.0}}
        assert parse_section(BanditSpec, chosen).experiment.min_round_fraction == 0
