"""The phased learner: least squares, widths that cover, what is dropped, and how it ends."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.phased.design import span_of
from privateer_server.algorithms.phased.learner import PhasedLearner
from tests.support.phased import TRUST, phased_spec
from tests.support.statistics import FALSE_ALARM

INLINE = {"actions": {"vectors": [[0.9, 0.0, 0.0], [0.0, 0.6, 0.0], [0.5, 0.5, 0.0], [-0.4, 0.7, 0.0]]}}


def opened(spec, seed=3):
    learner = learner_for(spec)
    state = learner.start(seed)
    return learner, state, learner.next(state, 1, 0).policy


def exact(spec, policy, theta, people=None):
    """A release without any noise."""
    people = people or policy.terms.batch
    return VectorSums(people, people * (spec.actions.matrix[policy.support] @ theta), 0.0)


def test_plays_are_those_of_the_design():
    spec = phased_spec()
    _, state, policy = opened(spec)
    assert policy.rounds >= spec.first_length
    assert policy.rounds <= spec.first_length + len(policy.support)
    assert policy.active.tolist() == list(range(30)) == state.active.tolist()
    assert policy.terms.batch == 2


def test_estimates_are_weighted_least_squares():
    spec = phased_spec()
    learner, state, policy = opened(spec)
    averages = np.random.default_rng(4).normal(size=len(policy.support))
    after = learner.learn(state, policy, VectorSums(50, 50 * averages, 0.0))
    root = np.sqrt(policy.plays)
    theta, *_ = np.linalg.lstsq(spec.actions.matrix[policy.support] * root[:, None], averages * root, rcond=None)
    assert after.estimates == pytest.approx((spec.actions.matrix @ theta)[after.active])


def test_exact_releases_are_learned_exactly_within_a_span():
    spec = phased_spec(INLINE)
    learner, state, policy = opened(spec)
    theta = np.array([0.4, -0.2, 123.0])
    after = learner.learn(state, policy, exact(spec, policy, theta))
    assert after.estimates == pytest.approx(spec.actions.matrix[after.active] @ theta)
    assert len(span_of(spec.actions.matrix)) == 2


@pytest.mark.parametrize("trust", ["none", "central", "local", "local-normal", "shuffle"])
def test_widths_cover_differences(trust):
    """Differences of two actions are off by more than their width at most as often as beta; planted: half the width."""
    beta, draws = 0.05, 400
    spec = phased_spec({"algorithm.beta": beta, "algorithm.clients": 30.0, "experiment.people": 50_000}, trust)
    learner, _, policy = opened(spec)
    people, nothing = environment_for(spec, 1), np.zeros((policy.terms.batch, 0))
    values = people.means(nothing[:1])[0] - spec.reward.middle
    basis = span_of(spec.actions.matrix)
    points = spec.actions.matrix @ basis.T
    rng = np.random.default_rng(8)
    pairs = [(0, 1), (2, 3), (4, 5)]
    missed = np.zeros((2, len(pairs)))
    for _ in range(draws):
        decisions = policy.decide(nothing, np.zeros(0, np.uint32))
        averages = people.rewards(nothing, decisions, rng) * 0.9
        coins = rng.integers(0, 2**32, len(averages), dtype=np.uint32)
        release = policy.mechanism.simulate(policy.contribute(nothing, coins, decisions, averages), rng)
        estimate = learner._estimate(policy, release.sums / release.reports, release.reports, basis)
        for column, (one, other) in enumerate(pairs):
            difference = points[one] - points[other]
            error = difference @ estimate.theta - 0.9 * (values[one] - values[other])
            width = float(estimate.width(difference[None, :], learner.log)[0])
            missed[0, column] += error > width
            missed[1, column] += error > width / 3
    assert (stats.binom.sf(missed[0] - 1, draws, beta) > FALSE_ALARM).all()
    assert stats.binom.sf(missed[1].sum() - 1, draws * len(pairs), beta) < FALSE_ALARM


@pytest.mark.parametrize("trust", ["none", "shuffle"])
def test_the_best_action_is_kept(trust, monkeypatch):
    """A union over actions and phases bounds how often it is lost; planted: next to no width."""
    changes = {"algorithm.beta": 1e-4, "experiment.horizon": 60_000, "actions.count": 12, "actions.dimension": 3}
    spec = phased_spec({**changes, "algorithm.clients": 10.0, "experiment.people": 50_000}, trust)
    kept = [simulate_once(spec, seed) for seed in range(40)]
    lost = sum(not run.facts["best_action_kept"] for run in kept)
    assert stats.binom.sf(lost - 1, 40, 12 * spec.phases * 1e-4) > FALSE_ALARM
    assert np.mean([run.regret / run.uniform_regret for run in kept]) < 0.2
    learner_width = PhasedLearner._keep

    def hasty(self, closed, policy, people, points, values, estimate):
        narrow = replace(estimate, covariance=estimate.covariance / 1e6, scale=estimate.scale / 1e3)
        return learner_width(self, closed, policy, people, points, values, narrow)

    monkeypatch.setattr(PhasedLearner, "_keep", hasty)
    lost = sum(not simulate_once(spec, seed).facts["best_action_kept"] for seed in range(40))
    assert stats.binom.sf(lost - 1, 40, 12 * spec.phases * 1e-4) < FALSE_ALARM


def test_published_widths_are_those_of_equation_3():
    spec = phased_spec({"algorithm.beta": 0.01}, "central-published")
    learner, _, policy = opened(spec)
    n, d, h = policy.terms.batch, 4, spec.first_length
    noise = policy.mechanism.standard_deviation / 2**14 / n
    width = (math.sqrt(2 * d / (n * h)) + 0.1 / math.sqrt(n) + 2 * noise * math.sqrt(d)) * math.sqrt(2 * math.log(100))
    values = np.array([0.0, -1.999 * width, -2.001 * width])
    assert learner._keep(0, policy, n, values, values, None).tolist() == [True, True, False]


def test_published_plays_the_last_phase_as_far_as_it_fits_and_tight_the_best():
    for trust, kinds in (("central", 1), ("central-published", 2)):
        spec = phased_spec({"experiment.horizon": 100}, trust)
        learner, state, policy = opened(spec)
        state = replace(learner.learn(state, policy, exact(spec, policy, np.zeros(4))), phase=9)
        state = replace(state, estimates=np.arange(30.0))
        ending = learner.next(state, 10, 0).policy
        ending.check(spec)
        assert learner.batch(state) == ending.terms.batch == 0
        assert ending.rounds == 100 - state.played
        assert len(ending.support) >= kinds
        if kinds == 1:
            assert ending.support.tolist() == [29]


def test_a_phase_that_does_not_fit_asks_nobody():
    spec = phased_spec({"experiment.horizon": 150}, "central")
    learner, state, policy = opened(spec)
    state = replace(learner.learn(state, policy, exact(spec, policy, np.zeros(4))), played=149)
    ending = learner.next(state, 2, 0).policy
    assert (ending.terms.batch, ending.rounds, len(ending.support)) == (0, 1, 1)


def test_one_action_left_is_played_to_the_end():
    spec = phased_spec({"actions": {"vectors": [[1.0, 0.0], [0.0, 1.0]]}, "algorithm.client_deviation": 0.0})
    steps = []
    simulate_once(spec, 5, watch=steps.append)
    assert steps[-1].batch == 0
    assert len(steps) - 1 < spec.phases
    assert sum(step.policy.rounds for step in steps) == spec.experiment.horizon


@pytest.mark.parametrize("trust", TRUST)
def test_nobody_is_asked_twice_and_all_rounds_are_played(trust):
    spec = phased_spec({"algorithm.clients": 3.0}, trust)
    learner = PhasedLearner(spec)
    state, asked = learner.start(77), []
    while batch := learner.batch(state):
        policy = learner.next(state, state.phase + 1, 0).policy
        if not policy.terms.batch:
            break
        asked += policy.draw.asked().tolist()
        assert len(asked) == policy.draw.start + batch
        state = learner.learn(state, policy, exact(spec, policy, np.zeros(4)))
    assert len(set(asked)) == len(asked) > 100
    assert state.played + learner.next(state, 99, 0).policy.rounds == spec.experiment.horizon


@pytest.mark.parametrize("trust", ["none", "central-published"])
def test_a_repeated_phase_is_the_same_one_with_other_people(trust):
    """A policy's version is no number of a phase: what is learned from a repeated one does not depend on it."""
    spec = phased_spec({"algorithm.clients": 3.0}, trust)
    learner, state, policy = opened(spec)
    again = learner.miss(state, policy, again=True)
    repeated = learner.next(again, 7, 0).policy
    assert (again.phase, again.played, again.failed) == (0, 0, False)
    assert (repeated.draw.start, repeated.draw.places) == (policy.draw.places, policy.draw.places)
    assert not set(policy.draw.asked()) & set(repeated.draw.asked())
    released = exact(spec, policy, np.array([0.5, 0.1, 0, 0]))
    once, twice = learner.learn(state, policy, released), learner.learn(again, repeated, released)
    assert twice.asked == once.asked + policy.draw.places
    assert (twice.active.tolist(), twice.widths.tolist()) == (once.active.tolist(), once.widths.tolist())


