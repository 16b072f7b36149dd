"""Paper 5's instance, Section 7, in one process; docs/phased.md has the numbers that were measured."""

from typing import Any

import pytest

from privateer_lab.simulation.simulate import simulate_once, summarize
from privateer_papers.paper_5 import phased_regret
from privateer_papers.paper_5.phased_regret import (
    TABLE_1,
    compare_models,
    regret_curve,
    run_fixed_clients,
    section_7_spec,
)
from privateer_papers.reproduction import Effort, Rows

TARGETS = {
    ("none", None): 25_000,
    ("central", 1.0): 160_000,
    ("central", 5.0): 73_000,
    ("central", 10.0): 54_000,
    ("central", 15.0): 45_000,
    ("shuffle", 1.0): 165_000,
    ("shuffle", 5.0): 77_000,
    ("shuffle", 10.0): 58_000,
    ("shuffle", 15.0): 45_000,
}
ALONE = Effort(seeds=2, jobs=1)


def outcome(model: str, calibration: str = "tight", epsilon: float | None = 10.0, delta: float = 0.25, seeds: int = 3):
    spec = section_7_spec(model, calibration, epsilon, delta)
    return summarize(spec, [simulate_once(spec, seed) for seed in range(seeds)], 0.0)


@pytest.mark.parametrize(("model", "epsilon"), TARGETS, ids=str)
def test_regret_of_section_7(model, epsilon):
    figures = outcome(model, epsilon=epsilon)
    assert figures["regret_mean"] <= TARGETS[model, epsilon]
    assert figures["best_action_kept"] == 1.0
    assert figures["bits_mean"] <= 2e7
    assert figures["holds"] is (None if model == "none" else True)


def test_shuffle_is_central_and_local_is_far_above():
    rows = {model: outcome(model)["regret_mean"] for model in ("central", "shuffle", "local")}
    assert 0.8 * rows["central"] <= rows["shuffle"] <= 1.2 * rows["central"]
    assert rows["local"] >= 4 * rows["shuffle"]


@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0, 15.0])
def test_shuffle_is_within_a_tenth_of_central(epsilon):
    central, shuffle = (outcome(model, epsilon=epsilon, seeds=40)["regret_mean"] for model in ("central", "shuffle"))
    assert shuffle <= 1.10 * central


def test_published_calibrations():
    """The paper's shuffled bits do not learn; its normal noise does, and does not keep its promise."""
    central, shuffle = (outcome(model, "published") for model in ("central", "shuffle"))
    assert central["true_delta"] == pytest.approx(0.789, abs=0.001)
    assert not central["holds"]
    assert 280_000 <= central["regret_mean"] <= 430_000
    assert shuffle["regret_mean"] > 0.95 * shuffle["uniform_regret"]
    assert shuffle["true_delta"] < 1e-6
    assert shuffle["bits_mean"] > 1e8


def test_a_warning_is_given_of_a_delta_that_protects_no_participant():
    assert any("protects nobody" in words for words in outcome("central")["warnings"])
    honest = outcome("central", delta=1e-6)
    assert honest["warnings"] == []
    assert honest["true_delta"] <= 1e-6
    assert any("does not keep" in words for words in outcome("local", "published")["warnings"])


def test_growing_phases_learn_faster_than_equal_ones():
    """Figure 2(c): the same numbers sent, and at the end at least twice the regret."""
    runs_by_algorithm: dict[str, list[Any]] = {}
    for facts, run in run_fixed_clients(ALONE):
        runs_by_algorithm.setdefault(facts["algorithm"], []).append((facts["numbers_sent"], run.regret))
    growing, fixed = runs_by_algorithm.pop("DPE"), runs_by_algorithm.popitem()[1]
    assert sum(regret for _, regret in fixed) > 2 * sum(regret for _, regret in growing)
    assert fixed[0][0] == pytest.approx(growing[0][0], rel=0.15)


def test_rows_of_the_table_and_their_verdict():
    rows = Rows(TABLE_1.rows(ALONE))
    assert {row["delta"] for row in rows} == {None, 0.25, 1e-6}
    assert {(row["model"], row["calibration"]) for row in rows} == set(phased_regret.VARIANTS)
    assert all(row["true_delta"] is None for row in rows.where(model="none"))
    assert all(len(group) == 2 for group in rows.by("model", "calibration", "delta").values())
    sentences = compare_models(rows)
    assert [words.split(":")[0] for words in sentences] == [
        f"{calibration} at (10, {delta})" for delta in ("1e-06", "0.25") for calibration in ("tight", "published")
    ]
    assert ["a promise is false" in words for words in sentences] == [False, True, False, True]


def test_a_curve_ends_at_the_final_regret():
    run = simulate_once(section_7_spec("none"), 0)
    points = list(regret_curve(run))
    assert points[-1]["time"] == 1_000_000
    assert points[-1]["regret"] == pytest.approx(run.regret / 1e6)
    assert points[0]["regret"] > 5 * points[-1]["regret"]
