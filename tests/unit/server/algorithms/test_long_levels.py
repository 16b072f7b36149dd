"""Levels of long features, each learned alone: most have no effect, the arm has the common part, shares add up."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_server.algorithms.additive.learner import AdditiveLearner
from privateer_server.algorithms.additive.long_levels import LongCells, LongLevels
from privateer_server.rounds.loop import Schedule

LEVELS = 1000
UNIT = {"low": 0, "high": 1}


def spec_of(model: str = "none", levels: int = LEVELS, arms: int = 2):
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
    return LongCells.from_questions(spec_of().questions)


def test_terms_of_a_long_feature_have_their_own_indices(cells: LongCells) -> None:
    questions = spec_of().questions
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
    posterior = LongLevels(information, scores, np.zeros(LEVELS + 1), np.zeros(LEVELS + 1)).estimate_terms(cells, 1.0)
    is_zero = truth == 0
    assert np.sqrt(np.square(posterior.means[is_zero]).mean()) < 0.012
    far = np.abs(truth) > 0.4
    assert np.abs(posterior.means - truth)[far].mean() < 0.1
    # The spread that is said is that of the errors.
    assert 0.8 < np.square(posterior.means - truth).mean() / posterior.variances.mean() < 1.25


def test_the_common_part_of_all_levels_belongs_to_the_arm(cells: LongCells) -> None:
    rng, shape = np.random.default_rng(2), (2, LEVELS + 1)
    slopes, sums = rng.uniform(5, 50, shape), rng.normal(0, 3, shape)
    before = LongLevels.unknown(*shape)
    plain = before.with_sums(cells, slopes, sums, np.ones(shape), np.zeros(shape))
    shifted = before.with_sums(cells, slopes, sums + 0.3 * slopes, np.ones(shape), np.zeros(shape))
    assert np.allclose(plain.scores, shifted.scores, atol=1e-9)
    assert not np.allclose(plain.scores, before.with_sums(cells, slopes, 2 * sums, np.ones(shape), sums).scores)


def test_shares_of_rare_and_frequent_levels_are_learned_from_noisy_counts(cells: LongCells) -> None:
    rng = np.random.default_rng(3)
    truth = 1 / np.arange(1, LEVELS + 2)
    truth /= truth.sum()
    levels = LongLevels.unknown(2, LEVELS + 1)
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
    spec = spec_of(model, 70)
    learner = AdditiveLearner(spec)
    schedule = Schedule(spec)
    state = learner.start(0)
    policy = schedule.open(0).policy
    rng = np.random.default_rng(4)
    contexts, coins = rng.random((2000, spec.dimension)), rng.integers(0, 1 << 32, 2000, dtype=np.uint32)
    contexts[:, 1:8] = (contexts[:, 1:8] > 0.5).astype(float)
    reports = policy.contribute(contexts, coins, policy.decide(contexts, coins), rng.random(2000) < 0.5)
    after = learner.learn(state, policy, policy.terms.mechanism.simulate(reports, rng))
    assert after.levels.information.shape == (2, 71)
    assert after.levels.information.any()
    assert after.information.shape == (2, 33, 33)
    expected = learner.build_expected_rewards(after)
    assert expected is not None
    means, deviations = expected.at(contexts[:50])
    assert np.isfinite(means).all()
    assert (deviations > 0).all()
    assert learner.figures(after)["uncertainty"] > 0