def test_phases_are_repeated_as_long_as_there_are_people():
    spec = phased_spec({"experiment.people": 2000})
    needed = sum(spec.asked(spec.clients(phase)) for phase in range(1, spec.phases + 1))
    spec = phased_spec({"experiment.people": needed + spec.asked(spec.clients(1))})
    learner, state, policy = opened(spec)
    state = learner.miss(state, policy, again=True)
    while not state.failed and learner.batch(state):
        policy = learner.next(state, 1, 0).policy
        assert policy.draw.start + policy.draw.places <= spec.experiment.people
        state = learner.miss(state, policy, again=True)
    assert state.failed
    assert learner.batch(state) == 0


def test_people_who_are_missing_after_repeats_end_the_experiment_with_what_it_knows():
    """The next phase needs more people than are left: the best action so far is played, the experiment is failed."""
    spec = phased_spec({"experiment.people": 2000})
    needed = sum(spec.asked(spec.clients(phase)) for phase in range(1, spec.phases + 1))
    spec = phased_spec({"experiment.people": needed})
    learner, state, policy = opened(spec)
    state = learner.miss(state, policy, again=True)
    while learner.batch(state):
        policy = learner.next(state, 1, 0).policy
        state = learner.learn(state, policy, exact(spec, policy, np.zeros(4)))
    assert state.failed
    assert state.phase == spec.phases - 1
    assert learner.next(state, 99, 0).policy.rounds == spec.experiment.horizon - state.played


