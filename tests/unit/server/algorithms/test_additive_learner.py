"""What learns additive bandits: each part against what it must be in closed form, or over many draws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.algorithms.additive.policy import STEP, Residuals
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive import posterior
from privateer_server.algorithms.additive.arm_shares import ArmShares, made_up
from privateer_server.algorithms.additive.cell_masses import CellMasses
from privateer_server.algorithms.additive.feature_blocks import IndependentFeatures
from privateer_server.algorithms.additive.kernels import kernels_of
from privateer_server.algorithms.additive.observed_round import independent
from privateer_server.algorithms.additive.part_sums import PartSums
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.question_shares import ApartTerms, even, least_doubt
from privateer_server.algorithms.additive.white_posterior import WhitePosterior
from tests.unit.algorithms.test_additive import spec_of

CELLS = Cells((ShapeCells(0, 6), ShapeCells(1, 0, (0, 1, 2), 2)))
QUESTIONS = Questions(CELLS, merges=True)
MASSES = np.array([1.0, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.6, 0.3, 0.1])
NONE_APART = ApartTerms(np.zeros(0, np.int64), np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0))
FAR = 5.0
"""Standard errors that a right mean is beyond once in 1.7 million times."""


def truth(arms=2, seed=3):
    """Terms of arms, whose features have no mean."""
    terms = 0.08 * np.random.default_rng(seed).standard_normal((arms, CELLS.count))
    for place in range(2):
        own = CELLS.of_feature(place)
        terms[:, own] -= (terms[:, own] @ MASSES[own])[:, None]
    terms[:, 0] += 0.5
    return terms


def observed(people=4000, seed=5):
    """Information and scores of an exact round, in which arms are even."""
    theta, rng = truth(), np.random.default_rng(seed)
    slopes = independent(CELLS, people / 2 * MASSES)
    information = np.stack([slopes / 0.25] * 2)
    noise = np.stack([rng.multivariate_normal(np.zeros(CELLS.count), one) for one in information])
    return information, np.einsum("kij,kj->ki", information, theta) + noise


def test_the_evidence_of_priors_is_that_of_the_normal_law():
    """Of one feature alone, up to a constant. Planted: the factor of a covariance from the wrong side."""
    feature = CELLS.features[0]
    family = posterior.scales_of(feature, MASSES[1:7], 1.0)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((9, 6))
    seen = rows @ (0.1 * rng.standard_normal(6)) + rng.standard_normal(9)
    prior = family.average(family.before)
    covariance = np.linalg.inv(rows.T @ rows + np.linalg.inv(prior))
    root = np.linalg.cholesky(prior)
    white = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    told = root, white[None], np.linalg.solve(root, covariance @ rows.T @ seen)[None]
    found = family.evidence(*told)
    laws = [scale**2 * kernel for kernel in family.kernels for scale in family.scales]
    exact = np.array([multivariate_normal.logpdf(seen, cov=rows @ law @ rows.T + np.eye(9)) for law in laws])
    assert np.allclose(found - found[0], exact - exact[0], atol=1e-6)
    wrong = replace(family, kernels=family.kernels[:, ::-1, ::-1])
    planted = wrong.evidence(*told)
    assert not np.allclose(planted - planted[0], exact - exact[0], atol=1e-2)


@pytest.mark.parametrize("bins", [2, 7, 16, 64])
def test_the_bins_of_a_circle_have_covariances_that_join_its_ends(bins):
    """Planted: the Matern kernel of arcs, which is no covariance."""
    lengths = (0.125, 0.25, 0.5, 1.0, 1.5)
    feature = ShapeCells(0, bins, missing=True, cyclic=True)
    for kernel in kernels_of(feature, lengths):
        turned = np.append(np.roll(np.arange(bins), 1), bins)
        assert np.allclose(kernel[np.ix_(turned, turned)], kernel), "a circle begins nowhere"
        assert np.linalg.eigvalsh(kernel).min() > 0.04
        assert not kernel[bins, :bins].any()
    line = kernels_of(replace(feature, cyclic=False), lengths)
    assert bins == 2 or (line[:, 0, bins - 1] < line[:, 0, 1]).all()
    arcs = np.abs(np.arange(16)[:, None] - np.arange(16)) / 16
    away = np.sqrt(3) * np.minimum(arcs, 1 - arcs)
    assert np.linalg.eigvalsh((1 + away) * np.exp(-away)).min() < -0.1


def test_the_posterior_finds_terms_and_says_how_far_off_it_is():
    information, scores = observed()
    known = TermPosterior.of(information, scores, CELLS, MASSES, None)
    deviations = np.sqrt(np.diagonal(known.covariances, axis1=1, axis2=2))
    off = np.abs(known.means - truth())
    assert (off < FAR * deviations).all()
    assert off.mean() < 0.03
    assert 0.4 < np.sqrt(np.square(off / deviations).mean()) < 1.6


def test_before_any_report_nothing_is_known():
    nothing = np.zeros((2, CELLS.count, CELLS.count)), np.zeros((2, CELLS.count))
    known = TermPosterior.of(*nothing, CELLS, MASSES, None)
    assert known.level == 0.5
    assert np.allclose(known.means[:, 1:], 0)
    assert TermPosterior.of(*nothing, CELLS, MASSES, 0.02).level == pytest.approx(0.02)


@pytest.mark.parametrize("spread", [0.4, 0.0])
def test_sums_over_the_same_people_count_as_they_vary_together(spread):
    """By hand, with all terms at once: of two arms, where sums vary together, and where they do not."""
    rng, matrix = np.random.default_rng(2), QUESTIONS.matrix
    sums, precisions = (rng.uniform(low, 1, (2, len(matrix))) for low in (-1, 0.01))
    people = np.stack([500 * MASSES, rng.uniform(1, 2, CELLS.count) * MASSES * 300])
    found = IndependentFeatures.of(QUESTIONS, people).told(QUESTIONS, precisions, sums, np.full(2, spread))
    for arm, (information, scores) in enumerate(zip(*found, strict=True)):
        slopes = independent(CELLS, people[arm])
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
    for own, one in zip(blocks, prior, strict=True):
        whole[own, own] = one
    known = WhitePosterior.of(information, scores, blocks, prior)
    covariances = np.linalg.inv(information + np.linalg.inv(whole))
    assert np.allclose(known.covariances, covariances)
    assert np.allclose(known.means, np.einsum("kij,kj->ki", covariances, scores))
    root, inverses, means = known.told(1)
    assert np.allclose(root @ inverses @ root.T, covariances[:, 2:, 2:])
    assert np.allclose(means @ root.T, known.means[:, 2:])


@pytest.mark.parametrize("noise", [10.0, 1000.0])
def test_masses_are_found_as_far_as_noise_lets_them(noise):
    rng, known, people = np.random.default_rng(4), CellMasses.unknown(CELLS), 3000
    assert known.means(CELLS)[1:7].tolist() == pytest.approx([1 / 6] * 6)
    for _ in range(4):
        counts = people * QUESTIONS.matrix @ MASSES + noise * rng.standard_normal(len(QUESTIONS.matrix))
        known = known.learned(QUESTIONS, known.means(CELLS), counts, np.full(len(counts), noise**2), people)
    found = known.means(CELLS)
    assert found.min() > 0
    assert [found[CELLS.of_feature(place)].sum() for place in range(2)] == pytest.approx([1, 1])
    off, even_off = np.abs(found - MASSES).max(), np.abs(CellMasses.unknown(CELLS).means(CELLS) - MASSES).max()
    assert off < (0.02 if noise == 10.0 else even_off)


def test_people_made_up_have_the_masses():
    terms = made_up(CELLS, MASSES)
    counts = np.bincount(terms.ravel(), minlength=CELLS.count) / len(terms)
    assert np.abs(counts - MASSES)[1:].max() < 0.01


def play(model, rounds=1):
    """The learner, and a round's policy and release, of people whose features are independent."""
    spec = spec_of(model)
    learner, rng = learner_for(spec), np.random.default_rng(6)
    state = learner.start(1)
    for version in range(1, rounds + 1):
        step = learner.next(state, version, version)
        contexts = rng.random((step.batch, spec.dimension)).round(3)
        coins = rng.integers(0, 2**32, step.batch, dtype=np.uint32)
        decisions = step.policy.decide(contexts, coins)
        rewards = (rng.random(step.batch) < 0.3 + 0.4 * (contexts[:, 0] > 0.5)).astype(float)
        made = step.policy.contribute(contexts, rng.permutation(coins), decisions, rewards)
        release = step.policy.terms.mechanism.simulate(made, rng)
        yield learner, state, step.policy, release, (contexts, decisions.arms)
        state = learner.learn(state, step.policy, release)


