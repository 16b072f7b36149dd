"""Bandit learners: errors are as rare as stated, and regret is small."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, make_arm_layout
from privateer_core.errors import SpecError
from privateer_core.primitives.contributions import KeyedSums
from privateer_core.privacy.terms import calibrate
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_2.bandit import lil_ucb
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.bandit import posterior as posteriors
from privateer_server.algorithms.bandit import sampling_rules
from privateer_server.algorithms.bandit.posterior import ArmPosterior, PairContrast, SuccessCounts, variance_proxy
from privateer_server.algorithms.bandit.sampling_rules import (
    is_worth_exploring,
    kl_ucb,
    thompson,
    track_and_stop,
    tsallis,
)
from privateer_server.rounds.schedule import Schedule

EXAMPLES = Path(__file__).parents[4] / "examples"
ALL = np.ones(3, bool)


def example(name, *settings):
    return load_spec(EXAMPLES / f"{name}.toml", list(settings))


def posterior(means, people):
    people = np.array(people, float)
    counts = SuccessCounts.from_means(people, np.array(means), 4 * people)
    return ArmPosterior(people, 4 * people, 4 * people * np.array(means), np.zeros(len(people)), counts)


def walks(gap, runs=120, looks=30, seed=3):
    """Two arms, ``gap`` apart, as looked at from 20 people each to 20,000; the first is the best."""
    people = np.geomspace(20, 20_000, looks).astype(int)
    rng, steps = np.random.default_rng(seed), np.diff(people, prepend=0)[:, None]
    for _ in range(runs):
        sums = rng.binomial(steps, [0.5, 0.5 - gap]).cumsum(axis=0)
        yield [posterior(row / count, [count] * 2) for row, count in zip(sums, people, strict=True)]


def wrong_stops(failure=0.2):
    """Of 120 runs, those that name the wrong arm first."""
    stops = 0
    for walk in walks(0.002):
        leads = (estimate.compare_with_leader(np.ones(2, bool), failure) for estimate in walk)
        stops += next((best == 1 for best, beaten in leads if (beaten > 0).all()), False)
    return stops


def misses():
    """Of 120 runs, those in which an interval of failure .2 ever misses."""
    truth = np.array([0.5, 0.4])
    return sum(
        any((abs(arms.interval_centres - truth) > arms.radii(0.2)).any() for arms in walk) for walk in walks(0.1)
    )


def test_stopping_rules_and_intervals_fail_at_most_as_often_as_stated():
    """A false alarm above 39 of 120, at below 1e-3 for a rate of .2."""
    assert wrong_stops() <= 39
    assert misses() <= 39
    assert posterior([0.5, 0.5], [900, 900]).radii(0.2)[0] < 0.05


def test_intervals_that_forget_their_many_looks_are_caught(monkeypatch):
    """A planted defect: as if each look were the only one."""
    monkeypatch.setattr(posteriors, "_mixture_cost", lambda precision: np.full_like(precision, -1.0))
    assert wrong_stops() > 39
    assert misses() > 39


def contrast_stops(means, runs=120, looks=50, overstated=1.0, failure=0.2):
    """Return rounds until the contrast of two arms stops, and until the arms' own mixtures do, (runs, 2).

    A round has 200 people, of whom ever fewer play the first arm, by how well it did: shares may follow results.
    """
    rng, playable, limit = np.random.default_rng(4), np.ones(2, bool), -math.log(failure)
    stops = np.full((runs, 2), np.inf)
    for run in range(runs):
        pair, arms = PairContrast(0.0, 0.0), ArmPosterior.empty(2)
        for look in range(looks):
            people = np.array([60, 140]) if pair.weighted > 0 else np.array([100, 100])
            latest = posterior(rng.binomial(people, means) / people, people)
            latest = replace(latest, precision=overstated * latest.precision, weighted=overstated * latest.weighted)
            pair, arms = pair.add(latest, playable), arms.plus(latest)
            are_over = pair.log_evidence > limit, (arms.compare_with_leader(playable, failure)[1] > 0).all()
            stops[run] = np.where(are_over, np.minimum(stops[run], look + 1), stops[run])
    return stops


def count_stops(**changes):
    return int(np.isfinite(contrast_stops([0.5, 0.5], **changes)[:, 0]).sum())


def test_equal_arms_rarely_stop_by_their_contrast(monkeypatch):
    """Of 120 runs 24 may; 40 would be a false alarm below 1e-3. Planted: overstated precision, and only one look."""
    assert count_stops() <= 39
    assert count_stops(overstated=4.0) > 39
    monkeypatch.setattr(posteriors, "_mixture_cost", lambda precision: np.full_like(precision, -1.0))
    assert count_stops() > 39


def test_a_contrast_stops_sooner_than_the_mixtures_of_two_arms():
    """A fifth fewer rounds, or less; both stop in each of 40 runs."""
    by_contrast, by_arm = contrast_stops([0.55, 0.45], runs=40, looks=80, failure=0.05).sum(axis=0)
    assert by_contrast < 0.8 * by_arm < np.inf


def test_a_contrast_is_kept_for_two_arms_that_coins_choose():
    """Reports with a hidden arm count for both arms, and rounds without an arm are left out."""
    two = ("experiment.arms=['a', 'b']", "algorithm.objective=best-arm")
    learners: dict[str, Any] = {
        name: learner_for(example("bandit", *two, *changes))
        for name, changes in {
            "local": (),
            "hidden": ("privacy.model=central", "privacy.delta=1e-6", "privacy.arm_visibility=hidden"),
            "seen": ("privacy.model=central", "privacy.delta=1e-6"),
        }.items()
    }
    assert {name: learner.start(0).pair is not None for name, learner in learners.items()} == {
        "local": True,
        "hidden": True,
        "seen": False,
    }
    for changes in (("algorithm.objective=best-arm",), ("experiment.arms=['a', 'b']",)):
        assert learner_for(example("bandit", *changes)).start(0).pair is None
    pair = PairContrast(50.0, 5.0)
    assert pair.add(posterior([0.9, 0.5], [30, 0]), np.ones(2, bool)) == pair
    learner, state = learners["local"], learners["local"].start(0)
    leads = {weighted: learner.leader(replace(state, pair=PairContrast(50.0, weighted))) for weighted in (5.0, -5.0)}
    assert leads == {5.0: 0, -5.0: 1}


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_proxy_bounds_every_moment(share):
    for bias in (0.0, 0.3, 1.0):
        for t in (-8.0, -1.0, 0.5, 3.0, 20.0):
            moment = math.log(1 + share * (bias * math.expm1(t) + (1 - bias) * math.expm1(-t)))
            assert moment - t * share * (2 * bias - 1) <= variance_proxy(share) * t * t / 2 * (1 + 1e-3)
    assert share <= variance_proxy(share) < variance_proxy(1.0) == 1.0


def test_sampling_rules_prefer_better_and_less_observed_arms():
    well_observed, rarely_observed = posterior([0.3, 0.7, 0.3], [400] * 3), posterior([0.3, 0.7, 0.3], [4, 400, 400])
    for share in (
        lambda arms: thompson(arms, ALL, 4096, 10**6, 1),
        lambda arms: kl_ucb(arms, ALL, 1200, 100),
        lambda arms: track_and_stop(arms, ALL, 1, 100),
    ):
        assert share(well_observed).sum() == pytest.approx(1)
        assert share(rarely_observed)[0] > share(well_observed)[0]
    assert thompson(well_observed, ALL, 4096, 10**6, 1)[1] > 0.99
    assert kl_ucb(well_observed, ALL, 1200, 100)[1] > 0.9


def test_arms_are_eliminated_when_remaining_participants_cannot_gain():
    """The expected gain above the leader against people times gap, by drawing from the posterior."""
    arms = posterior([0.5, 0.4, 0.1], [150, 120, 150])
    samples = np.random.default_rng(1).normal(arms.means, arms.variances**0.5, (400_000, 3))
    gain = np.maximum(samples - samples[:, [0]], 0).mean(axis=0)
    required = 120 * 0.1 / gain[1]
    assert is_worth_exploring(arms, ALL, math.ceil(1.02 * required)).tolist() == [True, True, False]
    assert is_worth_exploring(arms, ALL, math.floor(0.98 * required)).tolist() == [True, False, False]
    assert thompson(arms, ALL, 64, 0, 1).tolist() == [1, 0, 0]
    assert is_worth_exploring(arms, np.array([False, True, True]), 0).tolist() == [False, True, False]


def test_kl_ucb_indexes_are_equal_after_a_batch():
    before = posterior([0.5, 0.55, 0.45], [200, 300, 100])
    people = before.people + 900 * kl_ucb(before, ALL, 600, 900)
    index = [
        max(
            q
            for q in np.linspace(mean, 1, 2001)
            if n * sampling_rules._kl_divergence(np.array(mean), np.array(q)) <= math.log(1500) + 1e-9
        )
        for mean, n in zip(before.means, people, strict=True)
    ]
    assert np.ptp(index) < 2e-3


def test_retired_arms_have_no_share():
    arms, playable = posterior([0.3, 0.9, 0.4], [50] * 3), np.array([True, False, True])
    for shares in (
        thompson(arms, playable, 64, 10**6, 1),
        kl_ucb(arms, playable, 150, 50),
        track_and_stop(arms, playable, 2, 50),
        tsallis(np.array([3.0, 0.0, 1.0]), playable, 0.1, 1e-4),
    ):
        assert shares[1] == 0
        assert shares.sum() == pytest.approx(1)


def test_tsallis_shares_solve_their_equation():
    losses = np.array([0.0, 5.0, 40.0])
    shares = tsallis(losses, ALL, 0.2, 0.0)
    assert shares.sum() == pytest.approx(1)
    assert np.ptp(2 / (0.2 * np.sqrt(shares)) - losses) < 1e-6
    assert tsallis(losses - 1e12, ALL, 0.2, 0.0) == pytest.approx(shares, rel=1e-3)


def test_lil_ucb_stops_when_one_arm_has_nine_times_the_plays_of_the_others():
    assert lil_ucb(posterior([0.9, 0.1, 0.1], [400, 20, 20]), 0.25, 0.05) == (0, True)
    assert lil_ucb(posterior([0.9, 0.1, 0.1], [300, 20, 20]), 0.25, 0.05)[1] is False
    assert lil_ucb(posterior([0.9, 0.1, 0.1], [150, 1, 20]), 0.25, 0.05)[0] == 1


@pytest.mark.parametrize(
    ("settings", "max_ratio"),
    [
        ((), 0.2),
        (("algorithm.objective=moving",), 0.35),
        (("algorithm.objective=adversarial",), 0.35),
        (
            (
                "privacy.model=shuffle",
                "privacy.delta=1e-6",
                "privacy.min_batch=500",
                "privacy.arm_visibility=hidden",
                "experiment.min_round_fraction=0",
            ),
            0.06,
        ),
        (("privacy.model=shuffle", "privacy.delta=1e-6"), 0.12),
        (("privacy.model=central", "privacy.delta=1e-6"), 0.16),
    ],
)
def test_regret_by_uniform_regret(settings, max_ratio):
    """One run of 20,000 people."""
    run = simulate_once(example("bandit", "experiment.horizon=20000", *settings), 1)
    assert run.regret / run.uniform_regret < max_ratio
    assert run.facts["best_share"] == 1


def test_a_result_has_only_established_statements():
    spec = example("best-arm", "reward.low=-1", "reward.high=3")
    learner = learner_for(spec)
    state = learner.start(1)
    first_result = learner.answer(state)
    assert (first_result.stage, first_result.people, first_result.says_something) == ("learning", 0, False)
    ten = posterior([0.5] * 4 + [0.9] + [0.5] * 5, [40] * 10)
    early = learner.answer(replace(state, reported=400, posterior=ten))
    assert (early.recommended, early.stage, early.confidence) == (None, "learning", 0.95)
    assert early.estimates[4].value == pytest.approx(2.6)
    assert early.estimates[4].high == 3.0
    last_result = learner.answer(replace(state, reported=400, posterior=ten, stopped=True))
    assert (last_result.recommended, last_result.stage, last_result.stop_reason) == ("e", "ended", "its rule")
    assert learner.open_next_round(replace(state, reported=400, posterior=ten, stopped=True), 2, 1).batch_size == 0


def test_a_round_of_hidden_arms_counts_by_their_shares():
    """Release 1,000 participants of an arm with a tenth without noise, of whom each has the reward 1."""
    spec = example("bandit", "privacy.model=central", "privacy.delta=1e-6")
    learner, step = learner_for(spec), Schedule(spec).open(1)
    sums = np.zeros((10, 1))
    sums[3] = 100
    release = KeyedSums(1000, sums, np.full((10, 1), 1000), np.full(10, 100.0), 1.0, 1.0, 0.0, 71.0)
    after = learner.learn(step.state, step.policy, release).posterior
    assert after.means[[3, 4]] == pytest.approx([1.0, 0.5], abs=1e-2)
    assert after.precision[3] < 4 * 100 * 100 / 171
    assert after.losses[3] == pytest.approx(-500, rel=1e-2)


@pytest.mark.parametrize("model", ["shuffle", "shuffle-grouped", "central", "local"])
def test_estimates_have_the_stated_variance(model):
    """400 rounds of three arms: mean squares within 4 standard deviations of 1; false alarms 1e-4 an arm."""
    spec, mean = BanditSpec.instances()[model], np.array([0.3, 0.5, 0.6])
    learner, rng, choice = learner_for(spec), np.random.default_rng(4), make_arm_layout(9, np.array([0.6, 0.3, 0.1]))
    layout = choice if spec.privacy.has_arm_in_key else None
    policy = BanditPolicy(1, calibrate(spec.privacy, 2000, spec.make_question(choice)), layout)
    none = np.zeros((2000, 0))
    errors, precisions, sure = [], [], []
    for _ in range(400):
        coins = rng.integers(0, 1 << 32, 2000, np.uint32)
        decisions = policy.decide(none, coins)
        rewards = rng.binomial(1, mean[decisions.arms]).astype(float)
        contributed = policy.contribute(none, coins, decisions, rewards)
        after = learner.learn(learner.start(1), policy, policy.terms.mechanism.simulate(contributed, rng)).posterior
        errors.append(after.means - mean)
        precisions.append(1 / after.variances)
        sure.append(after.precision * np.square(after.interval_centres - mean))
    assert (np.mean(sure, axis=0) < 1.3).all()
    squares = np.mean(np.square(errors) * precisions, axis=0)
    assert (squares > 0.72).all()
    assert (squares < 1.3).all()


def test_new_arms_are_tried_and_estimates_stay():
    spec = example("bandit")
    experiment = spec.experiment.model_copy(update={"arms": (*spec.experiment.arms, "k")})
    larger = spec.model_copy(update={"experiment": experiment})
    state = replace(learner_for(spec).start(1), reported=1000, posterior=posterior([0.5] * 9 + [0.9], [100] * 10))
    changed = learner_for(larger).apply_spec_change(state, spec)
    policy: Any = learner_for(larger).open_next_round(changed, 2, 1).policy
    assert policy.layout.shares[0, 10] > 0.05
    assert changed.posterior.means[9] == 0.9
    published = example("bandit", "algorithm.objective=adversarial")
    with pytest.raises(SpecError):
        learner_for(larger.model_copy(update={"algorithm": published.algorithm})).apply_spec_change(state, published)


def test_published_losses_reach_the_sampling_rule_unchanged():
    """A loss of -1/4 around the middle, by a share of a tenth: -2.5 for each of 20 people."""
    settings = ("algorithm.name=paper-2-bandit", "privacy.delta=1e-6")
    spec = example("bandit", *settings, "experiment.round_size=20", "experiment.min_round_fraction=0")
    schedule = Schedule(spec)
    step: Any = schedule.open(3)
    mechanism = step.policy.terms.mechanism
    noise = mechanism.standard_deviation * mechanism.ball.step
    assert noise == pytest.approx(math.sqrt(2 * math.log(1.25e6)), rel=1e-3)
    arm = int(step.policy.cells[0])
    release = mechanism.release(mechanism.empty(), None)
    release = msgspec.structs.replace(release, reports=20, sums=np.array([5.0]))
    after = schedule.learner.learn(step.state, step.policy, release).posterior
    assert after.losses[arm] == pytest.approx(-50)
    assert np.count_nonzero(after.losses) == 1


def test_late_reports_on_arms_that_a_round_does_not_ask_about_count_for_no_other_arm():
    """Play three arms in the first round, and ask about one or two in later rounds."""
    spec = BanditSpec.instances()["central"]
    learner, rng, means = learner_for(spec), np.random.default_rng(3), np.array([0.1, 0.5, 0.9])
    first, start = learner.open_next_round(learner.start(1), 1, 5).policy, learner.start(1)
    for shares in ([0.0, 0.0, 1.0], [0.5, 0.0, 0.5]):
        choice = make_arm_layout(9, np.array(shares))
        policy = BanditPolicy(2, calibrate(spec.privacy, 3000, spec.make_question(choice)), choice)
        coins = rng.integers(0, 1 << 32, 3000, np.uint32)
        decisions = first.decide(np.zeros((3000, 0)), coins)
        contributions = policy.contribute(np.zeros((3000, 0)), coins, decisions, means[decisions.arms])
        release = policy.terms.mechanism.simulate(contributions, rng)
        posterior = learner.learn(start, policy.with_decision_policies([(first, 1.0)]), release).posterior
        is_asked = choice.shares[0] > 0
        assert (posterior.precision > 0).tolist() == is_asked.tolist()
        assert np.abs(posterior.means - means)[is_asked].max() < 0.05
