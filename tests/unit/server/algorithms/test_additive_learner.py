"""Parts of the additive learner, each against its closed form or over many draws."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.algorithms.additive.policy import TERM_UNIT, Residuals
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive import posterior
from privateer_server.algorithms.additive.feature_products import (
    FeatureProducts,
    independent_products,
    mean_variances,
    sum_information,
)
from privateer_server.algorithms.additive.observed_round import PartSums
from privateer_server.algorithms.additive.participant_shares import ArmShares, CellMasses, simulate_terms
from privateer_server.algorithms.additive.posterior import TermPosterior, WhitePosterior, build_kernels
from privateer_server.algorithms.additive.question_shares import SeparateTerms, even_shares, optimal_question_shares
from tests.unit.algorithms.test_additive import spec_of

CELLS = Cells((ShapeCells(0, 6), ShapeCells(1, 0, (0, 1, 2), 2)))
QUESTIONS = Questions(CELLS, merges=True)
MASSES = np.array([1.0, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.6, 0.3, 0.1])
NONE_APART = SeparateTerms(np.zeros(0, np.int64), np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0))
FAR = 5.0
"""Standard errors that a right mean is beyond once in 1.7 million times."""


def draw_true_terms(arms=2, seed=3):
    """Terms of arms, whose features have no mean."""
    terms = 0.08 * np.random.default_rng(seed).standard_normal((arms, CELLS.count))
    for place in range(2):
        columns = CELLS.feature_slice(place)
        terms[:, columns] -= (terms[:, columns] @ MASSES[columns])[:, None]
    terms[:, 0] += 0.5
    return terms


def simulate_exact_round(people=4000, seed=5):
    """Information and scores of an exact round, in which arms are even."""
    theta, rng = draw_true_terms(), np.random.default_rng(seed)
    slopes = independent_products(CELLS, people / 2 * MASSES)
    information = np.stack([slopes / 0.25] * 2)
    noise = np.stack([rng.multivariate_normal(np.zeros(CELLS.count), matrix) for matrix in information])
    return information, np.einsum("kij,kj->ki", information, theta) + noise


def test_the_evidence_of_priors_is_that_of_the_normal_law():
    """Of one feature alone, up to a constant. Planted: the factor of a covariance from the wrong side."""
    feature = CELLS.features[0]
    family = posterior.build_scales(feature, MASSES[1:7], 1.0)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((9, 6))
    outcomes = rows @ (0.1 * rng.standard_normal(6)) + rng.standard_normal(9)
    prior = family.mean_covariance(family.prior)
    covariance = np.linalg.inv(rows.T @ rows + np.linalg.inv(prior))
    root = np.linalg.cholesky(prior)
    white = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    statistics = root, white[None], np.linalg.solve(root, covariance @ rows.T @ outcomes)[None]
    evidence = family.log_evidence(*statistics)
    laws = [scale**2 * kernel for kernel in family.kernels for scale in family.scales]
    exact = np.array([multivariate_normal.logpdf(outcomes, cov=rows @ law @ rows.T + np.eye(9)) for law in laws])
    assert np.allclose(evidence - evidence[0], exact - exact[0], atol=1e-6)
    wrong = replace(family, kernels=family.kernels[:, ::-1, ::-1])
    planted = wrong.log_evidence(*statistics)
    assert not np.allclose(planted - planted[0], exact - exact[0], atol=1e-2)


@pytest.mark.parametrize("bins", [2, 7, 16, 64])
def test_the_bins_of_a_circle_have_covariances_that_join_its_ends(bins):
    """Planted: the Matern kernel of arcs, which is no covariance."""
    lengths = (0.125, 0.25, 0.5, 1.0, 1.5)
    feature = ShapeCells(0, bins, missing=True, cyclic=True)
    for kernel in build_kernels(feature, lengths):
        turned = np.append(np.roll(np.arange(bins), 1), bins)
        assert np.allclose(kernel[np.ix_(turned, turned)], kernel), "a circle begins nowhere"
        assert np.linalg.eigvalsh(kernel).min() > 0.04
        assert not kernel[bins, :bins].any()
    line = build_kernels(replace(feature, cyclic=False), lengths)
    assert bins == 2 or (line[:, 0, bins - 1] < line[:, 0, 1]).all()
    arcs = np.abs(np.arange(16)[:, None] - np.arange(16)) / 16
    away = np.sqrt(3) * np.minimum(arcs, 1 - arcs)
    assert np.linalg.eigvalsh((1 + away) * np.exp(-away)).min() < -0.1


def test_the_posterior_recovers_terms_within_its_standard_deviations():
    information, scores = simulate_exact_round()
    posterior = TermPosterior.from_statistics(information, scores, CELLS, MASSES, None)
    deviations = np.sqrt(np.diagonal(posterior.covariances, axis1=1, axis2=2))
    off = np.abs(posterior.means - draw_true_terms())
    assert (off < FAR * deviations).all()
    assert off.mean() < 0.03
    assert 0.4 < np.sqrt(np.square(off / deviations).mean()) < 1.6


def test_the_prior_has_the_middle_level_and_no_terms():
    no_evidence = np.zeros((2, CELLS.count, CELLS.count)), np.zeros((2, CELLS.count))
    posterior = TermPosterior.from_statistics(*no_evidence, CELLS, MASSES, None)
    assert posterior.level == 0.5
    assert np.allclose(posterior.means[:, 1:], 0)
    assert TermPosterior.from_statistics(*no_evidence, CELLS, MASSES, 0.02).level == pytest.approx(0.02)


@pytest.mark.parametrize("spread", [0.4, 0.0])
def test_correlated_sums_are_weighted_by_their_covariance(spread):
    """By hand, with all terms at once: of two arms, where sums vary together, and where they do not."""
    rng, matrix = np.random.default_rng(2), QUESTIONS.incidence_matrix
    sums, precisions = (rng.uniform(low, 1, (2, len(matrix))) for low in (-1, 0.01))
    people = np.stack([500 * MASSES, rng.uniform(1, 2, CELLS.count) * MASSES * 300])
    summed, scores_by_arm = FeatureProducts.from_weights(QUESTIONS, people).statistics(
        QUESTIONS, precisions, sums, np.full(2, spread)
    )
    [information_by_arm] = sum_information(QUESTIONS, [summed, summed], np.array([[0.25, 0.75]]))
    vectors = rng.standard_normal((2, CELLS.count))
    assert np.allclose(summed.multiply(QUESTIONS, vectors), np.einsum("kij,kj->ki", information_by_arm, vectors))
    for arm, (information, scores) in enumerate(zip(information_by_arm, scores_by_arm, strict=True)):
        slopes = independent_products(CELLS, people[arm])
        rows = matrix @ slopes
        covariance = spread * rows @ matrix.T + np.diag(1 / precisions[arm])
        assert np.allclose(information, rows.T @ np.linalg.solve(covariance, rows), rtol=1e-6, atol=1e-6)
        assert np.allclose(scores, rows.T @ np.linalg.solve(covariance, sums[arm]))


def test_a_posterior_by_blocks_is_that_of_all_terms_at_once():
    rng = np.random.default_rng(3)
    sides = rng.standard_normal((2, 5, 5))
    information, scores = sides @ sides.transpose(0, 2, 1), rng.standard_normal((2, 5))
    blocks, prior = [slice(0, 2), slice(2, 5)], [np.diag([1.0, 2.0]) + 0.5, np.eye(3) + 0.2]
    whole = np.zeros((5, 5))
    for block, covariance in zip(blocks, prior, strict=True):
        whole[block, block] = covariance
    posterior = WhitePosterior.fit(information, scores, blocks, prior)
    covariances = np.linalg.inv(information + np.linalg.inv(whole))
    assert np.allclose(posterior.covariances, covariances)
    assert np.allclose(posterior.means, np.einsum("kij,kj->ki", covariances, scores))
    root, inverses, means = posterior.white_block_moments(1)
    assert np.allclose(root @ inverses @ root.T, covariances[:, 2:, 2:])
    assert np.allclose(means @ root.T, posterior.means[:, 2:])


@pytest.mark.parametrize("noise", [10.0, 1000.0])
def test_cell_masses_are_estimated_within_the_noise(noise):
    rng, masses, people = np.random.default_rng(4), CellMasses.unknown(CELLS), 3000
    assert masses.means(CELLS)[1:7].tolist() == pytest.approx([1 / 6] * 6)
    for _ in range(4):
        counts = people * QUESTIONS.incidence_matrix @ MASSES + noise * rng.standard_normal(
            len(QUESTIONS.incidence_matrix)
        )
        masses = masses.add_counts(QUESTIONS, masses.means(CELLS), counts, np.full(len(counts), noise**2), people)
    estimates = masses.means(CELLS)
    assert estimates.min() > 0
    assert [estimates[CELLS.feature_slice(place)].sum() for place in range(2)] == pytest.approx([1, 1])
    off, even_off = np.abs(estimates - MASSES).max(), np.abs(CellMasses.unknown(CELLS).means(CELLS) - MASSES).max()
    assert off < (0.02 if noise == 10.0 else even_off)


def test_simulated_contexts_have_the_cell_masses():
    terms = simulate_terms(CELLS, MASSES)
    counts = np.bincount(terms.ravel(), minlength=CELLS.count) / len(terms)
    assert np.abs(counts - MASSES)[1:].max() < 0.01


def play(model, rounds=1):
    """The learner, and a round's policy and release, of people whose features are independent."""
    spec = spec_of(model)
    learner, rng = learner_for(spec), np.random.default_rng(6)
    state = learner.start(1)
    for version in range(1, rounds + 1):
        step = learner.open_next_round(state, version, version)
        contexts = rng.random((step.batch_size, spec.dimension)).round(3)
        coins = rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
        decisions = step.policy.decide(contexts, coins)
        rewards = (rng.random(step.batch_size) < 0.3 + 0.4 * (contexts[:, 0] > 0.5)).astype(float)
        contributions = step.policy.contribute(contexts, rng.permutation(coins), decisions, rewards)
        release = step.policy.terms.mechanism.simulate(contributions, rng)
        yield learner, state, step.policy, release, (contexts, decisions.arms)
        state = learner.learn(state, step.policy, release)


