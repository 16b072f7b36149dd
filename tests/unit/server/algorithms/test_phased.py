"""The phased learner: plays, least squares, widths that cover, what is dropped, and how it ends."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.phased.design import compute_span
from privateer_server.algorithms.phased.learner import PhasedLearner
from tests.support.phased import phased_spec
from tests.support.statistics import FALSE_ALARM

INLINE = {"actions": {"vectors": [[0.9, 0.0, 0.0], [0.0, 0.6, 0.0], [0.5, 0.5, 0.0], [-0.4, 0.7, 0.0]]}}


def open_first_phase(spec, seed=3):
    learner = learner_for(spec)
    state = learner.start(seed)
    return learner, state, learner.open_next_round(state, 1, 0).policy


def exact_release(spec, policy, theta, people=None):
    """A release without any noise."""
    people = people or policy.terms.batch_size
    return VectorSums(people, people * (spec.actions.matrix[policy.support] @ theta), 0.0)


def test_plays_follow_the_design():
    spec = phased_spec()
    _, state, policy = open_first_phase(spec)
    assert policy.rounds >= spec.first_phase_length
    assert policy.rounds <= spec.first_phase_length + len(policy.support)
    assert policy.active.tolist() == list(range(30)) == state.active.tolist()
    assert policy.terms.batch_size == 2


def test_estimates_are_weighted_least_squares():
    spec = phased_spec()
    learner, state, policy = open_first_phase(spec)
    averages = np.random.default_rng(4).normal(size=len(policy.support))
    after = learner.learn(state, policy, VectorSums(50, 50 * averages, 0.0))
    root = np.sqrt(policy.plays)
    theta, *_ = np.linalg.lstsq(spec.actions.matrix[policy.support] * root[:, None], averages * root, rcond=None)
    assert after.estimates == pytest.approx((spec.actions.matrix @ theta)[after.active])


def test_exact_releases_are_learned_exactly_within_a_span():
    spec = phased_spec(INLINE)
    learner, state, policy = open_first_phase(spec)
    theta = np.array([0.4, -0.2, 123.0])
    after = learner.learn(state, policy, exact_release(spec, policy, theta))
    assert after.estimates == pytest.approx(spec.actions.matrix[after.active] @ theta)
    assert len(compute_span(spec.actions.matrix)) == 2


@pytest.mark.parametrize("trust", ["none", "central", "local", "local-normal", "shuffle"])
def test_widths_cover_differences(trust, monkeypatch):
    """Differences of two actions are off by more than their width at most as often as beta; planted: half the width."""
    beta, draws = 0.05, 400
    monkeypatch.setattr(PhasedSpec, "comparison_failure_probability", beta)
    spec = phased_spec({"algorithm.participants_factor": 30.0, "experiment.participants": 50_000}, trust)
    learner, _, policy = open_first_phase(spec)
    people, no_contexts = environment_for(spec, 1), np.zeros((policy.terms.batch_size, 0))
    values = people.means(no_contexts[:1])[0] - spec.reward.middle
    basis = compute_span(spec.actions.matrix)
    points = spec.actions.matrix @ basis.T
    rng = np.random.default_rng(8)
    pairs = [(0, 1), (2, 3), (4, 5)]
    missed = np.zeros((2, len(pairs)))
    for _ in range(draws):
        decisions = policy.decide(no_contexts, np.zeros(0, np.uint32))
        averages = people.rewards(no_contexts, decisions, rng) * 0.9
        coins = rng.integers(0, 2**32, len(averages), dtype=np.uint32)
        release = policy.mechanism.simulate(policy.contribute(no_contexts, coins, decisions, averages), rng)
        estimate = learner._estimate_parameters(policy, release.sums / release.reports, release.reports, basis)
        for column, (first, second) in enumerate(pairs):
            difference = points[first] - points[second]
            error = difference @ estimate.theta - 0.9 * (values[first] - values[second])
            width = float(estimate.width(difference[None, :], learner.log)[0])
            missed[0, column] += error > width
            missed[1, column] += error > width / 3
    assert (stats.binom.sf(missed[0] - 1, draws, beta) > FALSE_ALARM).all()
    assert stats.binom.sf(missed[1].sum() - 1, draws * len(pairs), beta) < FALSE_ALARM


@pytest.mark.parametrize("trust", ["none", pytest.param("shuffle", marks=pytest.mark.nightly)])
def test_the_best_action_is_rarely_eliminated(trust, monkeypatch):
    """A union over actions and phases bounds how often it is lost; planted: next to no width."""
    monkeypatch.setattr(PhasedSpec, "comparison_failure_probability", 1e-4)
    changes = {"experiment.horizon": 60_000, "actions.count": 12, "actions.dimension": 3}
    spec = phased_spec({**changes, "algorithm.participants_factor": 10.0, "experiment.participants": 50_000}, trust)
    runs = [simulate_once(spec, seed) for seed in range(40)]
    n_lost = sum(not run.facts["best_action_kept"] for run in runs)
    assert stats.binom.sf(n_lost - 1, 40, 12 * spec.phases * 1e-4) > FALSE_ALARM
    assert np.mean([run.regret / run.uniform_regret for run in runs]) < 0.2
    learner_width = PhasedLearner._select_active

    def use_narrow_widths(self, closed, policy, people, points, values, estimate):
        narrow = replace(estimate, covariance=estimate.covariance / 1e6, scale=estimate.scale / 1e3)
        return learner_width(self, closed, policy, people, points, values, narrow)

    monkeypatch.setattr(PhasedLearner, "_select_active", use_narrow_widths)
    n_lost = sum(not simulate_once(spec, seed).facts["best_action_kept"] for seed in range(40))
    assert stats.binom.sf(n_lost - 1, 40, 12 * spec.phases * 1e-4) < FALSE_ALARM


BOX = {"actions": {"low": [0.0, -10.0, 1.0], "high": [1.0, 10.0, 5.0]}}


def learn_phases(spec, theta, n_phases, bend=0.0):
    """States of so many phases at most, without noise, of rewards with ``bend`` times the power that is tested."""
    learner: Any = learner_for(spec)
    box, states = spec.actions.box, [learner.start(3)]
    for version in range(1, n_phases + 1):
        policy = learner.open_next_round(states[-1], version, 0).policy
        if policy.terms.batch_size == 0:
            break
        powers = box.compute_powers(box.locate(policy.support))
        means = spec.actions.matrix[policy.support] @ theta + bend * powers[:, 0]
        people = policy.terms.batch_size
        states.append(learner.learn(states[-1], policy, VectorSums(people, people * means, 0.0)))
    return learner, states


def test_a_box_begins_with_a_coarse_cover_and_refines_what_is_left():
    """Phase by phase the points left are of the same cover or the next, and lie around those left before."""
    spec = phased_spec({**BOX, "experiment.horizon": 200_000, "experiment.participants": 50_000})
    theta = np.random.default_rng(2).normal(size=10)
    learner, states = learn_phases(spec, theta / np.linalg.norm(theta), 9)
    box = spec.actions.box
    assert states[0].active.tolist() == box.list_rows(2).tolist()
    assert [state.level for state in states] == [2, 2, 3, *[state.level for state in states[3:]]]
    for before, after in itertools.pairwise(states):
        assert after.level - before.level in (0, 1)
        assert set(after.active.tolist()) <= set(box.list_rows(after.level).tolist())
        gaps = np.abs(box.locate(after.active)[:, None] - box.locate(before.active)).max(axis=2).min(axis=1)
        assert gaps.max() <= 2.0 ** (1 - after.level)
        assert len(after.active) <= 1000
    assert states[-1].level == box.last_level
    best = int(np.argmax(spec.actions.matrix @ theta))
    assert learner.answer(states[-1]).recommended == spec.options[best]


@pytest.mark.parametrize(("trust", "factor"), [("none", 1.0), ("central", 30.0)])
def test_the_best_point_of_a_box_is_approached(trust, factor):
    """Ten runs: less than a tenth of the regret of chance without noise, less than a half with it."""
    changes = {"experiment.horizon": 100_000, "experiment.participants": 200_000}
    spec = phased_spec({**BOX, **changes, "algorithm.participants_factor": factor}, trust)
    runs = [simulate_once(spec, seed) for seed in range(10)]
    assert np.mean([run.regret / run.uniform_regret for run in runs]) < (0.1 if trust == "none" else 0.5)
    assert max(run.facts["reward_lost_at_the_best_point_left"] for run in runs) < 0.01


@pytest.mark.parametrize("degree", [1, 2])
def test_a_reward_that_is_no_polynomial_of_the_degree_is_detected(degree):
    """Without noise there is a departure along the side that bends, and none along others or of a polynomial."""
    changes = {"experiment.participants": 500_000, "algorithm.participants_factor": 100.0}
    spec = phased_spec({"actions": {**BOX["actions"], "degree": degree}, **changes})
    learner, (*_, bent) = learn_phases(spec, np.zeros(spec.actions.shape[1]), 6, bend=0.5)
    assert abs(bent.lack_of_fit.departures[0]) > bent.lack_of_fit.radii[0]
    assert bent.lack_of_fit.departures[1:] == pytest.approx([0.0, 0.0], abs=1e-9)
    answer = learner.answer(bent)
    assert answer.basis == "ahead, and not decided"
    _, table = answer.parts
    assert table.title == "where the best point is, and rewards that are no polynomial"
    ends = [bent.lack_of_fit.departures[0] + sign * bent.lack_of_fit.radii[0] for sign in (-1, 1)]
    assert table.rows[0][0] == "x1"
    assert table.rows[0][4:] == pytest.approx([bent.lack_of_fit.departures[0], *ends])
    theta = np.array([0.0, 1.0, 0.7, 0.5, *[0.0] * (spec.actions.shape[1] - 4)])
    learner, (*_, straight) = learn_phases(spec, theta, 8)
    assert straight.lack_of_fit.departures == pytest.approx(np.zeros(3), abs=1e-9)
    answer = learner.answer(straight)
    assert answer.basis == "decided against all other options"
    assert answer.parts[1].title == "where the best point is"


@pytest.mark.parametrize("trust", ["none", "central", "local", "shuffle"])
def test_departures_are_detected_as_seldom_as_stated(trust, monkeypatch):
    """Of polynomials a departure is beyond its radius with a probability of 2 beta at most; planted: a third of it."""
    beta, draws = 0.05, 400
    monkeypatch.setattr(PhasedSpec, "comparison_failure_probability", beta)
    changes = {"algorithm.participants_factor": 30.0, "experiment.participants": 50_000}
    spec = phased_spec({"actions": {"low": [0.0, 0.0], "high": [1.0, 1.0]}, **changes}, trust)
    learner, _, policy = open_first_phase(spec)
    people, no_contexts = environment_for(spec, 1), np.zeros((policy.terms.batch_size, 0))
    rng, missed = np.random.default_rng(8), np.zeros((2, 2))
    for _ in range(draws):
        decisions = policy.decide(no_contexts, np.zeros(0, np.uint32))
        averages = people.rewards(no_contexts, decisions, rng) * 0.5
        coins = rng.integers(0, 2**32, len(averages), dtype=np.uint32)
        release = policy.mechanism.simulate(policy.contribute(no_contexts, coins, decisions, averages), rng)
        test = learner._test_fit(policy, release.sums / release.reports, release.reports)
        missed[0] += np.abs(test.departures) > test.radii
        missed[1] += np.abs(test.departures) > test.radii / 4
    assert (stats.binom.sf(missed[0] - 1, draws, 2 * beta) > FALSE_ALARM).all()
    assert stats.binom.sf(missed[1].sum() - 1, draws * 2, 2 * beta) < FALSE_ALARM


def test_published_widths_are_those_of_equation_3(monkeypatch):
    monkeypatch.setattr(PhasedSpec, "comparison_failure_probability", 0.01)
    spec = phased_spec({}, "central-published")
    learner, _, policy = open_first_phase(spec)
    n, d, h = policy.terms.batch_size, 4, spec.first_phase_length
    noise = policy.mechanism.standard_deviation / 2**14 / n
    width = (math.sqrt(2 * d / (n * h)) + 0.1 / math.sqrt(n) + 2 * noise * math.sqrt(d)) * math.sqrt(2 * math.log(100))
    values = np.array([0.0, -1.999 * width, -2.001 * width])
    assert learner._select_active(0, policy, n, values, values, None).tolist() == [True, True, False]


def test_the_last_phase_is_truncated_as_published_or_plays_the_best_action():
    for trust, kinds in (("central", 1), ("central-published", 2)):
        spec = phased_spec({"experiment.horizon": 100}, trust)
        learner, state, policy = open_first_phase(spec)
        state = replace(learner.learn(state, policy, exact_release(spec, policy, np.zeros(4))), phase=9)
        state = replace(state, estimates=np.arange(30.0))
        ending = learner.open_next_round(state, 10, 0).policy
        ending.check(spec)
        assert learner.batch_size(state) == ending.terms.batch_size == 0
        assert ending.rounds == 100 - state.played
        assert len(ending.support) >= kinds
        if kinds == 1:
            assert ending.support.tolist() == [29]


def test_a_phase_beyond_the_horizon_invites_no_participants():
    spec = phased_spec({"experiment.horizon": 150}, "central")
    learner, state, policy = open_first_phase(spec)
    state = replace(learner.learn(state, policy, exact_release(spec, policy, np.zeros(4))), played=149)
    ending = learner.open_next_round(state, 2, 0).policy
    assert (ending.terms.batch_size, ending.rounds, len(ending.support)) == (0, 1, 1)


@pytest.mark.parametrize("trust", ["none", "central-published"])
def test_a_repeated_phase_has_the_same_design_and_other_participants(trust):
    """The learned state of a repeated phase does not depend on the version of its policy."""
    spec = phased_spec({"algorithm.participants_factor": 3.0}, trust)
    learner, state, policy = open_first_phase(spec)
    missed = learner.learn_without_release(state, policy, is_repeated=True)
    repeated = learner.open_next_round(missed, 7, 0).policy
    assert (missed.phase, missed.played, missed.failed) == (0, 0, False)
    assert (repeated.draw.start, repeated.draw.places) == (policy.draw.places, policy.draw.places)
    assert not set(policy.draw.select_participants()) & set(repeated.draw.select_participants())
    released = exact_release(spec, policy, np.array([0.5, 0.1, 0, 0]))
    played, played_again = learner.learn(state, policy, released), learner.learn(missed, repeated, released)
    assert played_again.asked == played.asked + policy.draw.places
    assert played_again.active.tolist() == played.active.tolist()
    assert played_again.widths.tolist() == played.widths.tolist()


def test_phases_are_repeated_while_participants_remain():
    spec = phased_spec({"experiment.participants": 2000})
    n_required = sum(spec.count_invited(spec.phase_size(phase)) for phase in range(1, spec.phases + 1))
    spec = phased_spec({"experiment.participants": n_required + spec.count_invited(spec.phase_size(1))})
    learner, state, policy = open_first_phase(spec)
    state = learner.learn_without_release(state, policy, is_repeated=True)
    while not state.failed and learner.batch_size(state):
        policy = learner.open_next_round(state, 1, 0).policy
        assert policy.draw.start + policy.draw.places <= spec.experiment.participants
        state = learner.learn_without_release(state, policy, is_repeated=True)
    assert state.failed
    assert learner.batch_size(state) == 0


def test_a_shortfall_after_repeats_ends_the_experiment_with_the_best_action():
    """The next phase needs more people than are left: the best action so far is played, the experiment is failed."""
    spec = phased_spec({"experiment.participants": 2000})
    n_required = sum(spec.count_invited(spec.phase_size(phase)) for phase in range(1, spec.phases + 1))
    spec = phased_spec({"experiment.participants": n_required})
    learner, state, policy = open_first_phase(spec)
    state = learner.learn_without_release(state, policy, is_repeated=True)
    while learner.batch_size(state):
        policy = learner.open_next_round(state, 1, 0).policy
        state = learner.learn(state, policy, exact_release(spec, policy, np.zeros(4)))
    assert state.failed
    assert state.phase == spec.phases - 1
    assert learner.open_next_round(state, 99, 0).policy.rounds == spec.experiment.horizon - state.played


def test_a_release_of_fewer_people_is_learned_with_wider_widths():
    spec = phased_spec({"algorithm.participants_factor": 50.0, "experiment.participants": 50_000}, "central")
    learner, state, policy = open_first_phase(spec)
    theta = np.array([0.1, 0, 0, 0])
    whole, half = (
        learner.learn(state, policy, exact_release(spec, policy, theta, n)) for n in (policy.terms.batch_size, 44)
    )
    assert half.estimates == pytest.approx(whole.estimates)
    assert (half.widths[half.widths > 0] > 1.4 * whole.widths[whole.widths > 0]).all()
    assert half.asked == whole.asked == policy.terms.batch_size


@pytest.mark.parametrize(("scale", "low", "high"), [(0.5, 0.0, 1e-6), (1.0, 0.0, 0.15), (4.0, 0.25, 1.0)])
def test_the_clipped_share_is_estimated_from_releases(scale, low, high):
    """With theta of length 4 most actions' rewards are beyond 1; actions close to theta's length 1 touch it.

    A run that keeps few actions soon tells next to nothing (.02), others .86; which, hangs on the last bits of a
    design, which differ between machines. So 16 runs count: fewer than 5 of the others come 3 times in 1,000.
    """
    changes = {"population.scale": scale, "algorithm.participants_factor": 20.0, "experiment.participants": 20_000}
    spec = phased_spec({**changes, "experiment.horizon": 3000}, "none")
    mean_share = np.mean([simulate_once(spec, seed).facts["clipped_share"] for seed in range(16)])
    assert low <= mean_share <= high


def test_the_clipped_share_is_not_above_the_truth():
    """People of deviation .3 around the bound itself: half of their averages are clipped; planted noise tells less."""
    changes = {
        "algorithm.participant_standard_deviation": 0.3,
        "algorithm.participants_factor": 5000.0,
        "experiment.participants": 10**7,
    }
    spec = phased_spec({**changes, "actions": {"vectors": [[1.0, 0.0], [0.0, 1.0]]}})
    learner, _, policy = open_first_phase(spec)
    people = np.clip(1 + 0.3 * np.random.default_rng(1).normal(size=(100_000, 2)), -1, 1)
    share = learner._clipped_share(policy, people.mean(axis=0), policy.terms.batch_size)
    assert 0.45 <= share <= 0.5
    assert learner._clipped_share(policy, people.mean(axis=0), 20) < share


def test_the_result_has_an_interval_for_every_action_left():
    """Planted: intervals of a third of their width miss."""
    spec = phased_spec({"algorithm.participants_factor": 50.0, "experiment.participants": 50_000}, "central")
    learner, state, policy = open_first_phase(spec)
    assert not learner.answer(state).says_something
    theta = np.array([0.3, -0.1, 0.2, 0.1])
    after = learner.learn(state, policy, exact_release(spec, policy, theta))
    last_result = learner.answer(after)
    truth = spec.actions.matrix @ theta
    assert [estimate.name for estimate in last_result.estimates] == [str(row) for row in after.active]
    assert all(estimate.low < truth[int(estimate.name)] < estimate.high for estimate in last_result.estimates)
    assert last_result.recommended == str(int(np.argmax(truth)))
    assert 0.99 < last_result.confidence < 1
    assert not last_result.is_over
    assert learner.answer(replace(after, failed=True)).stage == "failed"
