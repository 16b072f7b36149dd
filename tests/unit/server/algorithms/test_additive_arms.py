"""Arms that are added to additive bandits, or retired, while people report late: what is kept, counted and believed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.policies.decisions import Arms
from privateer_server.algorithms import learner_for
from privateer_server.experiments.spec_changes import with_arm, without_arm
from privateer_server.rounds.loop import Schedule, Step
from tests.unit.algorithms.test_additive import spec_of

FAR = 5.0
"""Standard errors that a right mean is beyond once in 1.7 million times."""
BATCH = 4000
LEVELS = np.array([0.15, 0.2, 0.25, 0.3])
"""Mean rewards of arms, by which the first feature adds a tenth, or takes it: up for even arms, down for odd ones."""
PROMISES = ("central", "shuffle", "local-4", "local-2")


def spec_under(promise: str, batch: int = BATCH) -> Any:
    """A spec whose people report within an hour; after the model comes its epsilon, if it is not the usual one."""
    model, _, epsilon = promise.partition("-")
    sizes = {"round_size": batch, "round_growth": 0.0, "horizon": 200_000, "conversion_window": 3600.0}
    return spec_of(model, privacy={"epsilon": float(epsilon)} if epsilon else {}, experiment=sizes)


def released(spec: Any, step: Step, deciders: list[Any], rng: np.random.Generator) -> Any:
    """A round's release, of which as many people chose by each of these policies."""
    policy, parts = step.policy, []
    for decider in deciders:
        people = step.batch // len(deciders)
        contexts = rng.random((people, spec.dimension)).round(3)
        contexts[:, 1] = 0.0  # everybody has the first number
        coins = rng.integers(0, 2**32, people, dtype=np.uint32)
        arms = decider.decide(contexts, coins).arms
        high = (contexts[:, 0] > 0.5) == (arms % 2 == 0)
        rewards = (rng.random(people) < LEVELS[arms] + np.where(high, 0.1, -0.1)).astype(float)
        told = rng.integers(0, 2**32, people, dtype=np.uint32) if policy.fresh_coins else coins
        parts.append((contexts, told, arms, rewards))
    contexts, told, arms, rewards = (np.concatenate(one) for one in zip(*parts, strict=True))
    made = policy.contribute(contexts, told, Arms(arms), rewards)
    return policy.terms.mechanism.simulate(made, rng)


def played(spec: Any, step: Step, rounds: int, rng: np.random.Generator) -> Iterator[Step]:
    """Yield the steps after each of so many rounds of people who report at once."""
    schedule = Schedule(spec)
    for _ in range(rounds):
        step = schedule.close(step, released(spec, step, [step.policy], rng), int(rng.integers(2**62)))
        yield step


def changed(spec: Any, change: Any, step: Step, rng: np.random.Generator) -> tuple[Any, Step]:
    """The spec after a change, and the step in which half of the people chose before it."""
    after = change(spec)
    schedule = Schedule(after)
    state = schedule.learner.changed(step.state, spec)
    first = schedule.follow(state, step.policy.version + 1, int(rng.integers(2**62)))
    deciders = [step.policy, first.policy]
    release = released(after, first, deciders, rng)
    assert release.reports == first.batch
    return after, schedule.close(first, release, 9, decided=[(one, 0.5) for one in deciders])


def added(spec: Any) -> Any:
    return with_arm(spec, "one more")


def retired(spec: Any) -> Any:
    return without_arm(spec, "a")


def believed(spec: Any, state: Any) -> tuple[Any, Any]:
    """Expected rewards of every arm for everybody, and their deviations, (arms,)."""
    learner = learner_for(spec)
    known, masses = learner.posterior(state), state.masses.means(learner.cells)
    return known.means @ masses, np.sqrt(np.einsum("i,kij,j->k", masses, known.covariances, masses))


@pytest.mark.parametrize("change", [added, retired])
@pytest.mark.parametrize("promise", PROMISES)
def test_what_is_known_stays_and_who_chose_before_the_change_counts(promise: str, change: Any) -> None:
    spec, rng = spec_under(promise), np.random.default_rng(4)
    *_, before = played(spec, Schedule(spec).open(1), 4, rng)
    learner, later = learner_for(spec), learner_for(change(spec))
    known = learner.posterior(before.state)
    kept = later.posterior(later.changed(before.state, spec))
    assert np.allclose(kept.means[:3, 1:], known.means[:, 1:], atol=0.02)
    after, step = changed(spec, change, before, rng)
    step.policy.check(after)
    assert step.state.reported == before.state.reported + BATCH
    levels, deviations = believed(after, step.state)
    own = slice(1, None) if change is retired else slice(None)
    assert (np.abs(levels - LEVELS[: len(levels)])[own] < FAR * deviations[own]).all()


@pytest.mark.parametrize("change", [added, retired])
def test_arms_by_coins_that_a_change_has_moved_say_nothing_of_levels(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody has an arm by coins, and half had another one before. Planted: their reports count all the same."""
    spec = spec_under("local-3.5", 20_000)

    def off() -> Any:
        """Return how many deviations levels are off, after a round with late reports and one without."""
        rng = np.random.default_rng(5)
        after, step = changed(spec, change, Schedule(spec).open(1), rng)
        step = Schedule(after).close(step, released(after, step, [step.policy], rng), 10)
        levels, deviations = believed(after, step.state)
        own = slice(1, None) if change is retired else slice(None)
        assert deviations[own].max() < 0.06
        return np.abs((levels - LEVELS[: len(levels)]) / deviations)[own]

    assert off().max() < FAR
    monkeypatch.setattr(CoinArms, "agrees", lambda *_: True)
    assert off().max() > FAR