@pytest.mark.parametrize("model", ["none", "central", "shuffle", "local"])
def test_part_sums_are_unbiased_and_vary_as_stated(model):
    """All parts of 3 rounds; planted: sums a fifth too large, where anything is told exactly."""
    scores, wrong = [], []
    for _, _, policy, release, (contexts, arms) in play(model, 3):
        sums, questions = PartSums.from_release(policy, release), policy.questions
        terms = questions.cells.locate(contexts)
        parts = questions.locate(terms) + questions.starts[:-1]
        people = np.zeros((len(policy.means), int(questions.starts[-1])))
        np.add.at(people, (arms[:, None], parts), 1.0)
        is_asked = np.isfinite(sums.noise)
        counts = sums.counts.sum(axis=0)[is_asked]
        deviations = np.sqrt(
            sums.count_variances(people.sum(axis=0) / len(arms), len(arms))[is_asked] + 1e-6 + (model == "none")
        )
        # Coins ask some of the people, whose number varies, too.
        exact = people.sum(axis=0)[is_asked]
        chance = 0.0 if sums.is_same_people else np.sqrt(sums.count_noise[is_asked] * exact / len(arms))
        scores.append((counts - exact) / (deviations + chance))
        wrong.append((1.2 * counts - exact) / (deviations + chance))
    assert np.abs(np.concatenate(scores)).max() < FAR
    assert model != "none" or np.abs(np.concatenate(wrong)).max() > FAR


