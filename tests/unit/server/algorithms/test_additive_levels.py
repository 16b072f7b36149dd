"""Levels of additive bandits: long features, common terms of many arms, and levels where no crowd hides a report."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_core.algorithms.additive.coin_arms import LEVEL_QUESTION
from privateer_core.policies.policy import Arms
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.learner import AdditiveLearner
from privateer_server.algorithms.additive.levels_first import LevelEvidence, SymbolGroups
from privateer_server.algorithms.additive.long_levels import LevelCounts, LevelStatistics, LongCells
from privateer_server.algorithms.additive.posterior import TermPosterior, build_kernels
from privateer_server.algorithms.additive.shared_terms import (
    _SPIKED_LENGTHS,
    _SPIKED_SCALES,
    SpikedTerms,
    _fit_prior,
    fit_shared_terms,
)
from privateer_server.rounds.schedule import Schedule
from tests.unit.algorithms.test_additive import spec_of
from tests.unit.server.algorithms.test_additive_learner import CELLS, FAR, MASSES

OWN = CELLS.feature_slice(0)


def test_the_evidence_of_a_prior_is_that_of_the_normal_law():
    """Up to a constant, of two arms. Planted: one arm alone."""
    rng, feature = np.random.default_rng(1), CELLS.features[0]
    rows = rng.standard_normal((2, 9, 6))
    outcomes = np.einsum("knj,kj->kn", rows, 0.2 * rng.standard_normal((2, 6))) + rng.standard_normal((2, 9))
    information, scores = np.einsum("kni,knj->kij", rows, rows), np.einsum("kni,kn->ki", rows, outcomes)
    laws = [
        scale**2 * build_kernel for build_kernel in build_kernels(feature, _SPIKED_LENGTHS) for scale in _SPIKED_SCALES
    ]
    evidence = np.array([_fit_prior(law, information, scores)[0] for law in laws])
    each = np.array(
        [
            [multivariate_normal.logpdf(outcomes[k], cov=rows[k] @ law @ rows[k].T + np.eye(9)) for k in (0, 1)]
            for law in laws
        ]
    )
    assert np.allclose(evidence - evidence[0], (each - each[0]).sum(axis=1), atol=1e-6)
    assert not np.allclose(evidence - evidence[0], (each - each[0])[:, 0], atol=1e-2)


@pytest.mark.parametrize(("height", "active"), [(0.0, 0.5), (0.15, 0.99)])
def test_a_feature_becomes_active_with_enough_evidence(height, active):
    """6,000 people of an arm, whose reports have the variance 1."""
    rng, arms = np.random.default_rng(2), 2
    terms = height * np.where(np.arange(6) < 2, 1.0, -1.0)
    terms = terms - MASSES[OWN] @ terms
    slopes = 6000 * MASSES[OWN]
    information = np.stack([np.diag(slopes**2 / 6000)] * arms)
    sums = slopes * terms + np.sqrt(6000) * rng.standard_normal((arms, 6))
    posterior = SpikedTerms.from_statistics(CELLS.features[0], MASSES[OWN], information, sums * slopes / 6000)
    assert (posterior.active > active) == (height > 0)
    assert np.abs(posterior.means @ MASSES[OWN]).max() < 1e-9
    assert height == 0 or np.abs(posterior.means - terms).mean() < height / 2
    assert height > 0 or np.abs(posterior.means).max() < 0.02


def test_levels_are_those_of_the_normal_law():
    sums = np.array([100.0, 80.0]), np.array([30.0, 48.0]), np.array([50.0, 60.0])
    evidence = LevelEvidence.unknown(2).add_sums(*sums)
    mean, covariance = evidence.posterior(0.5)
    prior = np.full((2, 2), 0.25) + 0.0225 * np.eye(2)
    rows, noise = np.diag([100.0, 80.0]), np.diag([50.0, 60.0])
    gain = prior @ rows @ np.linalg.inv(rows @ prior @ rows + noise)
    assert mean == pytest.approx(0.5 + gain @ (np.array([30.0, 48.0]) - rows @ np.full(2, 0.5)))
    assert covariance == pytest.approx(prior - gain @ rows @ prior)
    assert evidence.posterior(0.5)[0].argmax() == 1
    assert evidence.expected_regret(0.5, np.array([True, True])) < LevelEvidence.unknown(2).expected_regret(
        0.5, np.array([True, True])
    )
    assert evidence.with_arms(1).posterior(0.5)[0].shape == (3,)


def play(rounds, epsilon=2.0, batch=4000):
    """The learner, state, policy, release and people of each round; the first feature decides which arm is better."""
    spec = spec_of("local", privacy={"epsilon": epsilon}, experiment={"round_size": batch, "horizon": 100_000})
    learner, rng = learner_for(spec), np.random.default_rng(6)
    state = learner.start(1)
    for version in range(1, rounds + 1):
        step = learner.open_next_round(state, version, version)
        contexts = rng.random((step.batch_size, spec.dimension)).round(3)
        contexts[:, 1] = 0.0  # everybody has the first number
        coins = rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
        arms = step.policy.decide(contexts, coins).arms
        means = np.where(arms == 2, 0.5, 0.35 + 0.4 * ((contexts[:, 0] > 0.5) == (arms == 1)))
        rewards = (rng.random(step.batch_size) < means).astype(float)
        reports = step.policy.contribute(contexts, coins, Arms(arms), rewards)
        release = step.policy.terms.mechanism.simulate(reports, rng)
        yield learner, state, step.policy, release, (reports, arms, rewards)
        state = learner.learn(state, step.policy, release)


def test_question_sums_are_unbiased_and_vary_as_stated():
    """Planted: sums half as large again."""
    scores, wrong = [], []
    for _, _, policy, release, (reports, _, _) in play(3):
        groups, symbol_groups = policy.plan.groups, SymbolGroups.from_release(policy, policy.plan, release)
        for question_sum in symbol_groups.question_sums:
            rows = np.isin(
                reports.groups,
                np.flatnonzero(
                    (groups.arms == question_sum.arm)
                    & (groups.questions == question_sum.topic)
                    & ~groups.is_cell_report
                ),
            )
            assert rows.sum() == question_sum.people
            keys = question_sum.sums.size
            sums = np.bincount(reports.keys[rows], 2 * reports.values[rows] - 1, keys)[:keys]
            shares = np.bincount(reports.keys[rows], minlength=keys)[:keys] / question_sum.people
            size = question_sum.sums.shape[::-1]
            deviations = np.sqrt(question_sum.variances(shares.reshape(size).T))
            scores.append(((question_sum.sums - sums.reshape(size).T) / deviations).ravel())
            wrong.append(((1.5 * question_sum.sums - sums.reshape(size).T) / deviations).ravel())
    assert np.abs(np.concatenate(scores)).max() < FAR
    assert 0.8 < np.concatenate(scores).std() < 1.1
    assert np.concatenate(wrong).std() > 1.2


def test_participants_with_arms_by_coins_report_the_level_until_it_is_clear():
    (_, _, first, _, _), *_, (_, _, last, _, _) = play(8)
    groups = last.plan.groups
    assert LEVEL_QUESTION in set(groups.questions.tolist())
    assert first.plan.given > last.plan.given
    assert last.plan.edges[0, 0] > last.plan.edges[1, 0]


LEVELS = 1000
UNIT = {"low": 0, "high": 1}


def long_spec(model: str = "none", levels: int = LEVELS, arms: int = 2):
    promise = {"epsilon": 1.0, "delta": 1e-6} if model != "none" else {}
    return parse_spec(
        {
            "experiment": {"name": "t", "arms": [f"arm {arm}" for arm in range(arms)], "horizon": 5000},
            "context": {"features": {"x": UNIT, "town": {"levels": list(range(levels))}, "y": UNIT}},
            "privacy": {"model": model, **promise},
            "algorithm": {"name": "additive", "bins": 16},
        }
    )


@pytest.fixture(scope="module")
def cells() -> LongCells:
    return LongCells.from_questions(long_spec().questions)


def test_terms_of_a_long_feature_have_their_own_indices(cells: LongCells) -> None:
    questions = long_spec().questions
    assert (cells.terms == np.arange(17, 17 + LEVELS + 1)).all()
    assert (questions.question_of_part[cells.parts] == 2).all()
    assert cells.build_short_questions(questions).cells.count == 1 + 16 + 16
    assert sorted([*cells.terms, *cells.short_terms]) == list(range(questions.cells.count))
    assert sorted([*cells.parts, *cells.short_parts]) == list(range(int(questions.starts[-1])))
    assert cells.short_questions.tolist() == [0, 1, 3]


def test_a_few_levels_that_matter_are_found_among_a_thousand(cells: LongCells) -> None:
    """Of 1,001 levels 50 have terms with a deviation of .1 and errors of .07: those found are 4 errors from zero.

    Were all levels to have one scale, what does nothing would be off by .02 or more.
    """
    rng = np.random.default_rng(1)
    truth = np.zeros((2, LEVELS + 1))
    truth[:, rng.choice(LEVELS, 50, False)] = rng.normal(0, 0.2, (2, 50))
    information = np.full(truth.shape, 0.07**-2.0)
    scores = information * (truth + 0.07 * rng.standard_normal(truth.shape))
    posterior = LevelStatistics(information, scores).estimate_terms(cells, 1.0)
    is_zero = truth == 0
    assert np.sqrt(np.square(posterior.means[is_zero]).mean()) < 0.012
    far = np.abs(truth) > 0.4
    assert np.abs(posterior.means - truth)[far].mean() < 0.1
    # The spread that is said is that of the errors.
    assert 0.8 < np.square(posterior.means - truth).mean() / posterior.variances.mean() < 1.25


def test_the_common_part_of_all_levels_belongs_to_the_arm(cells: LongCells) -> None:
    rng, shape = np.random.default_rng(2), (2, LEVELS + 1)
    slopes, sums = rng.uniform(5, 50, shape), rng.normal(0, 3, shape)
    plain = LevelStatistics.from_sums(cells, slopes, sums, np.ones(shape), np.zeros(shape))
    shifted = LevelStatistics.from_sums(cells, slopes, sums + 0.3 * slopes, np.ones(shape), np.zeros(shape))
    assert np.allclose(plain.scores, shifted.scores, atol=1e-9)
    doubled = LevelStatistics.from_sums(cells, slopes, 2 * sums, np.ones(shape), sums)
    assert not np.allclose(plain.scores, doubled.scores)


def test_shares_of_rare_and_frequent_levels_are_learned_from_noisy_counts(cells: LongCells) -> None:
    rng = np.random.default_rng(3)
    truth = 1 / np.arange(1, LEVELS + 2)
    truth /= truth.sum()
    levels = LevelCounts.unknown(LEVELS + 1)
    for _ in range(4):
        counts = 10_000 * truth + rng.normal(0, 30, LEVELS + 1)
        levels = levels.with_counts(cells, counts, np.full(LEVELS + 1, 900.0), 10_000)
    shares = levels.estimate_shares(cells)
    assert shares.sum() == pytest.approx(1)
    assert shares.min() > 0
    assert np.abs(shares - truth)[:10] == pytest.approx(np.zeros(10), abs=0.006)
    even = np.full(LEVELS + 1, 1 / (LEVELS + 1))
    assert np.abs(shares - truth).sum() < 0.6 * np.abs(even - truth).sum()


@pytest.mark.parametrize("model", ["none", "central", "shuffle"])
def test_policies_have_terms_of_all_levels_after_a_round(model: str) -> None:
    spec = long_spec(model, 70)
    learner = AdditiveLearner(spec)
    schedule = Schedule(spec)
    state = learner.start(0)
    policy = schedule.open(0).policy
    rng = np.random.default_rng(4)
    contexts, coins = rng.random((2000, spec.dimension)), rng.integers(0, 1 << 32, 2000, dtype=np.uint32)
    contexts[:, 1:8] = (contexts[:, 1:8] > 0.5).astype(float)
    reports = policy.contribute(contexts, coins, policy.decide(contexts, coins), rng.random(2000) < 0.5)
    after = learner.learn(state, policy, policy.terms.mechanism.simulate(reports, rng))
    evidence = after.discounted.current
    assert evidence.levels.information.shape == (2, 71)
    assert evidence.levels.information.any()
    assert evidence.information.shape == (2, 33, 33)
    expected = learner.build_expected_rewards(after)
    means, deviations = expected.at(contexts[:50])
    assert np.isfinite(means).all()
    assert (deviations > 0).all()
    assert learner.figures(after)["uncertainty"] > 0


ARMS = 40
SHARED_CELLS = Cells((ShapeCells(0, 8), ShapeCells(1, 8)))
SHARED_MASSES = np.append(1.0, np.full(16, 1 / 8))


def simulate_statistics(terms: np.ndarray, error: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What observations of every term with such an error say, (arms, terms, terms) and (arms, terms)."""
    rng = np.random.default_rng(seed)
    information = np.tile(np.eye(SHARED_CELLS.count) / error**2, (len(terms), 1, 1))
    return information, (terms + error * rng.standard_normal(terms.shape)) / error**2


