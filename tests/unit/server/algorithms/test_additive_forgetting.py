"""Additive bandits that choose what to forget: half-lives side by side, and the arms that are always tried."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from privateer_core.answer.parts import HalfLives
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.additive.long_levels import LevelStatistics, LevelTerms
from privateer_server.algorithms.additive.posterior import TermPosterior
from tests.support.people import rounds
from tests.unit.algorithms.test_additive import spec_of

FLIP_AT = 8000
HIGH, LOW = 0.8, 0.2
FEATURES = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
PROMISES = ["none", "central", "shuffle", "local-4", "local-3.5"]


def make_spec(promise: str = "none", half_life: Any = "auto", horizon: int = 16_000, **changes: Any) -> Any:
    """Return a spec of two numbers and three arms; the promise has the model, and an epsilon."""
    model, _, epsilon = promise.partition("-")
    sizes = {"horizon": horizon, "round_size": 1000, "min_round_fraction": 0.0, **changes}
    privacy = {"epsilon": float(epsilon)} if epsilon else {}
    algorithm = {"bins": 4, "half_life": half_life}
    return spec_of(model, privacy=privacy, experiment=sizes, context={"features": FEATURES}, algorithm=algorithm)


def make_flip() -> Any:
    """Return mean rewards: the best of the first two arms depends on the half of x, and changes at `FLIP_AT` people."""
    n_people = 0

    def means(contexts: Any) -> Any:
        nonlocal n_people
        n_people += len(contexts)
        best = (contexts[:, 0] > 0.5) ^ (n_people > FLIP_AT)
        return np.where(np.arange(3) == best[:, None], HIGH, LOW)

    return means


def play_flip(promise: str, half_life: Any) -> Any:
    """Return the last round."""
    *_, last = rounds(make_spec(promise, half_life), make_flip(), seed=3)
    return last


def share_of_best_arm(promise: str, half_life: Any) -> float:
    """Return the share of people after the horizon who get the arm that is best for them then."""
    last, spec = play_flip(promise, half_life), make_spec(promise, half_life)
    policy: Any = learner_for(spec).policy(last.state, NewRound(99, 1))
    contexts = np.random.default_rng(1).random((500, 2))
    arms = policy.decide(contexts, np.zeros(500, np.uint32)).arms
    return float((arms == ~(contexts[:, 0] > 0.5)).mean())


@pytest.mark.parametrize("promise", PROMISES)
def test_arms_that_change_places_are_left(promise: str) -> None:
    """Planted: the learner that weighs all reports alike."""
    assert share_of_best_arm(promise, "auto") > 0.9
    assert share_of_best_arm(promise, "none") < 0.6


@pytest.mark.parametrize("promise", ["central", "local-2"])
def test_the_endless_half_life_equals_a_learner_without_forgetting(promise: str) -> None:
    spec = make_spec(promise, horizon=11_000)
    learner: Any = learner_for(make_spec(promise, "none", 11_000))
    state = learner.start(0)
    for played in rounds(spec, make_flip()):
        state = learner.learn(state, played.policy, played.release)
        last = played.state
    plain, endless, shortest = state.discounted.current, last.discounted.endless, last.discounted.evidence.select(3)
    assert np.allclose(endless.information, plain.information)
    assert np.allclose(endless.scores, plain.scores)
    assert np.trace(shortest.information[0]) < 0.8 * np.trace(plain.information[0])


def make_posterior(mean: float, scale: float) -> TermPosterior:
    rng = np.random.default_rng(4)
    factors = np.tril(scale * rng.standard_normal((2, 3, 3)))
    return TermPosterior(mean + 0.1 * rng.standard_normal((2, 3)), factors, 0.5, ())


def test_half_lives_are_scored_by_the_density_of_a_round() -> None:
    """Scores of two posteriors differ as exact normal densities do. Planted: covariances with factors transposed."""
    rng, posteriors = np.random.default_rng(1), (make_posterior(0.5, 0.05), make_posterior(0.4, 0.3))
    rows, outcomes = rng.standard_normal((2, 8, 3)), rng.standard_normal((2, 8))
    statistics = rows.transpose(0, 2, 1) @ rows, np.einsum("kni,kn->ki", rows, outcomes)

    def compare(*versions: TermPosterior) -> float:
        first, second = (version.predictive_log_density(*statistics) for version in versions)
        return second - first

    def density(posterior: TermPosterior) -> float:
        laws = zip(rows, posterior.means, posterior.covariances, strict=True)
        moments = [(row @ mean, row @ covariance @ row.T + np.eye(8)) for row, mean, covariance in laws]
        return sum(multivariate_normal.logpdf(values, *law) for values, law in zip(outcomes, moments, strict=True))

    exact = density(posteriors[1]) - density(posteriors[0])
    assert compare(*posteriors) == pytest.approx(exact)
    planted = [replace(each, factors=each.factors.transpose(0, 2, 1)) for each in posteriors]
    assert compare(*planted) != pytest.approx(exact, abs=0.1)


def test_levels_of_long_features_are_scored_by_their_densities() -> None:
    rng, shape = np.random.default_rng(2), (2, 5)
    outcomes, deviations = rng.standard_normal(shape), rng.uniform(0.5, 2, shape)
    statistics, scores, densities = LevelStatistics(deviations**-2, outcomes * deviations**-2), [], []
    for mean, variance in ((0.0, 0.1), (0.5, 2.0)):
        terms = LevelTerms(np.full(shape, mean), np.full(shape, variance))
        scores.append(terms.predictive_log_density(statistics))
        densities.append(norm.logpdf(outcomes, mean, np.sqrt(variance + deviations**2)).sum())
    assert scores[1] - scores[0] == pytest.approx(densities[1] - densities[0])


def count_trial_draws(promise: str, half_life: Any, versions: range) -> list[list[int]]:
    """Return how many draws of a round name each arm for everybody, where the third arm is remembered least."""
    spec = make_spec(promise, half_life, 100_000)
    learner: Any = learner_for(spec)
    state = learner.start(1)
    information = state.discounted.evidence.information
    information[..., range(9), range(9)] = 1e4
    information[:, 2, 0, 0] = 1.0
    state, counts = replace(state, reported=50_000), []
    for version in versions:
        draws = learner.policy(state, NewRound(version, 5, 1000)).draws
        is_trial = (draws[:, :, 1:] == 0).all(axis=(1, 2))
        counts.append([int((is_trial & (draws[:, arm, 0] == 1)).sum()) for arm in range(3)])
    return counts


@pytest.mark.parametrize(("promise", "period", "n_draws"), [("none", 3, 1), ("central", 10, 3), ("shuffle", 10, 3)])
def test_the_arm_that_is_remembered_least_is_always_tried(promise: str, period: int, n_draws: int) -> None:
    """About one person in a hundred tries the arm; planted: without forgetting nobody does."""
    versions = range(period - 1, period + 2)
    expected = [[0, 0, n_draws if version % period == 0 else 0] for version in versions]
    assert count_trial_draws(promise, "auto", versions) == expected
    assert count_trial_draws(promise, "none", versions) == [[0, 0, 0]] * 3
    assert n_draws / 32 / period == pytest.approx(0.01, abs=0.001)


def test_coins_always_try_arms_where_levels_come_first() -> None:
    spec = make_spec("local-2", horizon=1_000_000)
    learner: Any = learner_for(spec)
    state = replace(learner.start(1), reported=900_000)
    shares = []
    for used in range(4):
        discounted = replace(state.discounted, used=used)
        shares.append(learner.policy(replace(state, discounted=discounted), NewRound(9, 1, 1000)).plan.given / UNIT)
    assert shares[0] == pytest.approx(0.03, abs=1e-4)
    assert shares[2] == pytest.approx(1000 * np.log(2) / 10_000, abs=1e-4), "more where less is remembered"
    assert shares[3] == shares[2], "and no more than that"


def test_an_answer_has_the_half_life_that_is_used() -> None:
    last, learner = play_flip("none", "auto"), learner_for(make_spec())
    half_lives = learner.answer(last.state).first_of(HalfLives)
    assert half_lives.candidates == (None, 30_000.0, 10_000.0, 3000.0)
    assert half_lives.used == half_lives.candidates[last.state.discounted.used]
    assert half_lives.used is not None
    assert learner_for(make_spec(half_life="none")).answer(play_flip("none", "none").state).first_of(HalfLives) is None


@pytest.mark.parametrize("promise", ["central", "local-2"])
def test_new_arms_and_continued_experiments_keep_every_half_life(promise: str) -> None:
    spec = make_spec(promise, horizon=3000)
    *_, last = rounds(spec, make_flip())
    learner: Any = learner_for(spec)
    state = learner.keep_evidence_only(last.state)
    assert (state.reported, state.discounted.n_own_reports) == (0, 0)
    grown: Any = learner_for(make_spec(promise, horizon=3000, arms=["a", "b", "c", "d"]))
    evidence = grown.apply_arm_change(state, spec).discounted.evidence
    assert evidence.information.shape[:2] == (4, 4)
    assert not evidence.information[:, 3].any()
    assert evidence.information[:, :3].any(axis=(1, 2, 3)).all()


def test_a_state_has_room_for_every_half_life() -> None:
    levels = {f"level {number}": {"levels": list(range(60))} for number in range(8)}
    sections = {"context": {"features": levels}, "experiment": {"arms": [str(arm) for arm in range(10)]}}
    spec_of("central", **sections)
    with pytest.raises(SpecError, match="too many for 10 arms"):
        spec_of("central", algorithm={"half_life": "auto"}, **sections)
