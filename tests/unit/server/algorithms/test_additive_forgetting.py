"""Additive bandits that forget: what is left of evidence, under both learners, and what specs refuse."""

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


def forgetful(learner: Any, half_life: float = HALF_LIFE) -> Any:
    """The learner of the same spec with a memory."""
    spec = learner.spec
    return learner_for(spec_of_memory(spec, half_life))


def spec_of_memory(spec: Any, half_life: float) -> Any:
    section = spec.algorithm.model_copy(update={"memory": float(half_life)})
    return spec.model_copy(update={"algorithm": section})


@pytest.mark.parametrize("model", MODELS)
def test_a_round_counts_half_after_a_half_life(model: str) -> None:
    """Whether its evidence is read again or not; planted: nothing fades."""
    *_, (learner, state, policy, release, _) = play(model, 4)
    fading = forgetful(learner)
    kept, faded = (one.learn(state, policy, release) for one in (learner, fading))
    masses, expected = kept.masses.means(learner.cells), 0.0
    people = [one.people for one in kept.rounds]
    for place, one in enumerate(kept.rounds):
        left = 0.5 ** (sum(people[place + 1 :]) / HALF_LIFE)
        expected = expected + left * one.statistics(learner.questions, masses)[0]
    assert 0.5 ** (sum(people[1:]) / HALF_LIFE) < 0.9
    assert np.allclose(fading.statistics(faded)[0], expected)
    assert np.allclose(fading.statistics(fading._folded(faded, 0))[0], expected), "whichever rounds are kept"
    assert not np.allclose(learner.statistics(kept)[0], expected)


def test_evidence_that_is_not_kept_by_round_fades_too() -> None:
    *_, (learner, state, policy, release, _) = play("central", 3)
    fading, folded = forgetful(learner), learner._folded(state, 0)
    before = folded.information
    after = fading.learn(folded, policy, release)
    latest = after.rounds[0].statistics(fading.questions, after.masses.means(fading.cells))[0]
    told = fading.statistics(after)[0] - latest
    assert np.allclose(told, 0.5 ** (release.reports / HALF_LIFE) * before)


def test_levels_and_features_fade_where_levels_come_first() -> None:
    *_, (learner, state, policy, release, _) = levels_first.play(3)
    fading = forgetful(learner)
    left = 0.5 ** (release.reports / HALF_LIFE)
    kept, faded = (one.learn(state, policy, release) for one in (learner, fading))
    for has, old, now in (
        (kept.information, state.information, faded.information),
        (kept.scores, state.scores, faded.scores),
        (kept.levels.information, state.levels.information, faded.levels.information),
        (kept.levels.scores, state.levels.scores, faded.levels.scores),
    ):
        assert np.allclose(now, has - (1 - left) * old)
        assert np.abs(now - has).max() > 0
    assert np.allclose(faded.masses.information, kept.masses.information), "shares of people do not fade"


def test_levels_of_long_features_fade() -> None:
    context = {"features": {"town": {"levels": list(range(70))}, "x": {"low": 0.0, "high": 1.0}}}
    spec = spec_of("central", context=context)
    learner, rng = learner_for(spec), np.random.default_rng(1)
    step = learner.next(learner.start(1), 1, 1)
    contexts, coins = rng.random((step.batch, spec.dimension)), rng.integers(0, 2**32, step.batch, dtype=np.uint32)
    made = step.policy.contribute(contexts, coins, step.policy.decide(contexts, coins), rng.random(step.batch))
    release = step.policy.terms.mechanism.simulate(made, rng)
    state = learner.learn(learner.start(1), step.policy, release)
    kept, faded = (one.learn(state, step.policy, release).levels for one in (learner, forgetful(learner)))
    left = 0.5 ** (step.batch / HALF_LIFE)
    assert np.allclose(faded.information, kept.information - (1 - left) * state.levels.information)
    assert np.allclose(faded.counted, kept.counted)


def test_coins_give_arms_to_as_many_as_the_memory_holds() -> None:
    """For good: without a memory to fewer and fewer."""
    spec = spec_of("local", privacy={"epsilon": 1.0})
    for found, least in ((spec, 0.03), (spec_of_memory(spec, HALF_LIFE), 1000 * np.log(2) / HALF_LIFE)):
        learner = learner_for(found)
        shares = [
            learner.next(replace(learner.start(1), reported=people), 2, 7).policy.plan.given / UNIT
            for people in (500, 2000, 5000, 10_000, 19_000)
        ]
        assert shares == sorted(shares, reverse=True), "nobody has another arm by coins of an earlier round"
        assert shares[-1] == pytest.approx(max(least, 1000 / 19_000), abs=1e-4)


def test_rounds_are_of_one_size_by_default_where_evidence_fades() -> None:
    assert spec_of("central", algorithm={"memory": 4000}).experiment.round_growth == 0
    assert spec_of("central", algorithm={"memory": "none"}).experiment.round_growth == 0.3
    grown = spec_of("central", algorithm={"memory": 4000}, experiment={"round_growth": 0.3})
    (said,) = [one for one in grown.concerns() if "algorithm.memory" in one]
    assert "so that none has more than 2,000" in said


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (0, "must be a number of people from 1 on"),
        (True, "must be a number of people from 1 on"),
        ("auto", 'or "none"'),
        (float("nan"), "must be a number of people from 1 on"),
        (900, r"must be at least experiment\.round_size, 1,000, not 900"),
    ],
)
def test_memories_that_cannot_be_are_refused(memory: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said) as refused:
        spec_of("central", algorithm={"memory": memory})
    assert refused.value.field == "algorithm.memory"
    assert refused.value.remedy
