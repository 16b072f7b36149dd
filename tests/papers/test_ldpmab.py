"""Honest LDPMAB: everybody's noise is in every bin, and the authors' constants make it as strong as it can be."""

import numpy as np
import pytest

from privateer_papers.paper_1.baseline import AuthorsLearner, Ldpmab, compute_favouring_shares
from privateer_papers.paper_1.ldpmab import LdpmabLearner
from tests.support.baselines import one_round, regrets
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import centred

NOTED = {1: 32_963, 2: 26_486, 4: 15_892, 8: 11_938}
"""Mean regret over 10 seeds of an independent implementation, 80,000 people: ours must be as strong."""


def far_bin_counts(people: int, rounds: int) -> np.ndarray:
    """Noisy counts of the right half, (rounds, arms), when this many people report and all are in the left half."""
    counts = []
    for seed in range(rounds):
        baseline = Ldpmab(make_spec({"privacy.epsilon": 2.0, "experiment.horizon": 80_000}), seed)
        baseline.state = baseline.learner.halve_ready_bins(baseline.state, np.array([True]))
        one_round(baseline, np.full((people, 2), 0.25), np.zeros(people))
        assert baseline.state.people.tolist() == [[people, people]]
        counts.append(baseline.state.counts[0, 1])
    return np.array(counts)


def honest_variance(people: int) -> np.ndarray:
    """The variance of a sum of Laplace noise of scale 4/epsilon, epsilon 2, for each of 3 arms."""
    return np.full(3, people * 2 * (4 / 2.0) ** 2)


def test_a_bin_without_people_has_the_noise_of_all_participants():
    """600 rounds, means and variances of 3 arms; each fails a right distribution with probability 1e-6."""
    counts = far_bin_counts(50, 600)
    assert centred(counts, np.zeros(3))
    assert centred(counts**2, honest_variance(50))


def test_noise_of_fewer_people_is_caught():
    """Planted: a third of the people stay silent in bins that they are not in."""
    assert not centred(far_bin_counts(33, 600) ** 2, honest_variance(50))


def test_ldpmab_is_local_under_every_trust_model():
    baseline = Ldpmab(make_spec(SHUFFLE), 0)
    baseline.open(1000)
    assert baseline.policy.terms.model == "local"
    assert baseline.policy.terms.local_epsilon == baseline.policy.mechanism.epsilon == 1.0


def test_the_better_arm_is_favoured_as_the_authors_do():
    active = np.array([[True, True, True], [True, True, False], [True, True, False], [True, True, True]])
    means = np.array([[0.2, 0.5, 0.8], [0.2, 0.8, 0.9], [0.500, 0.505, 0.9], [0.2, 0.5, 0.8]])
    shares = compute_favouring_shares(means, active, np.array([True, True, True, False]))
    assert shares.sum(axis=1) == pytest.approx(np.ones(4))
    assert shares[0, 2] / shares[0, 0] == pytest.approx(1.2, rel=1e-3)
    assert shares[1, 1] / shares[1, 0] == pytest.approx(1.8, rel=1e-3)
    assert shares[2].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert shares[3] == pytest.approx(np.full(3, 1 / 3))


def test_arms_are_dropped_by_single_radii():
    """Estimates .9 and .1 with radii .3: apart by single radii, not by twice the radius as eq. (16) says."""
    spec = make_spec({"experiment.horizon": 80_000, "privacy.epsilon": 8.0})
    state = AuthorsLearner(spec).start(0)
    state = type(state)(**{**vars(state), "depths": np.array([6]), "people": np.array([[10_000]])})
    mean, radius = np.array([[0.9, 0.1, 0.6]]), np.full((1, 3), 0.3)
    assert AuthorsLearner(spec)._keep_undominated_arms(state, mean, radius).tolist() == [[True, False, True]]
    assert LdpmabLearner(spec)._keep_undominated_arms(state, mean, radius).all()


def test_the_authors_constants_lower_the_regret(monkeypatch):
    """20,000 people at epsilon 16: well below the rules of the paper, and of uniform arms' 8,278."""
    authors = regrets("ldpmab", 20_000, 16.0, 4)
    monkeypatch.setattr(AuthorsLearner, "_keep_undominated_arms", LdpmabLearner._keep_undominated_arms)
    monkeypatch.setattr(AuthorsLearner, "_shares", LdpmabLearner._shares)
    paper = regrets("ldpmab", 20_000, 16.0, 4)
    assert authors.mean() < 0.8 * paper.mean()
    assert authors.mean() < 0.8 * 8278


@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", NOTED)
def test_mean_regret_is_as_low_as_in_another_implementation(epsilon):
    """30 seeds: at most 3 deviations above the other implementation, which is assumed to deviate as ours."""
    regret = regrets("ldpmab", 80_000, epsilon, 30)
    assert regret.mean() < NOTED[epsilon] + 3 * regret.std(ddof=1) * np.hypot(1 / np.sqrt(30), 1 / np.sqrt(10))
