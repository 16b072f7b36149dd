"""Arms that are added to additive bandits, or retired, while people report late: what is kept, counted and believed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.policies.policy import Arms
from privateer_server.algorithms import learner_for
from privateer_server.experiments.changes import add_arm, retire_arm
from privateer_server.rounds.loop import Schedule, Step
from tests.unit.algorithms.test_additive import spec_of

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
        report_coins = rng.integers(0, 2**32, people, dtype=np.uint32) if policy.fresh_coins else coins
        parts.append((contexts, report_coins, arms, rewards))
    contexts, report_coins, arms, rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
    reports = policy.contribute(contexts, report_coins, Arms(arms), rewards)
    return policy.terms.mechanism.simulate(reports, rng)


def close_rounds(spec: Any, step: Step, rounds: int, rng: np.random.Generator) -> Iterator[Step]:
    """Yield the steps after each of so many rounds of people who report at once."""
    schedule = Schedule(spec)
    for _ in range(rounds):
        step = schedule.close(step, released(spec, step, [step.policy], rng), int(rng.integers(2**62)))
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
    return after, schedule.close(first, release, 9, decided=[(decider, 0.5) for decider in deciders])


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
        step = Schedule(after).close(step, released(after, step, [step.policy], rng), 10)
        levels, deviations = estimate_levels(after, step.state)
        arms = slice(1, None) if change is retire_first_arm else slice(None)
        assert deviations[arms].max() < 0.06
        return np.abs((levels - LEVELS[: len(levels)]) / deviations)[arms]

    assert count_deviations().max() < FAR
    monkeypatch.setattr(CoinArms, "gives_same_arms_as", lambda *_: True)
    assert count_deviations().max() > FAR
