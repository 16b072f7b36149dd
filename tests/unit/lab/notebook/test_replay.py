"""Replay of logged rows, and the sizes that every trust model needs."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from privateer_core.errors import InputError, PrivateerError, SpecError
from privateer_core.privacy.trust import TRUST
from privateer_lab.simulation.simulate import simulate_once
from tests.support.statistics import FALSE_ALARM, same_law

SPEC = "examples/peaks-local.toml"
ARMS = ["left", "middle", "right"]


def spec(people: int) -> Any:
    return lab.spec(SPEC, {"experiment.round_size": 500, "privacy.epsilon": 4.0}, users=people)


def log(rows: int, seed: int) -> dict[str, Any]:
    """People of the spec's own population, with arms at random."""
    from privateer_core.policies.policy import Arms
    from privateer_lab.environments import environment_for

    rng = np.random.default_rng([41, seed])
    environment = environment_for(spec(2000), seed)
    contexts, arms = environment.contexts(0, rows, rng), rng.integers(0, 3, rows)
    rewards = environment.rewards(contexts, Arms(arms), rng)
    return {"x1": contexts[:, 0], "x2": contexts[:, 1], "arm": np.array(ARMS)[arms], "reward": rewards}


def test_a_replay_earns_what_a_simulation_does() -> None:
    """Mean rewards of runs have one law; the false-alarm rate is that of `same_law`. The planted defect: other rows."""
    assert FALSE_ALARM <= 1e-6
    simulated = [simulate_once(spec(2000), seed).reward for seed in range(20)]
    replays = [lab.replay(log(8000, seed), spec(2000), seed=seed) for seed in range(20)]
    replayed, all_rows = [replay.reward.value for replay in replays], [replay.logged.value for replay in replays]
    assert same_law(np.array(simulated)[:, None], np.array(replayed)[:, None])
    assert not same_law(np.array(simulated)[:, None], np.array(all_rows)[:, None])


def test_a_replay_learns_and_says_what_it_used() -> None:
    replayed = lab.replay(log(30_000, 1), spec(8000))
    assert replayed.people == 8000
    assert sum(row["rows"] for row in replayed.rows()) == replayed.rows_used
    assert replayed.rows_used == pytest.approx(24_000, rel=0.05)
    assert replayed.reward.low > replayed.logged.high
    assert replayed.policy.shares({"x1": [0.05, 0.95], "x2": [0.5, 0.5]}).argmax(axis=1).tolist() == [0, 2]
    assert replayed.rows()[-1]["reward"] > replayed.rows()[0]["reward"]


def test_a_log_that_ends_early_is_said() -> None:
    replayed = lab.replay(log(4000, 2), spec(8000))
    assert replayed.people == 1000
    assert "set users=1000" in replayed.warnings[0]


def effects(seed: int) -> list[bool]:
    """Return whether each effect's confidence interval contains the truth after a replay in segments."""
    rng, rows = np.random.default_rng([3, seed]), 9000
    log = {"group": rng.choice(list("abcd"), rows), "arm": rng.choice(["control", "gentle", "bold"], rows)}
    log["reward"] = (rng.random(rows) < 0.3 + 0.3 * (log["arm"] == "bold")).astype(float)
    result = lab.replay(
        log, lab.spec("examples/trial.toml", {"experiment.round_size": 2500}, users=2500), seed=seed
    ).result
    assert result is not None
    rows_of = [row for row in result.rows() if row["effect"] is not None]
    return [row["low"] <= 0.3 * (row["arm"] == "bold") <= row["high"] for row in rows_of]


def test_confidence_intervals_of_a_replay_contain_the_truth() -> None:
    """Of 80 intervals of 95 % fewer than 68 hold by chance once in a thousand."""
    is_covered = [effect for seed in range(10) for effect in effects(seed)]
    assert len(is_covered) > 60
    assert np.mean(is_covered) >= 0.85


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"arm": np.where(np.arange(6000) < 3000, "left", "right")}, "arm: has arms that were not chosen uniformly"),
        ({"arm": np.repeat(ARMS, 2000), "x1": np.repeat([0.1, 0.5, 0.9], 2000)}, "too frequent for some people"),
        ({"reward": np.full(6000, np.nan)}, "arm and reward: has no row with a value"),
        ({"x2": ["a"] * 6000}, "row 1, column 'x2' of the frame is not a number"),
        ({"arm": ["left"] * 5999 + ["up"]}, "arm: row 5,999, .* not one of left, middle, right"),
    ],
)
def test_a_log_that_cannot_be_replayed_is_refused(change: dict[str, Any], error: str) -> None:
    with pytest.raises(PrivateerError, match=error):
        lab.replay({**log(6000, 0), **change}, spec(2000))


