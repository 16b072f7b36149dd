"""Arms that differ alike for everybody, a model beside the process: its evidence, and last policies."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_lab.environments import environment_for
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.partition.kernel import UNSCALED, ConstantKernel, Kernel, PriorScale
from privateer_server.algorithms.partition.observations import ContextFreeArms, observe_bins
from tests.support.people import rounds
from tests.support.specs import make_spec

ARMS, BINS = 3, 4
KERNEL = Kernel(np.array([4]), 1)
LOWER = np.arange(BINS)[:, None] / BINS
UPPER = LOWER + 1 / BINS
PEAKS = environment_for(make_spec({"population.name": "peaks"}), 0).means
ALIKE = np.array([0.3, 0.6, 0.4])
LEARNED = {"privacy.epsilon": 4.0, "experiment.round_size": 250, "experiment.horizon": 10_000}


def make_constant_arms(values, precision=200.0, prior=UNSCALED):
    """The model beside, where values (bins, arms) were observed, each with this precision."""
    weights, offsets = np.full(values.shape, precision), values - prior.level
    return ContextFreeArms.from_observations(observe_bins(LOWER, UPPER, weights, weights * offsets), KERNEL, prior)


def density(covariance, averages, precision):
    """Logarithm of the density of values (bins, arms) with a common part and parts of this covariance, by hand."""
    common = replace(KERNEL, common=True).common_covariance(LOWER, UPPER)
    total = np.kron(np.eye(ARMS), covariance) + np.kron(np.ones((ARMS, ARMS)), common) + np.eye(ARMS * BINS) / precision
    return float(stats.multivariate_normal(cov=total).logpdf(averages.T.ravel()))


@pytest.mark.parametrize("planted", [False, True])
def test_the_model_probability_is_the_ratio_of_densities(planted):
    """Planted: the constant model has the other model's prior without a common part, and so less to explain."""
    averages = np.random.default_rng(5).normal(0.2, 0.3, (BINS, ARMS))
    constant = density(ConstantKernel(KERNEL.lengths, KERNEL.spread).covariance(LOWER, UPPER), averages, 40.0)
    other = density(KERNEL.covariance(LOWER, UPPER), averages, 40.0) - (3.0 if planted else 0.0)
    agree = make_constant_arms(averages, 40.0).probability == pytest.approx(
        1 / (1 + np.exp(other - constant)), rel=1e-3
    )
    assert agree is not planted


@pytest.mark.parametrize("bins", [1, 4, 64])
def test_both_models_are_equally_likely_before_observations(bins):
    """Exactly; a covariance of rank one, inverted twice, left five digits."""
    lower = np.arange(bins)[:, None] / bins
    none = np.zeros((bins, ARMS))
    for level in (0.0, 0.6):
        arms = ContextFreeArms.from_observations(
            observe_bins(lower, lower + 1 / bins, none, none), KERNEL, PriorScale(level, abs(level))
        )
        assert arms.probability == 0.5


def test_constant_differences_between_arms_are_detected():
    alike = np.tile(2 * ALIKE - 1, (BINS, 1))
    assert make_constant_arms(alike).probability > 0.9
    assert make_constant_arms(alike[:, [0, 1, 2]] * np.array([1, 1, -1, -1])[:, None]).probability < 0.01


def test_crowded_bins_do_not_bias_the_constant_model():
    """Nine in ten are in the first quarter, so that values count 3.6 times there. Planted: nobody looks for crowds."""
    crowds = 4 * np.array([0.9, 0.06, 0.03, 0.01])[:, None]
    values = crowds * (2 * np.array([0.1, 0.3, 0.2]) - 1)
    level = float(values.mean())
    declared, undeclared = make_constant_arms(values, prior=PriorScale(level, 0.0)), make_constant_arms(values - level)
    assert declared.probability > 0.9
    assert undeclared.probability < 0.1
    assert (declared.mean.argmax(axis=1)[:1] == 1).all()


def test_means_are_those_of_both_models_by_their_probabilities():
    mean = np.array([[0.3, -0.3, 0.0], [-0.3, 0.3, 0.0]])
    constant = ContextFreeArms(0.0, np.tile([0.0, 0.0, 0.5], (3, 1)), np.full((3, 3), 0.01))
    assert np.array_equal(constant.averaged(mean, is_asking=False), mean)
    assert (replace(constant, probability=1.0).averaged(mean, is_asking=True).argmax(axis=1) == 2).all()
    half = replace(constant, probability=0.5)
    assert half.averaged(mean, is_asking=False) == pytest.approx(mean / 2 + [0, 0, 0.25])
    assert half.averaged(mean, is_asking=True) == pytest.approx((50 * mean + [0, 0, 0.5]) / 51)


@pytest.mark.parametrize("seed", range(4))
def test_the_last_policy_has_one_arm_only_where_contexts_do_not_matter(seed):
    """Ten thousand people of epsilon 4; arms .2 apart are told from each other, and peaks from a level."""
    spec = make_spec(LEARNED)
    last = list(rounds(spec, lambda contexts: np.tile(ALIKE, (len(contexts), 1)), seed))[-1]
    policy = learner_for(spec).policy(last.state, NewRound(99, 0))
    assert (policy.active == (np.arange(ARMS) == 1)).all()
    assert last.state.constant.probability > 0.5
    assert any("contexts matter" in warning for warning in learner_for(spec).answer(last.state).warnings)
    peaks = list(rounds(spec, PEAKS, seed))[-1]
    assert peaks.state.constant.probability < 0.01
    assert not learner_for(spec).answer(peaks.state).warnings
    assert len(np.unique(learner_for(spec).policy(peaks.state, NewRound(99, 0)).active.argmax(axis=1))) == ARMS


def test_there_is_no_model_of_equal_differences_if_reports_hide_the_arm():
    spec = make_spec({**LEARNED, "privacy.model": "central", "experiment.horizon": 2000})
    assert list(rounds(spec, PEAKS))[-1].state.constant is None