def rare_rounds(model, count, wrong=None):
    """Sums of rare residuals by arm and part in rounds, less those of their people, in standard deviations."""
    spec = spec_of(model, reward={"base_rate": 0.03}, privacy={"min_batch": 500} if model == "shuffle" else {})
    learner, rng, standardized = learner_for(spec), np.random.default_rng(9), []
    step: Any = learner.open_next_round(learner.start(1), 1, 1)
    policy = replace(step.policy, means=step.policy.means + rng.integers(-120, 120, step.policy.means.shape, np.int16))
    for _ in range(count):
        contexts = rng.random((4000, spec.dimension)).round(3)
        coins = rng.integers(0, 2**32, 4000, dtype=np.uint32)
        decisions, rewards = policy.decide(contexts, coins), (rng.random(4000) < 0.03).astype(float)
        contributions = policy.contribute(contexts, rng.permutation(coins), decisions, rewards)
        release = policy.terms.mechanism.simulate(contributions, rng)
        release_sums = PartSums.from_release(replace(policy, below=wrong or policy.below), release)
        terms, arms = policy.questions.cells.locate(contexts), decisions.arms
        parts = policy.questions.locate(terms) + policy.questions.starts[:-1]
        values = policy.residuals.compute(policy.predict(terms, arms), rewards)
        exact, people = np.zeros((2, *release_sums.sums.shape))
        np.add.at(exact, (arms[:, None], parts), values[:, None])
        np.add.at(people, (arms[:, None], parts), 1 / 4000)
        parts_asked, squares = np.isfinite(release_sums.noise), np.zeros_like(exact)
        np.add.at(squares, (arms[:, None], parts), values[:, None] ** 2)
        variances = release_sums.variances(people, squares)[:, parts_asked]
        standardized.append((release_sums.sums - exact)[:, parts_asked] / np.sqrt(variances + 1e-9))
    return np.array(standardized)


