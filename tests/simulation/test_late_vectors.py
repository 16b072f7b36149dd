"""Late reports of vectors, and late slopes of convex losses: how learners take reports on earlier decisions.

Fixed seeds. A comparison within 8 standard errors fails by chance once in 10^15, others once in 10^6 or as they say.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.convex.spec import ConvexSpec
from privateer_core.algorithms.linear.design_matrix import place_in_blocks, prior_moments
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import RowValues, merge_releases
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.delayed_reports import LateSimulation
from privateer_lab.simulation.scores import SeededNoise
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms.convex.learner import ConvexLearner
from privateer_server.algorithms.linear.context_moments import compute_slopes, simulate_rows
from privateer_server.algorithms.sparse.learner import SparseSumLearner
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import linear_spec, sparse_spec
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
        ("linear", ["experiment.min_round_fraction=0"]),
        ("generalized-linear", []),
        ("sparse", ["context.features=20", "experiment.round_size=4000"]),
        ("convex-two-point", []),
        ("convex-one-point", []),
    ],
    ids=lambda case: case if isinstance(case, str) else "-".join(case),
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
    """Return two policies: the later has better estimates of the arms, and measures in other directions."""
    schedule: Any = Schedule(linear_spec(model, privacy=privacy))
    first = schedule.open(3)
    second = schedule.open_next_step(first.state, 2, 4)
    away = 0.15 * np.array([[0.5, 1, 1, 0, 0], [-0.5, 0, -1, 1, 1]])
    earlier = replace(first.policy, means=TRUTH + away, factors=5 * first.policy.factors)
    rng = np.random.default_rng(5)
    turned = second.policy.whitening + 0.2 * rng.normal(size=(5, 5))
    means = TRUTH + np.array([[0.02, 0.05, 0, 0, 0.03], [-0.02, 0.1, 0.05, 0, 0]])
    return earlier, replace(second.policy, means=means, whitening=turned)


def choose_by_both(earlier, now, rng):
    """Rows, coins and arms of people half of whom chose by an earlier policy, and who chose by which."""
    rows = simulate_rows(now.design, prior_moments(now.design), rng)
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    is_late = np.arange(len(rows)) % 2 == 0
    arms = np.where(is_late, *(case.choose_arms(rows, case.draw_normals(coins)) for case in (earlier, now)))
    return rows, coins, arms, is_late


def make_vectors(policy, contributions):
    """Return the vectors of contributions; a curator makes them from records."""
    if not isinstance(contributions, RowValues):
        return contributions.values
    residuals, moments = policy.mechanism.ball.split_rows(contributions.rows, contributions.values)
    return np.hstack([place_in_blocks(residuals, contributions.arms, len(policy.means)), moments])


@pytest.mark.parametrize("model", PROMISES)
def test_slopes_have_the_mean_of_reports_on_decisions_of_two_policies(model):
    """Mean vectors of 32,768 people, by class, against matrices and offsets; both are drawn.

    Planted: a learner that takes all for decisions of the round's own policy; and devices that measure residuals from
    the means, in the directions, of the policy that decided.
    """
    earlier, now = policies(model)
    rows, coins, arms, is_late = choose_by_both(earlier, now, np.random.default_rng(6))
    rewards = now.rewards_link.means((rows * TRUTH[arms]).sum(axis=1))
    contexts, moments = (rows[:, 1:] + 1) / 2, prior_moments(now.design)
    right, earlier_values = (
        make_vectors(case, case.contribute(contexts, coins, Arms(arms), rewards)) for case in (now, earlier)
    )
    classes = np.where(is_late, now.find_classes(coins, earlier), now.find_classes(coins, now))

    def agree(values, followed):
        slopes = compute_slopes(followed, moments)
        expected = np.einsum("ckij,kj->cki", slopes.matrices, TRUTH - now.means) + slopes.offsets
        for indice in range(now.classes):
            of_class = values[classes == indice][:, : now.means.size] / np.sqrt(1 - now.share)
            error = 8 * of_class.std(axis=0) / np.sqrt(len(of_class)) + 1e-12
            if not (np.abs(of_class.mean(axis=0) - expected[indice].ravel()) <= error).all():
                return False
        return True

    mixed = now.with_decision_policies([(earlier, 0.5), (now, 0.5)])
    assert agree(right, mixed)
    assert not agree(right, now)
    assert not agree(np.where(is_late[:, None], earlier_values, right), mixed)


def contribute(policy, decider, rng):
    """Return contributions of 300 participants who chose by a policy, and their sums by class."""
    rows = simulate_rows(policy.design, prior_moments(policy.design), rng)[:300]
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms = decider.choose_arms(rows, decider.draw_normals(coins))
    contributions = policy.contribute((rows[:, 1:] + 1) / 2, coins, Arms(arms), np.ones(len(rows)))
    classes = policy.find_classes(coins, decider)
    sums = [contributions.values[classes == indice].sum(axis=0) for indice in range(policy.classes)]
    return contributions, np.concatenate(sums)


def randomize_reports(policy, contributions, rng):
    return policy.mechanism.randomize(contributions, SeededNoise(int(rng.integers(2**63)))).tobytes()


def sums_of(policy, reports, analyzer):
    """The sums of a release, by the real path."""
    return policy.mechanism.release(analyzer.tally(policy.mechanism, reports), SeededNoise(1)).sums


def test_sums_are_of_the_classes_that_earlier_coins_had():
    """Planted: the coins are read as the round's own. The same reports then are 24 standard errors off."""
    earlier, now = policies("local", epsilon=4.0)
    rng = np.random.default_rng(7)
    batches = (contribute(now, earlier, rng) for _ in range(40))
    reports_and_sums = [(randomize_reports(now, contributions, rng), exact) for contributions, exact in batches]
    for decider, right in ((earlier, True), (now, False)):
        analyzer = now.make_analyzer(decider)
        assert centred([sums_of(now, reports, analyzer) - exact for reports, exact in reports_and_sums], 0.0) is right


