"""Reports on earlier decisions where people send vectors, and slopes of convex losses: what learners make of them.

Fixed seeds. A comparison within 8 standard errors fails by chance once in 10^15, others once in 10^6 or as they say.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms.convex.spec import ConvexSpec
from privateer_core.algorithms.linear.design_matrix import prior_moments
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import merged
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.delayed_reports import LateSimulation
from privateer_lab.simulation.devices import SeededNoise
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms.convex.learner import ConvexLearner
from privateer_server.algorithms.linear.context_moments import people, slopes
from privateer_server.algorithms.sparse.learner import SumLearner
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec
from tests.support.sparse import sparse_spec
from tests.support.statistics import centred, same_law

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISES = {
    "local": ["privacy.model=local", "privacy.epsilon=4.0"],
    "shuffle": ["privacy.model=shuffle", "privacy.epsilon=1.0", "privacy.delta=1e-6", "privacy.min_batch=100"],
    "central": ["privacy.model=central", "privacy.epsilon=1.0", "privacy.delta=1e-6"],
}
DELAY = ["population.delay.law=exponential", "population.delay.mean=2000"]
TRUTH = np.array([[0.5, 0.1, -0.15, 0.1, 0.0], [0.45, -0.1, 0.1, 0.0, 0.1]])
"""Parameters of two arms in four features."""


@pytest.mark.parametrize("model", PROMISES)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("linear", []),
        ("linear", ["experiment.round_growth=0"]),
        ("generalized-linear", []),
        ("sparse", ["context.features=20", "experiment.round_size=4000"]),
        ("convex-two-point", []),
        ("convex-one-point", []),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
@pytest.mark.battery
def test_every_choice_is_reported_once_and_none_is_lost(name, settings, model):
    spec = load_spec(EXAMPLES / f"{name}.toml", ["privacy.delta=0.0", *PROMISES[model], *DELAY, *settings], 12_000)
    run = simulate_once(spec, 1)
    # A last batch of fewer than 100 is not asked.
    assert run.people - (99 if model == "shuffle" else 0) <= run.costs.people <= run.people == 12_000
    assert run.facts["lost"] == 0
    assert run.regret < run.uniform_regret


def policies(model, **privacy):
    """Two policies of an experiment: the later one knows more of the arms, and measures in other directions."""
    schedule = Schedule(linear_spec(model, privacy=privacy))
    first = schedule.open(3)
    second = schedule.follow(first.state, 2, 4)
    away = 0.15 * np.array([[0.5, 1, 1, 0, 0], [-0.5, 0, -1, 1, 1]])
    earlier = replace(first.policy, means=TRUTH + away, factors=5 * first.policy.factors)
    rng = np.random.default_rng(5)
    turned = second.policy.whitening + 0.2 * rng.normal(size=(5, 5))
    means = TRUTH + np.array([[0.02, 0.05, 0, 0, 0.03], [-0.02, 0.1, 0.05, 0, 0]])
    return earlier, replace(second.policy, means=means, whitening=turned)


def chosen(earlier, now, rng):
    """Rows, coins and arms of people half of whom chose by an earlier policy, and who chose by which."""
    rows = people(now.design, prior_moments(now.design), rng)
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    is_late = np.arange(len(rows)) % 2 == 0
    arms = np.where(is_late, *(one.chosen(rows, one.normals(coins)) for one in (earlier, now)))
    return rows, coins, arms, is_late


@pytest.mark.parametrize("model", PROMISES)
def test_slopes_are_of_what_people_tell_who_chose_by_two_policies(model):
    """Mean vectors of 32,768 people, by class, against matrices and offsets; both are drawn.

    Planted: a learner that takes all for decisions of the round's own policy; and devices that measure residuals from
    the means, in the directions, of the policy that decided.
    """
    earlier, now = policies(model)
    rows, coins, arms, is_late = chosen(earlier, now, np.random.default_rng(6))
    rewards = now.rewards_link.means((rows * TRUTH[arms]).sum(axis=1))
    contexts, moments = (rows[:, 1:] + 1) / 2, prior_moments(now.design)
    right, then = (one.contribute(contexts, coins, Arms(arms), rewards).values for one in (now, earlier))
    classes = np.where(is_late, now.classes_of(coins, earlier), now.classes_of(coins, now))

    def agree(values, followed):
        found = slopes(followed, moments)
        expected = np.einsum("ckij,kj->cki", found.matrices, TRUTH - now.means) + found.offsets
        for one in range(now.classes):
            own = values[classes == one][:, : now.means.size] / np.sqrt(1 - now.share)
            error = 8 * own.std(axis=0) / np.sqrt(len(own)) + 1e-12
            if not (np.abs(own.mean(axis=0) - expected[one].ravel()) <= error).all():
                return False
        return True

    both = now.followed([(earlier, 0.5), (now, 0.5)])
    assert agree(right, both)
    assert not agree(right, now)
    assert not agree(np.where(is_late[:, None], then, right), both)


def told(policy, decider, rng):
    """What 300 people contribute who chose by a policy, and the sums of that by class."""
    rows = people(policy.design, prior_moments(policy.design), rng)[:300]
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = decider.chosen(rows, decider.normals(coins))
    made = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), np.ones(len(rows)))
    own = policy.classes_of(coins, decider)
    return made, np.concatenate([made.values[own == one].sum(axis=0) for one in range(policy.classes)])


def reported(policy, made, rng):
    return policy.mechanism.randomize(made, SeededNoise(int(rng.integers(2**63)))).tobytes()


def released(policy, reports, analyzer):
    """The sums of a release, by the real path."""
    return policy.mechanism.release(analyzer.tally(policy.mechanism, reports), SeededNoise(1)).sums


def test_sums_are_of_the_classes_that_earlier_coins_had():
    """Planted: the coins are read as the round's own. The same reports then are 24 standard errors off."""
    earlier, now = policies("local", epsilon=4.0)
    rng = np.random.default_rng(7)
    drawn = [(reported(now, made, rng), exact) for made, exact in (told(now, earlier, rng) for _ in range(40))]
    for decider, right in ((earlier, True), (now, False)):
        analyzer = now.analyzer(decider)
        assert centred([released(now, reports, analyzer) - exact for reports, exact in drawn], 0.0) is right