@pytest.mark.parametrize("model", ["central", "shuffle"])
def test_sums_of_rare_residuals_are_unbiased_and_vary_as_stated(model):
    """Means over 40 rounds of some 200 sums: a false alarm once in 2,000 (normal) with each bound.

    Planted: symbols read as those of usual rewards; sums half as noisy again as they are.
    """
    scores = rare_rounds(model, 40)
    means = np.sqrt(len(scores)) * scores.mean(axis=0)
    bound = 4.8
    assert np.abs(means).max() < bound
    spread = np.square(scores).mean()
    assert 0.9 < spread < 1.1
    assert not 0.9 < spread / 1.5 < 1.1
    if model == "shuffle":
        wrong = np.sqrt(len(scores)) * rare_rounds(model, 40, wrong=1.0).mean(axis=0)
        assert np.abs(wrong).max() > bound


def test_the_learner_corrects_predictions_clipped_at_the_rare_reward_bound():
    """A level that is thought to be .15 where it is .03: residuals are measured from .03, and the learner knows.

    Without noise, 40,000 people: five standard errors. Planted: sums are taken as measured from .15.
    """
    spec = spec_of("none", reward={"base_rate": 0.03}, experiment={"round_size": 40_000, "horizon": 40_000})
    learner: Any = learner_for(spec)
    rng = np.random.default_rng(4)
    state = learner.start(1)
    policy: Any = learner.open_next_round(state, 1, 1).policy
    means = policy.means.copy()
    means[:, 0] = round(0.15 / TERM_UNIT)
    policy = replace(policy, means=means)
    contexts = rng.random((40_000, spec.dimension)).round(3)
    coins = rng.integers(0, 2**32, 40_000, dtype=np.uint32)
    rewards = (rng.random(40_000) < 0.03).astype(float)
    contributions = policy.contribute(contexts, coins, policy.decide(contexts, coins), rewards)
    release = policy.terms.mechanism.simulate(contributions, rng)

    def levels():
        posterior = learner.posterior(learner.learn(state, policy, release))
        return [posterior.means[arm, 0] for arm in range(3)]

    assert levels() == pytest.approx([0.03] * 3, abs=0.0075)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Residuals, "clipped_excess", lambda _, expected: np.zeros_like(expected))
        learner = learner_for(spec)
        assert min(levels()) > 0.1