@pytest.mark.nightly
def test_simulated_releases_have_the_law_of_real_ones():
    """Planted: releases of the round's own classes."""
    earlier, now = policies("local", epsilon=4.0)
    rng, late, current = np.random.default_rng(8), now.make_analyzer(earlier), now.make_analyzer(now)
    real = [sums_of(now, randomize_reports(now, contribute(now, earlier, rng)[0], rng), late) for _ in range(120)]

    def simulated(analyzer):
        return [analyzer.simulate(now.mechanism, contribute(now, earlier, rng)[0], rng).sums for _ in range(120)]

    assert same_law(real, simulated(late))
    assert not same_law(real, simulated(current))


CONVEX = ConvexSpec.instances()
BEST = np.array([0.3, -0.2])


def gradients(name, blind=False):
    """Estimates of a quadratic reward's gradient where half of the people chose by an earlier policy; and the truth."""
    spec, rng = CONVEX[name], np.random.default_rng(9)
    schedule: Any = Schedule(spec)
    learner, first = ConvexLearner(spec), schedule.open(3)
    state = replace(first.state, point=np.array([0.35, 0.3]), learned=3000)
    earlier, now = first.policy, schedule.open_next_step(state, 2, 4).policy
    followed, estimates = now if blind else now.with_decision_policies([(earlier, 0.5), (now, 0.5)]), []
    for _ in range(150):
        parts = []
        for decider in (earlier, now):
            coins = rng.integers(0, 2**32, now.terms.batch_size // 2, dtype=np.uint32)
            decisions = decider.decide(np.zeros((len(coins), 0)), coins)
            rewards = 0.9 - np.square(decisions.points - BEST).sum(axis=2) / 4
            rewards = rewards[:, 0] if rewards.shape[1] == 1 else rewards
            report_coins = rng.integers(0, 2**32, len(coins), dtype=np.uint32) if now.has_fresh_coins else coins
            parts.append((now.make_analyzer(decider), now.contribute(None, report_coins, decisions, rewards)))
        release = merge_releases(*(analyzer.simulate(now.terms.mechanism, case, rng) for analyzer, case in parts))
        estimates.append(learner._estimate_gradient(followed, release))
    return np.array(estimates), -(followed.gradient_point - BEST) / 2


@pytest.mark.parametrize("name", ["local", "shuffle", "central", "none", "local-ellipsoid", "local-smooth"])
def test_late_slopes_are_a_gradient_between_the_centres(name):
    """Planted: they are taken for the gradient at the open round's centre."""
    assert centred(*gradients(name))
    assert not centred(*gradients(name, blind=True))


def test_a_late_gradient_moves_the_centre_as_a_prompt_gradient_does():
    """Without noise, of a reward as curved as the spec says; planted: it is taken for that of the open centre."""
    spec = CONVEX["none"]
    learner, step = ConvexLearner(spec), Schedule(spec).open(3)
    state = replace(step.state, point=np.array([0.35, 0.3]), learned=3000)
    now: Any = learner.open_next_round(state, 2, 4).policy
    ends = []
    for policy in (now, now.with_decision_policies([(step.policy, 1.0)])):
        gradient = BEST - policy.gradient_point
        means = policy.gradient_axes @ gradient / spec.algorithm.slope
        release = exact_release(now, means)
        ends.append(learner.learn(state, policy, release).point)
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
    wrong = learner.learn(state, now, release).point
    assert np.abs(wrong - ends[0]).max() > 0.01


def exact_release(policy, means):
    """A release of people whose mean scores along the axes are these, without noise."""
    coins, arms = np.arange(1000, dtype=np.uint32), Arms(np.arange(1000) % 4)
    contributions = policy.contribute(None, coins, arms, np.zeros((1000, 2) if policy.points == 2 else 1000))
    release = policy.terms.mechanism.simulate(contributions, np.random.default_rng(1))
    return msgspec.structs.replace(release, sums=release.gain * release.counts * means[None, :])


@pytest.mark.parametrize("name", ["sphere", "smooth"])
def test_steps_are_shorter_the_more_people_choose_before_a_report(name):
    """Planted: a learner that takes late slopes for prompt slopes makes steps of equal length."""
    spec = CONVEX["local-smooth"] if name == "smooth" else without_curvature(CONVEX["local"])
    learner, first = ConvexLearner(spec), Schedule(spec).open(3)
    release = exact_release(first.policy, np.full(2, 0.5))
    sizes = [
        float(np.linalg.norm(learner.learn(first.state, policy, release).point))
        for policy in (first.policy, *(with_late_deciders(first.policy, rounds) for rounds in (5, 100)))
    ]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def without_curvature(spec):
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"strong_convexity": 0.0})})


