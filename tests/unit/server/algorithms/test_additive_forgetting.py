"""Additive bandits with a half-life: the evidence that remains under both learners, and refused specs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import learner_for
from tests.unit.algorithms.test_additive import spec_of
from tests.unit.server.algorithms import test_levels_first as levels_first
from tests.unit.server.algorithms.test_additive_learner import play

HALF_LIFE = 4000
MODELS = ["none", "central", "shuffle", "local"]


def with_memory(learner: Any, half_life: float = HALF_LIFE) -> Any:
    """The learner of the same spec with a memory."""
    spec = learner.spec
    return learner_for(spec_of_memory(spec, half_life))


def spec_of_memory(spec: Any, half_life: float) -> Any:
    section = spec.algorithm.model_copy(update={"half_life": float(half_life)})
    return spec.model_copy(update={"algorithm": section})


@pytest.mark.parametrize("model", MODELS)
def test_a_round_counts_half_after_a_half_life(model: str) -> None:
    """Whether its evidence is read again or not; planted: nothing fades."""
    *_, (learner, state, policy, release, _) = play(model, 4)
    fading = with_memory(learner)
    unfaded, faded = (version.learn(state, policy, release) for version in (learner, fading))
    masses, expected = unfaded.masses.means(learner.cells), 0.0
    people = [past_round.people for past_round in unfaded.rounds]
    for place, past_round in enumerate(unfaded.rounds):
        weight = 0.5 ** (sum(people[place + 1 :]) / HALF_LIFE)
        expected = expected + weight * past_round.statistics(learner.questions, masses)[0]
    assert 0.5 ** (sum(people[1:]) / HALF_LIFE) < 0.9
    assert np.allclose(fading.statistics(faded)[0], expected)
    assert np.allclose(fading.statistics(fading._fold_rounds(faded, 0))[0], expected), "whichever rounds are kept"
    assert not np.allclose(learner.statistics(unfaded)[0], expected)


def test_evidence_that_is_not_kept_by_round_fades_too() -> None:
    *_, (learner, state, policy, release, _) = play("central", 3)
    fading, folded = with_memory(learner), learner._fold_rounds(state, 0)
    before = folded.information
    after = fading.learn(folded, policy, release)
    latest = after.rounds[0].statistics(fading.questions, after.masses.means(fading.cells))[0]
    old_evidence = fading.statistics(after)[0] - latest
    assert np.allclose(old_evidence, 0.5 ** (release.reports / HALF_LIFE) * before)


def test_levels_and_features_fade_where_levels_come_first() -> None:
    *_, (learner, state, policy, release, _) = levels_first.play(3)
    fading = with_memory(learner)
    weight = 0.5 ** (release.reports / HALF_LIFE)
    unfaded, faded = (version.learn(state, policy, release) for version in (learner, fading))
    for has, old, now in (
        (unfaded.information, state.information, faded.information),
        (unfaded.scores, state.scores, faded.scores),
        (unfaded.levels.information, state.levels.information, faded.levels.information),
        (unfaded.levels.scores, state.levels.scores, faded.levels.scores),
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
    unfaded, faded = (version.learn(state, step.policy, release).levels for version in (learner, with_memory(learner)))
    weight = 0.5 ** (step.batch_size / HALF_LIFE)
    assert np.allclose(faded.information, unfaded.information - (1 - weight) * state.levels.information)
    assert np.allclose(faded.counted, unfaded.counted)


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
        ("auto", 'or "none"'),
        (float("nan"), "must be a number of people from 1 on"),
        (900, r"must be at least experiment\.round_size, 1,000, not 900"),
    ],
)
def test_impossible_half_lives_are_refused(memory: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        spec_of("central", algorithm={"half_life": memory})
    assert refused.value.field == "algorithm.half_life"
    assert refused.value.remedy