@pytest.mark.parametrize("model", ["none", "central", "shuffle", "local"])
def test_sums_of_parts_are_those_of_people_and_as_exact_as_they_say(model):
    """All parts of 3 rounds; planted: sums a fifth too large, where anything is told exactly."""
    scores, wrong = [], []
    for _, _, policy, release, (contexts, arms) in play(model, 3):
        told, questions = PartSums.of(policy, release), policy.questions
        terms = questions.cells.locate(contexts)
        parts = questions.answers(terms) + questions.starts[:-1]
        people = np.zeros((len(policy.means), int(questions.starts[-1])))
        np.add.at(people, (arms[:, None], parts), 1.0)
        asked = np.isfinite(told.noise)
        counts = told.counts.sum(axis=0)[asked]
        deviations = np.sqrt(told.doubts(people.sum(axis=0) / len(arms), len(arms))[asked] + 1e-6 + (model == "none"))
        # Coins ask some of the people, whose number varies, too.
        chance = 0.0 if told.together else np.sqrt(told.count_noise[asked] * people.sum(axis=0)[asked] / len(arms))
        scores.append((counts - people.sum(axis=0)[asked]) / (deviations + chance))
        wrong.append((1.2 * counts - people.sum(axis=0)[asked]) / (deviations + chance))
    assert np.abs(np.concatenate(scores)).max() < FAR
    assert model != "none" or np.abs(np.concatenate(wrong)).max() > FAR