def test_computed_arm_shares_match_the_choices_of_the_policy():
    """Planted: shares of arms the other way round."""
    *_, (_, _, policy, _, _) = play("none", 4)
    cells = policy.questions.cells
    masses = np.ones(cells.count)
    for place, feature in enumerate(cells.features):
        masses[cells.feature_slice(place)] = 1 / feature.count
    allocation, rng = ArmShares.from_policy(policy, masses), np.random.default_rng(8)
    terms = [rng.integers(*cells.feature_slice(place).indices(cells.count)[:2], 20_000) for place in range(4)]
    chosen = policy.choose_arms(np.stack(terms, axis=1), rng.integers(0, len(policy.draws), 20_000))
    exact = np.array([[np.mean(chosen[terms[0] == term] == arm) for term in range(1, 9)] for arm in range(3)])
    assert np.abs(allocation.shares[:, 1:9] - exact).max() < 0.12
    assert np.abs(allocation.shares[:, 1:9] - exact).mean() < 0.03
    assert np.abs(allocation.shares[::-1, 1:9] - exact).mean() > 0.03
    assert allocation.shares.sum(axis=0) == pytest.approx(np.ones(cells.count))


def test_variances_of_expected_rewards_are_those_of_all_terms_at_once():
    """Means over people, and what another person in each part takes off. Planted: features that do nothing."""
    rng, matrix = np.random.default_rng(12), QUESTIONS.incidence_matrix
    factors, people = rng.standard_normal((2, CELLS.count, CELLS.count)), 300 * np.stack([MASSES] * 2)
    people[1] = 300 * MASSES * rng.uniform(0.5, 2, CELLS.count)
    covariances, mean_products = factors @ factors.transpose(0, 2, 1), independent_products(CELLS, MASSES)
    exact = np.einsum("kij,ij->k", covariances, mean_products)
    assert np.allclose(mean_variances(CELLS, MASSES, factors), exact)
    assert not np.allclose(mean_variances(CELLS, MASSES, factors * (np.arange(CELLS.count) < 7)[:, None]), exact)
    reductions = FeatureProducts.from_weights(QUESTIONS, people).variance_reductions(QUESTIONS, covariances, MASSES)
    for arm, covariance in enumerate(covariances):
        rows = matrix @ independent_products(CELLS, people[arm]) @ covariance
        assert np.allclose(reductions[arm], ((rows @ mean_products) * rows).sum(axis=1))


def test_optimal_question_shares_favour_the_uncertain_feature():
    """A feature has a large variance, and the other has next to none."""
    covariance = np.diag([0.01, *[0.04] * 6, *[1e-6] * 3])
    factors = np.stack([np.linalg.cholesky(covariance)] * 2)
    shares = optimal_question_shares(QUESTIONS, factors, 400 * np.stack([MASSES] * 2), 400.0, MASSES, NONE_APART)
    assert shares.sum() == pytest.approx(1)
    assert even_shares(QUESTIONS).sum() == pytest.approx(1)
    about_levels = QUESTIONS.features == 1
    assert shares[about_levels].sum() < even_shares(QUESTIONS)[about_levels].sum() / 2
    assert shares.min() > 0


def test_terms_of_a_policy_are_on_the_integer_grid():
    *_, (_, _, policy, _, _) = play("none", 2)
    assert policy.draws.dtype == np.int16
    assert abs(TERM_UNIT * policy.means[:, 0].astype(float)).max() < 1
