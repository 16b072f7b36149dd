"""Arms that differ alike for everybody, a model beside the process: its evidence, and last policies."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_lab.environments import environment_for
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.partition.kernel import UNSCALED, ConstantKernel, Kernel, PriorScale
from privateer_server.algorithms.partition.posterior.constant_arms import ConstantArms
from privateer_server.algorithms.partition.posterior.observations import observed
from tests.support.people import rounds
from tests.support.specs import make_spec

ARMS, BINS = 3, 4
KERNEL = Kernel(np.array([4]), 1)
LOWER = np.arange(BINS)[:, None] / BINS
UPPER = LOWER + 1 / BINS
PEAKS = environment_for(make_spec({"population.name": "peaks"}), 0).means
ALIKE = np.array([0.3, 0.6, 0.4])
LEARNED = {"privacy.epsilon": 4.0, "experiment.round_size": 250, "experiment.horizon": 10_000}


def beside(values, precision=200.0, prior=UNSCALED):
    """The model beside, where values (bins, arms) were observed, each with this precision."""
    known, process = np.full(values.shape, precision), values - prior.level
    return ConstantArms.beside(observed(LOWER, UPPER, known, known * process), KERNEL, prior)


def density(own, found, precision):
    """Logarithm of the density of values (bins, arms) with a common part and parts of this covariance, by hand."""
    common = replace(KERNEL, common=True).common_covariance(LOWER, UPPER)
    told = np.kron(np.eye(ARMS), own) + np.kron(np.ones((ARMS, ARMS)), common) + np.eye(ARMS * BINS) / precision
    return float(stats.multivariate_normal(cov=told).logpdf(found.T.ravel()))


@pytest.mark.parametrize("planted", [False, True])
def test_the_probability_is_that_of_the_densities_of_what_was_observed(planted):
    """Planted: the model beside is given the other one's common part of nothing, so that it has less to explain."""
    found = np.random.default_rng(5).normal(0.2, 0.3, (BINS, ARMS))
    one = density(ConstantKernel(KERNEL.lengths, KERNEL.spread).covariance(LOWER, UPPER), found, 40.0)
    other = density(KERNEL.covariance(LOWER, UPPER), found, 40.0) - (3.0 if planted else 0.0)
    agree = beside(found, 40.0).probability == pytest.approx(1 / (1 + np.exp(other - one)), rel=1e-3)
    assert agree is not planted


@pytest.mark.parametrize("bins", [1, 4, 64])
def test_both_models_are_as_likely_before_anything_was_observed(bins):
    """Exactly; a covariance of rank one, inverted twice, left five digits."""
    lower = np.arange(bins)[:, None] / bins
    nothing = np.zeros((bins, ARMS))
    for level in (0.0, 0.6):
        found = ConstantArms.beside(
            observed(lower, lower + 1 / bins, nothing, nothing), KERNEL, PriorScale(level, abs(level))
        )
        assert found.probability == 0.5


def test_arms_that_differ_alike_are_told_from_those_that_do_not():
    alike = np.tile(2 * ALIKE - 1, (BINS, 1))
    assert beside(alike).probability > 0.9
    assert beside(alike[:, [0, 1, 2]] * np.array([1, 1, -1, -1])[:, None]).probability < 0.01


def test_crowds_do_not_pass_for_what_arms_do():
    """Nine in ten are in the first quarter, so that values count 3.6 times there. Planted: nobody looks for crowds."""
    crowds = 4 * np.array([0.9, 0.06, 0.03, 0.01])[:, None]
    values = crowds * (2 * np.array([0.1, 0.3, 0.2]) - 1)
    level = float(values.mean())
    known, unknown = beside(values, prior=PriorScale(level, 0.0)), beside(values - level)
    assert known.probability > 0.9
    assert unknown.probability < 0.1
    assert (known.mean.argmax(axis=1)[:1] == 1).all()


def test_means_are_those_of_both_models_by_their_probabilities():
    mean = np.array([[0.3, -0.3, 0.0], [-0.3, 0.3, 0.0]])
    constant = ConstantArms(0.0, np.tile([0.0, 0.0, 0.5], (3, 1)), np.full((3, 3), 0.01))
    assert np.array_equal(constant.averaged(mean, asks=False), mean)
    assert (replace(constant, probability=1.0).averaged(mean, asks=True).argmax(axis=1) == 2).all()
    half = replace(constant, probability=0.5)
    assert half.averaged(mean, asks=False) == pytest.approx(mean / 2 + [0, 0, 0.25])
    assert half.averaged(mean, asks=True) == pytest.approx((50 * mean + [0, 0, 0.5]) / 51)


@pytest.mark.parametrize("seed", range(4))
def test_everybody_gets_one_arm_where_contexts_do_not_matter_and_none_is_lost_where_they_do(seed):
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


def test_arms_in_the_key_have_no_model_beside():
    spec = make_spec({**LEARNED, "privacy.model": "central", "experiment.horizon": 2000})
    assert list(rounds(spec, PEAKS))[-1].state.constant is None