def rare_rounds(model, count, wrong=None):
    """Sums of rare residuals by arm and part in rounds, less those of their people, in standard deviations."""
    spec = spec_of(model, reward={"base_rate": 0.03}, privacy={"min_batch": 500} if model == "shuffle" else {})
    learner, rng, found = learner_for(spec), np.random.default_rng(9), []
    step = learner.next(learner.start(1), 1, 1)
    policy = replace(step.policy, means=step.policy.means + rng.integers(-120, 120, step.policy.means.shape, np.int16))
    for _ in range(count):
        contexts = rng.random((4000, spec.dimension)).round(3)
        coins = rng.integers(0, 2**32, 4000, dtype=np.uint32)
        decisions, rewards = policy.decide(contexts, coins), (rng.random(4000) < 0.03).astype(float)
        made = policy.contribute(contexts, rng.permutation(coins), decisions, rewards)
        release = policy.terms.mechanism.simulate(made, rng)
        told = PartSums.of(replace(policy, below=wrong or policy.below), release)
        terms, arms = policy.questions.cells.locate(contexts), decisions.arms
        parts = policy.questions.answers(terms) + policy.questions.starts[:-1]
        values = policy.residuals.of(policy.expected(terms, arms), rewards)
        exact, people = np.zeros((2, *told.sums.shape))
        np.add.at(exact, (arms[:, None], parts), values[:, None])
        np.add.at(people, (arms[:, None], parts), 1 / 4000)
        asked, squares = np.isfinite(told.noise), np.zeros_like(exact)
        np.add.at(squares, (arms[:, None], parts), values[:, None] ** 2)
        scores = (told.sums - exact)[:, asked] / np.sqrt(told.variances(people, squares)[:, asked] + 1e-9)
        found.append(scores)
    return np.array(found)


@pytest.mark.parametrize("model", ["central", "shuffle"])
def test_sums_of_rare_residuals_are_unbiased_and_as_noisy_as_they_say(model):
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