def test_propensities_must_be_even() -> None:
    with pytest.raises(InputError, match=r"p: must be 1 / 3 in every row.*lab.evaluate"):
        lab.replay({**log(6000, 0), "p": np.full(6000, 0.5)}, spec(2000), propensity="p")
    with pytest.raises(InputError, match="table: has too few rows"):
        lab.replay(log(600, 0), spec(2000))
    with pytest.raises(SpecError, match="an arm for each person"):
        lab.replay(log(600, 0), "examples/convex-one-point.toml")


def test_every_trust_model_has_a_row() -> None:
    table = lab.detectable(people=40_000, epsilon=[1, 4])
    served = [row for row in TRUST.values() if row.is_served]
    promised = sum(row.promises for row in served)
    assert len(table) == 2 * promised + len(served) - promised
    by = {(row["model"], row["epsilon"]): row["least effect"] for row in table.rows()}
    assert by["none", None] < by["central", 1.0] < by["shuffle", 1.0] < by["local", 1.0]
    assert by["local", 4.0] < by["local", 1.0]


def test_one_look_without_privacy_is_the_textbooks() -> None:
    """Two proportions, one look: (z_.975 + z_.8) sqrt(2 p q / (n / 2))."""
    (row,) = lab.detectable(people=10_000, trust="none", looks=1, rate=0.5).rows()
    plain = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * np.sqrt(2 * 0.5 * 0.5 / 5000)
    assert row["least effect"] == pytest.approx(plain, rel=2e-3)
    (size,) = lab.sample_size(plain, trust="none", looks=1, rate=0.5).rows()
    assert size["people"] == pytest.approx(10_000, rel=5e-3)


@pytest.mark.parametrize("model", [name for name, row in TRUST.items() if row.promises])
def test_people_and_effects_agree(model: str) -> None:
    (row,) = lab.sample_size(0.03, trust=model, epsilon=0.8).rows()

    def least_effect(people: int) -> float:
        return float(lab.detectable(people=people, trust=model, epsilon=0.8).rows()[0]["least effect"])

    assert least_effect(row["people"]) == pytest.approx(0.03, rel=5e-3)
    assert least_effect(row["people"] * 9 // 10) > 0.03


def test_notebook_and_plan_have_the_same_figures() -> None:
    """`plan` has the same figures in its tables."""
    plan = lab.plan("examples/trial.toml", trust=["local"], epsilon=[1], users=20_000, seeds=1)
    notebook_table = lab.detectable("examples/trial.toml", trust="local", epsilon=1, people=20_000)
    planned = {row["segment"]: row["least effect"] for row in plan.foreseen.rows()}
    assert {row["segment"]: row["least effect"] for row in notebook_table.rows()} == planned


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"people": 0}, "people: must be a whole number"),
        ({"trust": "magic"}, "trust: must be trust models"),
        ({"epsilon": 99}, "epsilon: must be numbers above 0"),
        ({"arms": 1}, "arms: must be 2 to 16"),
        ({"tails": 2}, "tails: is no part of a plain test"),
        ({"spec": "examples/trial.toml", "rate": 0.2}, "rate: must not be given beside a spec"),
        ({"spec": "examples/peaks-local.toml"}, "foresees no effects"),
    ],
)
def test_a_malformed_plan_is_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=error):
        lab.detectable(**arguments)


def test_a_promise_that_is_not_possible_is_left_out() -> None:
    table = lab.detectable(people=500, epsilon=1)
    assert {row["model"] for row in table.rows()} == {"local", "central", "none"}
    assert "min_batch" in table.notes[0] or "round_size" in table.notes[0]
