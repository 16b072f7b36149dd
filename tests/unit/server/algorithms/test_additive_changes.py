"""Additive bandits that change: arms that come and go, and evidence that fades."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.feature_products import sum_information
from privateer_server.experiments.spec_changes import add_arm, retire_arm
from privateer_server.rounds.schedule import Schedule, Step
from tests.unit.algorithms.test_additive import spec_of
from tests.unit.server.algorithms import test_additive_levels as levels_first
from tests.unit.server.algorithms.test_additive_learner import play

FAR = 5.0
"""Standard errors that a right mean is beyond once in 1.7 million times."""
BATCH = 4000
LEVELS = np.array([0.15, 0.2, 0.25, 0.3])
"""Mean rewards of arms, by which the first feature adds a tenth, or takes it: up for even arms, down for odd ones."""
PROMISES = ("central", "shuffle", "local-4", "local-2")


def spec_under(promise: str, batch: int = BATCH) -> Any:
    """Return a spec with reports within an hour; the name has the model, and an epsilon that is not the default."""
    model, _, epsilon = promise.partition("-")
    sizes = {"round_size": batch, "min_round_fraction": 0.0, "horizon": 200_000, "conversion_window_seconds": 3600.0}
    return spec_of(model, privacy={"epsilon": float(epsilon)} if epsilon else {}, experiment=sizes)


def released(spec: Any, step: Step, deciders: list[Any], rng: np.random.Generator) -> Any:
    """A round's release, of which as many people chose by each of these policies."""
    policy, parts = step.policy, []
    for decider in deciders:
        people = step.batch_size // len(deciders)
        contexts = rng.random((people, spec.dimension)).round(3)
        contexts[:, 1] = 0.0  # everybody has the first number
        coins = rng.integers(0, 2**32, people, dtype=np.uint32)
        arms = decider.decide(contexts, coins).arms
        high = (contexts[:, 0] > 0.5) == (arms % 2 == 0)
        rewards = (rng.random(people) < LEVELS[arms] + np.where(high, 0.1, -0.1)).astype(float)
        report_coins = rng.integers(0, 2**32, people, dtype=np.uint32) if policy.has_fresh_coins else coins
        parts.append((contexts, report_coins, arms, rewards))
    contexts, report_coins, arms, rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
    reports = policy.contribute(contexts, report_coins, Arms(arms), rewards)
    return policy.terms.mechanism.simulate(reports, rng)


def close_rounds(spec: Any, step: Step, rounds: int, rng: np.random.Generator) -> Iterator[Step]:
    """Yield the steps after each of so many rounds of people who report at once."""
    schedule = Schedule(spec)
    for _ in range(rounds):
        step = schedule.advance(step, released(spec, step, [step.policy], rng), int(rng.integers(2**62)))
        yield step


def apply_change(spec: Any, change: Any, step: Step, rng: np.random.Generator) -> tuple[Any, Step]:
    """The spec after a change, and the step in which half of the people chose before it."""
    after = change(spec)
    schedule = Schedule(after)
    state = schedule.learner.apply_spec_change(step.state, spec)
    first = schedule.open_next_step(state, step.policy.version + 1, int(rng.integers(2**62)))
    deciders = [step.policy, first.policy]
    release = released(after, first, deciders, rng)
    assert release.reports == first.batch_size
    return after, schedule.advance(first, release, 9, decided=[(decider, 0.5) for decider in deciders])


def add_third_arm(spec: Any) -> Any:
    return add_arm(spec, "one more")


def retire_first_arm(spec: Any) -> Any:
    return retire_arm(spec, "a")


def estimate_levels(spec: Any, state: Any) -> tuple[Any, Any]:
    """Expected rewards of every arm for everybody, and their deviations, (arms,)."""
    learner: Any = learner_for(spec)
    posterior, masses = learner.posterior(state), state.masses.means(learner.cells)
    return posterior.means @ masses, np.sqrt(np.einsum("i,kij,j->k", masses, posterior.covariances, masses))