def waves(rng: np.random.Generator, arms: int) -> np.ndarray:
    """Smooth terms of two features, whose mean is 0."""
    places = np.cos(np.pi * (np.arange(8) + 0.5) / 8)
    return np.concatenate([np.zeros((arms, 1)), *(rng.standard_normal((arms, 1)) * places for _ in range(2))], axis=1)


def test_equal_arms_are_shrunk_to_their_common_terms() -> None:
    """All arms have one shape, observed with errors as large: own parts are a fifth of those of separate arms."""
    terms = np.tile(0.1 * waves(np.random.default_rng(1), 1), (ARMS, 1))
    terms[:, 0] = 0.3
    information, scores = simulate_statistics(terms, 0.1, 2)
    shared = fit_shared_terms(information, scores, SHARED_CELLS, SHARED_MASSES, None)
    separate = TermPosterior.from_statistics(information, scores, SHARED_CELLS, SHARED_MASSES, None)
    assert shared.means[:, 1:].std(axis=0).mean() < separate.means[:, 1:].std(axis=0).mean() / 5
    assert np.abs(shared.means - terms).mean() < np.abs(separate.means - terms).mean() / 2


def test_different_arms_keep_their_own_terms_and_variance() -> None:
    """Squared errors by the covariances that are said have a mean of 1 at most: scales that are not known are wide."""
    rng = np.random.default_rng(3)
    terms = 0.08 * waves(rng, 1) + 0.08 * waves(rng, ARMS)
    terms[:, 0] = 0.3 + 0.05 * rng.standard_normal(ARMS)
    information, scores = simulate_statistics(terms, 0.05, 4)
    term_posterior = fit_shared_terms(information, scores, SHARED_CELLS, SHARED_MASSES, None)
    errors = (term_posterior.means - terms)[..., None]
    covariances = term_posterior.covariances
    off = np.linalg.solve(covariances, errors).transpose(0, 2, 1) @ errors / SHARED_CELLS.count
    assert 0.3 < off.mean() < 1.2
    assert np.corrcoef(term_posterior.means[:, 1:].ravel(), terms[:, 1:].ravel())[0, 1] > 0.9


def test_the_prior_of_shared_terms_has_no_effects() -> None:
    no_evidence = np.zeros((ARMS, SHARED_CELLS.count, SHARED_CELLS.count)), np.zeros((ARMS, SHARED_CELLS.count))
    term_posterior = fit_shared_terms(*no_evidence, SHARED_CELLS, SHARED_MASSES, 0.1)
    assert np.allclose(term_posterior.means[:, 0], term_posterior.means[0, 0])
    assert np.allclose(term_posterior.means[:, 1:], 0)