def test_what_is_expected_beyond_what_rare_rewards_have_is_taken_off_again():
    """A level that is thought to be .15 where it is .03: residuals are measured from .03, and the learner knows.

    Without noise, 40,000 people: five standard errors. Planted: sums are taken as measured from .15.
    """
    spec = spec_of("none", reward={"base_rate": 0.03}, experiment={"round_size": 40_000, "horizon": 40_000})
    learner, rng = learner_for(spec), np.random.default_rng(4)
    state = learner.start(1)
    policy = learner.next(state, 1, 1).policy
    means = policy.means.copy()
    means[:, 0] = round(0.15 / STEP)
    policy = replace(policy, means=means)
    contexts = rng.random((40_000, spec.dimension)).round(3)
    coins = rng.integers(0, 2**32, 40_000, dtype=np.uint32)
    rewards = (rng.random(40_000) < 0.03).astype(float)
    made = policy.contribute(contexts, coins, policy.decide(contexts, coins), rewards)
    release = policy.terms.mechanism.simulate(made, rng)

    def levels():
        known = learner.posterior(learner.learn(state, policy, release))
        return [known.means[arm, 0] for arm in range(3)]

    assert levels() == pytest.approx([0.03] * 3, abs=0.0075)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Residuals, "cut", lambda _, expected: np.zeros_like(expected))
        learner = learner_for(spec)
        assert min(levels()) > 0.1


@pytest.mark.parametrize("model", ["none", "central", "shuffle", "local"])
def test_a_learner_finds_the_one_feature_that_matters(model):
    *_, (learner, state, policy, release, _) = play(model, 6)
    after = learner.learn(state, policy, release)
    known = learner.posterior(after)
    own = learner.cells.of_feature(0)
    bins = known.means[:, own][:, :-1]
    higher = bins[:, 4:].mean(axis=1) - bins[:, :4].mean(axis=1)
    assert higher.min() > 0.05
    assert higher.mean() > 0.12
    assert np.abs(known.means[:, own.stop :]).max() < 0.15
    assert after.reported == state.reported + release.reports
    assert len(after.rounds) <= 8


def test_arms_are_given_to_people_as_the_policy_does():
    """Planted: shares of arms the other way round."""
    *_, (_, _, policy, _, _) = play("none", 4)
    cells = policy.questions.cells
    masses = np.ones(cells.count)
    for place, feature in enumerate(cells.features):
        masses[cells.of_feature(place)] = 1 / feature.count
    found, rng = ArmShares.of(policy, masses), np.random.default_rng(8)
    own = [rng.integers(*cells.of_feature(place).indices(cells.count)[:2], 20_000) for place in range(4)]
    chosen = policy.chosen(np.stack(own, axis=1), rng.integers(0, len(policy.draws), 20_000))
    exact = np.array([[np.mean(chosen[own[0] == term] == arm) for term in range(1, 9)] for arm in range(3)])
    assert np.abs(found.shares[:, 1:9] - exact).max() < 0.12
    assert np.abs(found.shares[:, 1:9] - exact).mean() < 0.03
    assert np.abs(found.shares[::-1, 1:9] - exact).mean() > 0.03
    assert found.shares.sum(axis=0) == pytest.approx(np.ones(cells.count))


def test_what_is_asked_leaves_less_doubt_than_asking_evenly():
    """One feature has much doubt, the other none."""
    covariance = np.diag([0.01, *[0.04] * 6, *[1e-6] * 3])
    factors = np.stack([np.linalg.cholesky(covariance)] * 2)
    shares = least_doubt(QUESTIONS, factors, 400 * np.stack([MASSES] * 2), 400.0, MASSES, NONE_APART)
    assert shares.sum() == pytest.approx(1)
    assert even(QUESTIONS).sum() == pytest.approx(1)
    about_levels = QUESTIONS.features == 1
    assert shares[about_levels].sum() < even(QUESTIONS)[about_levels].sum() / 2
    assert shares.min() > 0


def test_terms_of_a_policy_are_whole_steps():
    *_, (_, _, policy, _, _) = play("none", 2)
    assert policy.draws.dtype == np.int16
    assert abs(STEP * policy.means[:, 0].astype(float)).max() < 1