@pytest.mark.parametrize("change", [add_third_arm, retire_first_arm])
@pytest.mark.parametrize("promise", PROMISES)
def test_a_change_keeps_the_posterior_and_counts_earlier_choices(promise: str, change: Any) -> None:
    spec, rng = spec_under(promise), np.random.default_rng(4)
    *_, before = close_rounds(spec, Schedule(spec).open(1), 4, rng)
    learner: Any = learner_for(spec)
    later: Any = learner_for(change(spec))
    old = learner.posterior(before.state)
    new = later.posterior(later.apply_spec_change(before.state, spec))
    assert np.allclose(new.means[:3, 1:], old.means[:, 1:], atol=0.02)
    after, step = apply_change(spec, change, before, rng)
    step.policy.check(after)
    assert step.state.reported == before.state.reported + BATCH
    levels, deviations = estimate_levels(after, step.state)
    arms = slice(1, None) if change is retire_first_arm else slice(None)
    assert (np.abs(levels - LEVELS[: len(levels)])[arms] < FAR * deviations[arms]).all()


@pytest.mark.parametrize("change", [add_third_arm, retire_first_arm])
def test_coins_moved_by_a_change_do_not_count_for_levels(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have an arm by coins, and half had another arm before. Planted: their reports count all the same."""
    spec = spec_under("local-3.5", 20_000)

    def count_deviations() -> Any:
        """Return how many deviations levels are off, after a round with late reports and one without."""
        rng = np.random.default_rng(5)
        after, step = apply_change(spec, change, Schedule(spec).open(1), rng)
        step = Schedule(after).advance(step, released(after, step, [step.policy], rng), 10)
        levels, deviations = estimate_levels(after, step.state)
        arms = slice(1, None) if change is retire_first_arm else slice(None)
        assert deviations[arms].max() < 0.06
        return np.abs((levels - LEVELS[: len(levels)]) / deviations)[arms]

    assert count_deviations().max() < FAR
    monkeypatch.setattr(CoinArms, "gives_same_arms_as", lambda *_: True)
    assert count_deviations().max() > FAR


HALF_LIFE = 4000
MODELS = ["none", "central", "shuffle", "local"]


def with_memory(learner: Any, half_life: float = HALF_LIFE) -> Any:
    """The learner of the same spec with a memory."""
    spec = learner.spec
    return learner_for(spec_of_memory(spec, half_life))


def spec_of_memory(spec: Any, half_life: float) -> Any:
    section = spec.algorithm.model_copy(update={"half_life": float(half_life)})
    return spec.model_copy(update={"algorithm": section})


def learn_alone(observed_round: Any, questions: Any, masses: Any) -> Any:
    """The information (arms, terms, terms) of one round."""
    [information] = sum_information(questions, [observed_round.statistics(questions, masses)[0]], np.ones((1, 1)))
    return information


@pytest.mark.parametrize("model", MODELS[1:])
def test_a_round_counts_half_after_a_half_life(model: str) -> None:
    """Whether its evidence is read again or not; planted: nothing fades."""
    *_, (learner, state, policy, release, _) = play(model, 4)
    fading = with_memory(learner)
    unfaded, faded = (version.learn(state, policy, release) for version in (learner, fading))
    masses, expected = unfaded.masses.means(learner.cells), 0.0
    people = [past_round.people for past_round in unfaded.rounds]
    for place, past_round in enumerate(unfaded.rounds):
        weight = 0.5 ** (sum(people[place + 1 :]) / HALF_LIFE)
        expected = expected + weight * learn_alone(past_round, learner.questions, masses)
    assert 0.5 ** (sum(people[1:]) / HALF_LIFE) < 0.9
    assert np.allclose(fading.statistics(faded)[0], expected)
    assert np.allclose(fading.statistics(fading._fold_rounds(faded, 0))[0], expected), "whichever rounds are kept"
    assert not np.allclose(learner.statistics(unfaded)[0], expected)


def test_rounds_that_are_counted_exactly_are_not_kept() -> None:
    *_, (learner, state, policy, release, _) = play("none", 3)
    after, kept = learner.learn(state, policy, release), learner._by_round(state)
    assert (after.rounds, kept) == ((), [])
    fading = with_memory(learner)
    added = after.discounted.endless.information - state.discounted.endless.information
    faded = fading.learn(state, policy, release).discounted.current.information - added
    assert np.allclose(faded, 0.5 ** (release.reports / HALF_LIFE) * state.discounted.endless.information)


def test_evidence_that_is_not_kept_by_round_fades_too() -> None:
    *_, (learner, state, policy, release, _) = play("central", 3)
    fading, folded = with_memory(learner), learner._fold_rounds(state, 0)
    before = folded.discounted.current.information
    after = fading.learn(folded, policy, release)
    latest = learn_alone(after.rounds[0], fading.questions, after.masses.means(fading.cells))
    old_evidence = fading.statistics(after)[0] - latest
    assert np.allclose(old_evidence, 0.5 ** (release.reports / HALF_LIFE) * before)


def test_levels_and_features_fade_where_levels_come_first() -> None:
    *_, (learner, state, policy, release, _) = levels_first.play(3)
    fading = with_memory(learner)
    weight = 0.5 ** (release.reports / HALF_LIFE)
    unfaded, faded = (version.learn(state, policy, release) for version in (learner, fading))
    has_all, old_all, now_all = (each.discounted.current for each in (unfaded, state, faded))
    for has, old, now in (
        (has_all.information, old_all.information, now_all.information),
        (has_all.scores, old_all.scores, now_all.scores),
        (has_all.levels.information, old_all.levels.information, now_all.levels.information),
        (has_all.levels.scores, old_all.levels.scores, now_all.levels.scores),
    ):
        assert np.allclose(now, has - (1 - weight) * old)
        assert np.abs(now - has).max() > 0
    assert np.allclose(faded.masses.information, unfaded.masses.information), "shares of people do not fade"


def test_levels_of_long_features_fade() -> None:
    context = {"features": {"town": {"levels": list(range(70))}, "x": {"low": 0.0, "high": 1.0}}}
    spec = spec_of("central", context=context)
    learner, rng = learner_for(spec), np.random.default_rng(1)
    step = learner.open_next_round(learner.start(1), 1, 1)
    contexts, coins = (
        rng.random((step.batch_size, spec.dimension)),
        rng.integers(0, 2**32, step.batch_size, dtype=np.uint32),
    )
    contributions = step.policy.contribute(
        contexts, coins, step.policy.decide(contexts, coins), rng.random(step.batch_size)
    )
    release = step.policy.terms.mechanism.simulate(contributions, rng)
    state = learner.learn(learner.start(1), step.policy, release)
    unfaded, faded = (version.learn(state, step.policy, release) for version in (learner, with_memory(learner)))
    weight = 0.5 ** (step.batch_size / HALF_LIFE)
    has, old, now = (each.discounted.current.levels.information for each in (unfaded, state, faded))
    assert np.allclose(now, has - (1 - weight) * old)
    assert np.allclose(faded.level_counts.counted, unfaded.level_counts.counted)


def test_the_share_of_arms_by_coins_follows_the_memory() -> None:
    """For good: without a memory to fewer and fewer."""
    spec = spec_of("local", privacy={"epsilon": 1.0})
    for variant, min_share in ((spec, 0.03), (spec_of_memory(spec, HALF_LIFE), 1000 * np.log(2) / HALF_LIFE)):
        learner = learner_for(variant)
        states = [replace(learner.start(1), reported=people) for people in (500, 2000, 5000, 10_000, 19_000)]
        policies: list[Any] = [learner.open_next_round(state, 2, 7).policy for state in states]
        shares = [policy.plan.given / UNIT for policy in policies]
        assert shares == sorted(shares, reverse=True), "nobody has another arm by coins of an earlier round"
        assert shares[-1] == pytest.approx(max(min_share, 1000 / 19_000), abs=1e-4)


def test_rounds_have_equal_sizes_by_default_where_evidence_fades() -> None:
    assert spec_of("central", algorithm={"half_life": 4000}).experiment.min_round_fraction == 0
    assert spec_of("central", algorithm={"half_life": "none"}).experiment.min_round_fraction == 0.3
    grown = spec_of("central", algorithm={"half_life": 4000}, experiment={"min_round_fraction": 0.3})
    (warning,) = [concern for concern in grown.concerns() if "algorithm.half_life" in concern]
    assert "so that none has more than 2,000" in warning


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (0, "must be a number of people from 1 on"),
        (True, "must be a number of people from 1 on"),
        ("always", 'or "none"'),
        (float("nan"), "must be a number of people from 1 on"),
        (900, r"must be at least experiment\.round_size, 1,000, not 900"),
    ],
)
def test_impossible_half_lives_are_refused(memory: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        spec_of("central", algorithm={"half_life": memory})
    assert refused.value.field == "algorithm.half_life"
    assert refused.value.remedy