def test_a_release_of_fewer_people_is_learned_with_wider_widths():
    spec = phased_spec({"algorithm.clients": 50.0, "experiment.people": 50_000}, "central")
    learner, state, policy = opened(spec)
    theta = np.array([0.1, 0, 0, 0])
    whole, half = (learner.learn(state, policy, exact(spec, policy, theta, n)) for n in (policy.terms.batch, 44))
    assert half.estimates == pytest.approx(whole.estimates)
    assert (half.widths[half.widths > 0] > 1.4 * whole.widths[whole.widths > 0]).all()
    assert half.asked == whole.asked == policy.terms.batch


@pytest.mark.parametrize(("scale", "least", "most"), [(0.5, 0.0, 1e-6), (1.0, 0.0, 0.15), (4.0, 0.25, 1.0)])
def test_the_clipped_share_is_told_from_releases(scale, least, most):
    """With theta of length 4 most actions' rewards are beyond 1; actions close to theta's length 1 touch it.

    A run that keeps few actions soon tells next to nothing (.02), others .86; which, hangs on the last bits of a
    design, which differ between machines. So 16 runs count: fewer than 5 of the others come 3 times in 1,000.
    """
    changes = {"population.scale": scale, "algorithm.clients": 20.0, "experiment.people": 20_000}
    spec = phased_spec({**changes, "experiment.horizon": 3000}, "none")
    told = np.mean([simulate_once(spec, seed).facts["clipped_share"] for seed in range(16)])
    assert least <= told <= most


def test_the_clipped_share_is_not_above_the_truth():
    """People of deviation .3 around the bound itself: half of their averages are clipped; planted noise tells less."""
    changes = {"algorithm.client_deviation": 0.3, "algorithm.clients": 5000.0, "experiment.people": 10**7}
    spec = phased_spec({**changes, "actions": {"vectors": [[1.0, 0.0], [0.0, 1.0]]}})
    learner, _, policy = opened(spec)
    people = np.clip(1 + 0.3 * np.random.default_rng(1).normal(size=(100_000, 2)), -1, 1)
    told = learner._clipped(policy, people.mean(axis=0), policy.terms.batch)
    assert 0.45 <= told <= 0.5
    assert learner._clipped(policy, people.mean(axis=0), 20) < told


def test_descriptions_name_what_is_left():
    spec = phased_spec({"reward.low": 0.0})
    learner, state, policy = opened(spec)
    first = learner.answer(state)
    assert (first.status, first.people, first.says_something) == ("learning", 0, False)
    after = learner.learn(state, policy, exact(spec, policy, np.array([0.25, 0, 0, 0])))
    found = learner.answer(after)
    facts = {fact.name: fact.value for fact in found.parts[0].facts}
    assert (facts["phases"], facts["people asked"], facts["rounds played"]) == (1, 2, policy.rounds)
    assert facts["actions left"] == len(found.estimates) == len(after.active)
    assert min(after.widths) == 0.0


def test_the_result_has_an_interval_for_every_action_left():
    """Planted: intervals of a third of their width miss."""
    spec = phased_spec({"algorithm.clients": 50.0, "experiment.people": 50_000}, "central")
    learner, state, policy = opened(spec)
    assert not learner.answer(state).says_something
    theta = np.array([0.3, -0.1, 0.2, 0.1])
    after = learner.learn(state, policy, exact(spec, policy, theta))
    found = learner.answer(after)
    truth = spec.actions.matrix @ theta
    assert [one.name for one in found.estimates] == [str(row) for row in after.active]
    assert all(one.low < truth[int(one.name)] < one.high for one in found.estimates)
    assert found.recommended == str(int(np.argmax(truth)))
    assert 0.99 < found.confidence < 1
    assert not found.is_over
    assert learner.answer(replace(after, failed=True)).status == "failed"