def with_late_deciders(policy, rounds):
    """Return the policy of a later round, whose participants chose ``rounds`` rounds before, around the same centre."""
    return replace(policy, version=policy.version + rounds).with_decision_policies([(policy, 1.0)])


@pytest.mark.parametrize("places", [(2, 7), (7, 11)])
def test_coefficients_are_unbiased_by_reports_on_decisions_of_two_policies(places):
    """Sums of 200,000 people without noise. Planted: a learner that takes all for the round's own decisions."""
    spec = sparse_spec("shuffle", context__features=12, experiment__round_size=2000)
    schedule, rng = Schedule(spec), np.random.default_rng(10)
    first = schedule.open(5).policy
    fields = {"coefficients": np.array([0.4, -0.3]), "explores": False}
    earlier = replace(first, places=np.array([2, 5]), **fields)
    now = replace(first, version=2, places=np.array(places), **fields)
    truth = np.zeros(12)
    truth[[2, 5]], truth[list(places)] = 0.1, [0.4, -0.3]
    count = 100_000
    sums = np.zeros(12)
    for decider in (earlier, now):
        contexts = rng.random((count, spec.dimension))
        arms = decider.decide(contexts, np.zeros(count, np.uint32)).arms
        features = 2 * contexts.reshape(count, 3, 12)[np.arange(count), arms] - 1
        contributions = now.contribute(contexts, np.zeros(count, np.uint32), Arms(arms), (features @ truth + 1) / 2)
        sums += contributions.values.sum(axis=0)
    learner, release = SparseSumLearner(spec), VectorSums(2 * count, sums, 0.0)

    def off(policy):
        estimates = learner.estimates(learner.learn(learner.empty_state(), policy, release))
        expected = truth[list(places)]
        return float(np.abs((estimates.values[list(places)] - expected) / estimates.deviations[list(places)]).max())

    assert off(now.with_decision_policies([(earlier, 0.5), (now, 0.5)])) < 8 < off(now)


def test_learning_with_the_wrong_slopes_costs_regret():
    """Planted: the learner takes late gradients for those of the open centre."""

    class Blind(LateSimulation):
        def find_deciding_policies(self, _step):
            return ()

    def regret(kind, seed):
        run = kind(load_spec(EXAMPLES / "convex-one-point.toml", DELAY, 30_000), seed)
        while run.step.batch_size:
            run.close_round()
        run.finish()
        return run.build_run().regret

    right, wrong = ([regret(kind, seed) for seed in range(4)] for kind in (LateSimulation, Blind))
    assert np.mean(right) < 0.9 * np.mean(wrong)
