"""Bandits without context: specs refuse what cannot be; policies choose by coins, and count late reports right."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, make_arm_layout
from privateer_core.errors import Malformed, SpecError
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import Layout
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.spec import ARMS_MAX
from privateer_lab.environments import check_population, default_environment, environment_for
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule

SPECS = BanditSpec.instances()


def tables(name="local", **sections):
    data = SPECS[name].model_dump(mode="json", exclude_none=True)
    return {**data, **{key: {**data.get(key, {}), **values} for key, values in sections.items()}}


PAPER = {
    "algorithm": {"name": "paper-2-bandit", "objective": "adversarial"},
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
}


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"context": {"features": {"x": {"low": 0, "high": 1}}}}, "context"),
        ({"algorithm": {"host": "kl-ucb"}}, "algorithm.host"),
        ({"algorithm": {"objective": "best"}}, "algorithm.objective"),
        ({"algorithm": {"failure_probability": 0}}, "algorithm.failure_probability"),
        ({"algorithm": {"objective": "best-arms", "best_count": 10}}, "algorithm.best_count"),
        ({"algorithm": {"objective": "best-arm", "best_count": 2}}, "algorithm.best_count"),
        ({"experiment": {"arms": [str(n) for n in range(ARMS_MAX + 1)]}}, "experiment.arms"),
        ({**PAPER, "algorithm": {"name": "paper-2-bandit", "objective": "regret"}}, "algorithm.objective"),
        ({**PAPER, "privacy": {}}, "privacy.delta"),
        ({"privacy": {"delta": 1e-6}}, "privacy.delta"),
        ({**PAPER, "privacy": {"model": "central", "delta": 1e-6}}, "privacy.model"),
        ({"population": {"name": "bernoulli", "gap": 0.7}}, "population.gap"),
    ],
)
def test_impossible_specs_are_refused_with_a_remedy(sections, field):
    with pytest.raises(SpecError) as refused:
        check_population(parse_spec(tables(**sections)))
    assert refused.value.field == field
    assert refused.value.remedy


def test_published_rounds_are_small():
    with pytest.raises(SpecError) as refused:
        parse_spec(tables(**PAPER, experiment={"min_round_fraction": 0.5}))
    assert refused.value.field == "experiment.round_size"


def test_a_visible_arm_is_a_concern_for_its_cost():
    assert SPECS["central"].concerns()
    assert SPECS["shuffle"].concerns()
    assert not SPECS["shuffle-grouped"].concerns()
    assert not SPECS["shuffle-hidden"].concerns()
    assert not SPECS["local"].concerns()


def test_many_arms_get_their_shares():
    spec = parse_spec(tables(experiment={"arms": [str(n) for n in range(ARMS_MAX)]}))
    policy = Schedule(spec).open(1).policy
    policy.check(spec)
    coins = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    counts = np.bincount(policy.decide(np.zeros((len(coins), 0)), coins).arms, minlength=ARMS_MAX)
    assert abs(counts - 100_000 / ARMS_MAX).max() < 6 * (100_000 / ARMS_MAX) ** 0.5


@pytest.mark.parametrize("name", ["local", "shuffle"])
@pytest.mark.parametrize(
    "wrong",
    [
        Layout(1, np.array([[9, 3]], np.uint32)),
        Layout(1, np.array([[3, 1 << 17]], np.uint32)),
        Layout(1, np.array([[3]], np.uint32)),
        Layout(1, np.array([[3, 9], [3, 9]], np.uint32)),
    ],
)
def test_policies_that_no_learner_makes_are_refused(name, wrong):
    spec = SPECS[name]
    policy: Any = Schedule(spec).open(1).policy
    policy.check(spec)

    def check() -> None:
        mechanism = msgspec.structs.replace(policy.terms.mechanism, layout=wrong)
        bad = {"choice": wrong} if policy.choice else {"terms": replace(policy.terms, mechanism=mechanism)}
        replace(policy, **bad).check(spec)

    with pytest.raises((Malformed, SpecError)):  # a mechanism of groups refuses other groups than it has epsilons
        check()


def test_a_policy_with_a_retired_arm_is_refused():
    spec = parse_spec(tables(experiment={"retired_arms": ["b"]}))
    old = Schedule(SPECS["local"]).open(1).policy
    with pytest.raises(Malformed):
        old.check(spec)
    Schedule(spec).open(1).policy.check(spec)


def policy(version, shares, spec=SPECS["local"]):
    choice = make_arm_layout(version, np.array(shares))
    return BanditPolicy(version, calibrate(spec.privacy, 1000, spec.make_question(choice)))


def test_late_reports_count_for_the_arm_that_their_coins_chose():
    """20,000 reports of reward 1 under an epsilon of 4; a false alarm at 5 standard deviations, below 1e-5."""
    before, now = policy(1, [0.5, 0.5, 0.0]), policy(2, [0.0, 0.0, 1.0])
    assert now.accepts_decisions_of(1)
    coins = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32)
    no_contexts = np.zeros((len(coins), 0))
    arms = before.decide(no_contexts, coins)
    reports = now.contribute(no_contexts, coins, arms, (arms.arms == 1).astype(float))
    mechanism, noise = now.terms.mechanism, SeededNoise(1)
    rows = mechanism.randomize(reports, noise).tobytes()
    analyzer = now.make_analyzer(before)
    real = mechanism.release(analyzer.tally(mechanism, rows), noise)
    for release in (real, analyzer.simulate(mechanism, reports, np.random.default_rng(2))):
        assert abs(release.counts[0] - [10_000, 10_000, 0]).max() < 5 * 71
        scores = release.sums[0] / release.gain / np.maximum(release.counts[0], 1)
        assert scores == pytest.approx([-1, 1, 0], abs=5 / 100)
    assert now.make_analyzer(now).tally(mechanism, rows).counts[0].tolist() == [0, 0, 20_000], (
        "as if they were of this round"
    )


def test_hidden_arms_of_several_policies_have_the_shares_of_all():
    spec = SPECS["shuffle"]
    first = Schedule(spec).open(1).policy
    other: Any = replace(first, version=2, choice=make_arm_layout(5, np.array([1.0, 0.0, 0.0])))
    assert other.accepts_decisions_of(1)
    assert other.with_decision_policies([(other, 1.0)]) is other
    mixed: Any = other.with_decision_policies([(first, 0.3), (other, 0.7)])
    assert mixed.active_shares == pytest.approx([0.8, 0.1, 0.1], abs=1e-4)
    coins = np.zeros(3, np.uint32)
    values = other.contribute(np.zeros((3, 0)), coins, Arms(np.array([0, 1, 2])), np.ones(3))
    assert values.keys.tolist() == [0, -1, -1]


def test_coins_that_choose_in_a_batch_count_in_their_round_alone():
    hidden = Schedule(SPECS["shuffle-hidden"]).open(1).policy
    assert not replace(hidden, version=2).accepts_decisions_of(1)
    assert not replace(Schedule(parse_spec(tables(**PAPER))).open(1).policy, version=2).accepts_decisions_of(1)


def test_contexts_of_no_features_are_accepted():
    spec = parse_spec(tables(experiment={"arms": ["a", "b", "c", "d"]}))
    assert default_environment(spec) == {"name": "bernoulli"}
    drift = {"name": "swap", "period": 10}
    people = environment_for(spec, 0, {"name": "bernoulli", "best": 0.5, "drift": drift})
    contexts = people.contexts(5, 10, np.random.default_rng(0))
    assert people.means(contexts)[[0, 9]] == pytest.approx(np.array([[0.3, 0.3, 0.5, 0.3], [0.3, 0.5, 0.3, 0.3]]))