@pytest.mark.nightly
def test_simulated_releases_have_the_law_of_real_ones():
    """Planted: releases of the round's own classes."""
    earlier, now = policies("local", epsilon=4.0)
    rng, late, own = np.random.default_rng(8), now.analyzer(earlier), now.analyzer(now)
    real = [released(now, reported(now, told(now, earlier, rng)[0], rng), late) for _ in range(120)]

    def simulated(analyzer):
        return [analyzer.simulate(now.mechanism, told(now, earlier, rng)[0], rng).sums for _ in range(120)]

    assert same_law(real, simulated(late))
    assert not same_law(real, simulated(own))


CONVEX = ConvexSpec.instances()
BEST = np.array([0.3, -0.2])


def gradients(name, blind=False):
    """Estimates of a quadratic reward's gradient where half of the people chose by an earlier policy; and the truth."""
    spec, rng = CONVEX[name], np.random.default_rng(9)
    schedule, learner = Schedule(spec), ConvexLearner(spec)
    first = schedule.open(3)
    state = replace(first.state, point=np.array([0.35, 0.3]), learned=3000)
    earlier, now = first.policy, schedule.follow(state, 2, 4).policy
    followed, made = now if blind else now.followed([(earlier, 0.5), (now, 0.5)]), []
    for _ in range(150):
        parts = []
        for decider in (earlier, now):
            coins = rng.integers(0, 2**32, now.terms.batch // 2, dtype=np.uint32)
            decisions = decider.decide(np.zeros((len(coins), 0)), coins)
            rewards = 0.9 - np.square(decisions.points - BEST).sum(axis=2) / 4
            rewards = rewards[:, 0] if rewards.shape[1] == 1 else rewards
            told = rng.integers(0, 2**32, len(coins), dtype=np.uint32) if now.fresh_coins else coins
            parts.append((now.analyzer(decider), now.contribute(None, told, decisions, rewards)))
        release = merged(*(analyzer.simulate(now.terms.mechanism, one, rng) for analyzer, one in parts))
        made.append(learner._gradient(followed, release))
    return np.array(made), -(followed.asked_at - BEST) / 2


@pytest.mark.parametrize("name", ["local", "shuffle", "central", "none", "local-ellipsoid", "local-smooth"])
def test_late_slopes_are_a_gradient_between_the_centres(name):
    """Planted: they are taken for the gradient at the open round's centre."""
    assert centred(*gradients(name))
    assert not centred(*gradients(name, blind=True))


def test_a_late_gradient_moves_the_centre_to_where_a_prompt_one_would():
    """Without noise, of a reward as curved as the spec says; planted: it is taken for that of the open centre."""
    spec = CONVEX["none"]
    learner, step = ConvexLearner(spec), Schedule(spec).open(3)
    state = replace(step.state, point=np.array([0.35, 0.3]), learned=3000)
    now = learner.next(state, 2, 4).policy
    ends = []
    for policy in (now, now.followed([(step.policy, 1.0)])):
        gradient = BEST - policy.asked_at
        means = policy.measured @ gradient / spec.algorithm.slope
        release = exact(now, means)
        ends.append(learner.learn(state, policy, release).point)
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
    wrong = learner.learn(state, now, release).point
    assert np.abs(wrong - ends[0]).max() > 0.01


def exact(policy, means):
    """A release of people whose mean scores along the axes are these, without noise."""
    coins, arms = np.arange(1000, dtype=np.uint32), Arms(np.arange(1000) % 4)
    made = policy.contribute(None, coins, arms, np.zeros((1000, 2) if policy.points == 2 else 1000))
    release = policy.terms.mechanism.simulate(made, np.random.default_rng(1))
    return replace(release, sums=release.gain * release.counts * means[None, :])


@pytest.mark.parametrize("name", ["sphere", "smooth"])
def test_steps_are_shorter_the_more_people_choose_before_a_report(name):
    """A learner that takes late slopes for prompt ones makes steps of one length."""
    spec = CONVEX["local-smooth"] if name == "smooth" else without_curvature(CONVEX["local"])
    learner, first = ConvexLearner(spec), Schedule(spec).open(3)
    release = exact(first.policy, np.full(2, 0.5))
    sizes = [
        float(np.linalg.norm(learner.learn(first.state, policy, release).point))
        for policy in (first.policy, *(late_by(first.policy, rounds) for rounds in (5, 100)))
    ]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def without_curvature(spec):
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"strong_convexity": 0.0})})


