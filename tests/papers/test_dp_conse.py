"""ConSE and DP-ConSE as a spec runs them: epochs, eliminations, coins and publications."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.primitives.contributions import CellHits
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_4.dp_conse import BOTH_ARMS, DpConseLearner, DpConseSpec
from privateer_papers.paper_4.frontier import play_published
from privateer_server.algorithms import learner_for
from tests.support.people import rounds


def spec_of(model: str = "central", people: int = 20_000, bins: int = 4, **changes: Any) -> DpConseSpec:
    promise = {"epsilon": 1.0, "delta": 1 / people} if model == "central" else {}
    data: dict[str, Any] = {
        "experiment": {"name": "theirs", "arms": ["a", "b"], "horizon": people, "round_size": people // 10},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "segments": {"features": ["x"], "bins": bins},
        "privacy": {"model": model, **promise},
        "algorithm": {"name": "paper-4-dp-conse"},
        "population": {"name": "effects", "base": 0.5, "curve": {"along": "x", "height": 0.3}},
    }
    for field, value in changes.items():
        section, key = field.split("__")
        data[section] = data[section] | {key: value}
    return DpConseSpec.model_validate(data)


def release(policy: Any, cells: list[list[float]], people: int) -> CellHits:
    """All of each bin's people were treated or not, (bins, 2), and the treated alone earned 1."""
    hits = np.array(cells, np.float64)
    positive = hits * np.array([0.0, 1.0])
    return CellHits(people, positive.reshape(-1, 1), hits.reshape(-1, 1), np.full((hits.size, 1), people), 1.0, 0.0)


def test_epochs_end_with_their_people_and_eliminate_the_worse_arm() -> None:
    spec = spec_of("none", 100_000, bins=4)
    assert isinstance(learner_for(spec), DpConseLearner)
    learner: Any = DpConseLearner(spec)
    state, sums, length = learner.start(3), [[1.0, 1.0]] * 4, learner.numbers.epoch_length(1)
    step = learner.open_next_round(state, 1, 3)
    state = learner.learn(step.state, step.policy, release(step.policy, sums, 8))
    assert state.epochs.tolist() == [1] * 4
    assert state.lengths.tolist() == [int(length)] * 4
    nearly = [[length / 2, length / 2 - 2], *[[length, length]] * 3]
    state = learner.learn(state, step.policy, release(step.policy, nearly, 30_000))
    assert state.epochs.tolist() == [1, 2, 2, 2]
    assert state.arms.tolist() == [BOTH_ARMS, 1, 1, 1]
    assert learner.open_next_round(state, 3, 3).policy.choice.shares.tolist() == [[0.5, 0.5], *[[0.0, 1.0]] * 3]


def test_in_the_second_half_wide_bins_flip_their_coins_and_then_follow_the_remaining_arm() -> None:
    learner: Any = DpConseLearner(spec_of(bins=64))
    assert learner.wide == 16
    state = replace(learner.start(3), reported=10_000, arms=np.ones(64, np.int64))
    state = replace(learner._begin_second_half(state, np.random.default_rng(0)), reported=10_000)
    assert abs(state.lengths - learner.numbers.coins).max() < 20
    open_ = learner.open_next_round(state, 1, 3)
    assert (open_.policy.choice.shares == 0.5).all()
    cells = [[60.0, 60.0]] * 4 + [[0.0, 0.0]] * 60
    after = learner.open_next_round(learner.learn(state, open_.policy, release(open_.policy, cells, 2_000)), 2, 3)
    assert (after.policy.choice.shares[:4] == [0.0, 1.0]).all()
    assert (after.policy.choice.shares[4:] == 0.5).all()


def test_nothing_is_published_before_the_end() -> None:
    spec = spec_of()
    learner, turns = learner_for(spec), list(rounds(spec))
    assert [not learner.answer(turn.state).says_something for turn in turns] == [True] * 9 + [False]
    answer = learner.answer(turns[-1].state)
    assert answer.estimates == ()
    assert len(answer.parts[0].rows) == 4


def test_the_curator_adds_noise_of_the_stated_scale() -> None:
    """The same people, many seeds: 2/(epsilon T_j) around the difference of means, which is 1 here."""
    learner = DpConseLearner(spec_of(bins=64))
    state = replace(learner.start(0), reported=19_000, lengths=np.full(16, 81), won=np.tile([0.0, 40.0], (16, 1)))
    state = replace(state, played=np.full((16, 2), 40.0))
    effects = np.concatenate([learner._effects(state, np.random.default_rng(seed)) for seed in range(250)])
    assert effects.mean() == pytest.approx(1.0, abs=0.003)
    assert np.abs(effects - 1).mean() == pytest.approx(2 / 81, rel=0.07)  # four standard errors of 4,000 draws


@pytest.mark.nightly
def test_regret_is_that_of_people_drawn_one_by_one() -> None:
    """Rounds of 200 people end epochs late by a few: both are two implementations of one algorithm."""
    spec = spec_of("none", 400_000, bins=64, experiment__round_size=200)
    run = simulate_once(spec, 1)
    exact = np.mean([play_published(400_000, 1 / 3, None, "algorithm", seed)[0] for seed in range(4)])
    assert run.regret / run.uniform_regret == pytest.approx(exact, rel=0.15)


def test_the_proofs_width_eliminates_earlier() -> None:
    long, short = (DpConseLearner(spec_of(algorithm__width=width)).numbers for width in ("algorithm", "appendix"))
    assert short.elimination_margin(2) < long.elimination_margin(2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithm__looks": 4}, "algorithm.looks"),
        ({"algorithm__allocation": "fixed"}, "algorithm.allocation"),
        ({"experiment__arms": ["a", "b", "c"]}, "experiment.arms"),
        ({"segments__bins": None}, "segments.bins"),
        ({"privacy__delta": 1e-9}, "privacy.delta"),
        ({"experiment__round_size": 1}, "experiment.round_size"),
        ({"privacy__model": "local"}, "privacy.model"),
    ],
)
def test_what_the_paper_does_not_have_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        learner_for(spec_of(**changes)).start(1)
    assert refused.value.field == field
    assert refused.value.remedy
