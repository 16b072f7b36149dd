"""What learns additive bandits where no crowd hides a report: each part against its closed form, and the whole."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from privateer_core.algorithms.additive.coin_arms import LEVEL_QUESTION
from privateer_core.policies.policy import Arms
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.levels_first import LevelEvidence, SymbolGroups
from privateer_server.algorithms.additive.posterior import build_kernels
from privateer_server.algorithms.additive.shared_terms import _SPIKED_LENGTHS, _SPIKED_SCALES, SpikedTerms, _fit_prior
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


def test_the_learner_finds_levels_and_the_one_feature_that_matters():
    *_, (learner, state, policy, release, (_, arms, _)) = play(12)
    after = learner.learn(state, policy, release)
    posterior = learner.posterior(after)
    columns = learner.cells.feature_slice(0)
    bins = posterior.means[:, columns][:, :-1]
    higher = bins[:, 4:].mean(axis=1) - bins[:, :4].mean(axis=1)
    assert higher[1] > 0.15
    assert higher[0] < -0.15
    assert abs(higher[2]) < 0.1
    assert np.abs(posterior.means[:, columns.stop :]).max() < 0.1
    assert np.abs(posterior.means[:, 0] - [0.55, 0.55, 0.5]).max() < 0.08
    active = [feature.active for feature in learner._features(after)]
    assert active[0] > 0.99
    assert max(active[1:]) < 0.5
    assert policy.plan.given < policy.plan.edges.max()
    assert (arms == 2).mean() < 0.3
    assert after.reported == state.reported + release.reports
    answer = learner.answer(after)
    assert answer.people == after.reported


def test_participants_with_arms_by_coins_report_the_level_until_it_is_clear():
    (_, _, first, _, _), *_, (_, _, last, _, _) = play(8)
    groups = last.plan.groups
    assert LEVEL_QUESTION in set(groups.questions.tolist())
    assert first.plan.given > last.plan.given
    assert last.plan.edges[0, 0] > last.plan.edges[1, 0]