def late_by(policy, rounds):
    """The policy of a later round, whose people all chose so many rounds before, around the same centre."""
    return replace(policy, version=policy.version + rounds).followed([(policy, 1.0)])


@pytest.mark.parametrize("places", [(2, 7), (7, 11)])
def test_coefficients_are_what_people_tell_who_chose_by_two_policies(places):
    """Sums of 200,000 people without noise. Planted: a learner that takes all for the round's own decisions."""
    spec = sparse_spec("shuffle", context__features=12, experiment__round_size=2000)
    schedule, rng = Schedule(spec), np.random.default_rng(10)
    first = schedule.open(5).policy
    known = {"coefficients": np.array([0.4, -0.3]), "explores": False}
    earlier = replace(first, places=np.array([2, 5]), **known)
    now = replace(first, version=2, places=np.array(places), **known)
    truth = np.zeros(12)
    truth[[2, 5]], truth[list(places)] = 0.1, [0.4, -0.3]
    count = 100_000
    sums = np.zeros(12)
    for decider in (earlier, now):
        contexts = rng.random((count, spec.dimension))
        arms = decider.decide(contexts, np.zeros(count, np.uint32)).arms
        features = 2 * contexts.reshape(count, 3, 12)[np.arange(count), arms] - 1
        made = now.contribute(contexts, np.zeros(count, np.uint32), Arms(arms), (features @ truth + 1) / 2)
        sums += made.values.sum(axis=0)
    learner, release = SumLearner(spec), VectorSums(2 * count, sums, 0.0)

    def off(policy):
        found = learner.estimates(learner.learn(learner.blank(), policy, release))
        wanted = truth[list(places)]
        return float(np.abs((found.values[list(places)] - wanted) / found.deviations[list(places)]).max())

    assert off(now.followed([(earlier, 0.5), (now, 0.5)])) < 8 < off(now)


def test_learning_with_the_wrong_slopes_costs_regret():
    """Planted: the learner takes late gradients for those of the open centre."""

    class Blind(LateSimulation):
        def decided(self, _step):
            return ()

    def regret(kind, seed):
        run = kind(load_spec(EXAMPLES / "convex-one-point.toml", DELAY, 30_000), seed)
        while run.step.batch:
            run.close_round()
        run.finish()
        return run.outcome().regret

    right, wrong = ([regret(kind, seed) for seed in range(4)] for kind in (LateSimulation, Blind))
    assert np.mean(right) < 0.9 * np.mean(wrong)
