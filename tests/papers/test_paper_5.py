"""Paper 5: the instance of Section 7, Table 1's rates, and its shuffled bits."""

import math
import re
from typing import Any

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.gaussian import (
    classic_gaussian_standard_deviation,
    gaussian_epsilon,
    gaussian_standard_deviation,
)
from privateer_core.errors import SpecError
from privateer_core.spec.box import Box
from privateer_lab.simulation.simulate import simulate_once, summarize
from privateer_papers.paper_5 import phased_regret, rates
from privateer_papers.paper_5.phased_regret import (
    ALPHA,
    TABLE_1,
    VARIANTS,
    compare_models,
    regret_curve,
    run_fixed_clients,
    section_7_spec,
)
from privateer_papers.paper_5.rates import RATES, REGRET_POWER, TRAFFIC_POWERS
from privateer_papers.published_trust import published_bits
from privateer_papers.reproduction import Effort, Rows
from tests.papers.test_publications import text_of

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
    assert all(len(group) == 2 for group in rows.group_by("model", "calibration", "delta").values())
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


def rows_of_rates(regret: float, bits: float) -> Rows:
    """Runs of three seeds at three horizons that grow by these exponents, with little noise."""
    rng, rows = np.random.default_rng(4), Rows()
    for model, calibration in VARIANTS:
        for horizon in (1000, 4000, 16_000):
            for seed in range(3):
                noise = np.exp(0.02 * rng.normal(size=2))
                facts = {"model": model, "calibration": calibration, "people": horizon, "seed": seed}
                figures = {"regret": horizon**regret * noise[0], "bits": horizon**bits * noise[1]}
                rows.append({**facts, **figures, "uniform": float(horizon)})
    return rows


def test_slopes_above_the_papers_are_said_first() -> None:
    slow, fast = rows_of_rates(0.5, 0.7), rows_of_rates(0.7, 1.0)
    assert RATES.warnings(slow) == []
    # All four in regret, and in bits all but shuffle, whose exponent is 1.2.
    assert len(RATES.warnings(fast)) == 7
    assert "0 of 8 slopes of ours, and in 0 of 6" in RATES.sentence(slow)
    assert "7 of 8 slopes of ours, and in 5 of 6" in RATES.sentence(fast)
    lines = RATES.compared(fast)
    assert len(lines) == 8
    assert [line.published for line in lines] == ["0.6"] * 4 + ["0.8", "0.8", "0.8", "1.2"]
    assert "".join(line.text for line in lines[:4]).count("(above)") == len(VARIANTS)
    assert len(RATES.draw(RATES.title, slow).axes) == 2


def test_runs_of_short_horizons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_QUICK_HORIZONS", (1000, 3000, 9000))
    monkeypatch.setattr(rates, "_N_PARTICIPANTS", 20_000)
    rows = Rows(RATES.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 3 * len(VARIANTS)
    assert all(0 < row["regret"] <= 1.5 * row["uniform"] and row["bits"] > 0 for row in rows)


@pytest.mark.data
def test_exponents_are_printed() -> None:
    text = re.sub(r"\s+", " ", text_of(5))
    assert f"alpha = {ALPHA}" in text.replace("\\", "")
    assert pytest.approx(1 - ALPHA / 2) == REGRET_POWER
    assert text.count(r"T^{1-\alpha/2}") >= 6
    assert r"$O(dT^{3\alpha/2})$ (bits)" in text
    assert TRAFFIC_POWERS["shuffle"] == pytest.approx(1.5 * ALPHA)


def test_equation_22_by_hand():
    """n = 1024, s = 60 at (10, .25): log terms by hand."""
    bits = published_bits(10, 0.25, 60, 1024)
    scaled, log = 10 / (18 * math.sqrt(math.log(8))), math.log(960)
    assert bits.levels == 10
    assert bits.bits == math.ceil(180 * 100 * log / (scaled**2 * 1024)) == 814
    assert bits.probability == pytest.approx(90 * 100 * log / (814 * scaled**2 * 1024))


def test_the_claim_at_ten_and_a_quarter_is_really_below_a_tenth():
    bits = published_bits(10, 0.25, 60, 1024)
    assert gaussian_epsilon(1e-6, bits.standard_deviation) == pytest.approx(0.078, abs=0.001)
    assert account(bits.event).delta(10) < 1e-20


@pytest.mark.parametrize("epsilon", [1, 5, 10, 15])
def test_the_published_bits_are_hundreds_of_times_noisier_than_needed(epsilon):
    assert published_bits(epsilon, 0.25, 60, 1024).standard_deviation > 250 * classic_gaussian_standard_deviation(
        epsilon, 0.25
    )
    assert published_bits(epsilon, 1e-6, 20, 1024).standard_deviation > 250 * gaussian_standard_deviation(epsilon, 1e-6)


@pytest.mark.parametrize(
    "arguments", [(0, 0.25, 60, 10), (16, 0.25, 60, 10), (1, 0, 60, 10), (1, 0.1, 0, 10), (1, 0.1, 1, 0)]
)
def test_settings_that_the_theorem_does_not_cover_are_refused(arguments):
    with pytest.raises(SpecError):
        published_bits(*arguments)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_a_box_within_the_unit_ball_has_covers_of_the_size_of_remark_1(dimension):
    """No random point is farther from the cover than half its cells' diagonal, and some are nearly as far."""
    corner = np.full(dimension, dimension**-0.5)
    box, rng = Box(-corner, corner, 1), np.random.default_rng(4)
    for level in range(1, min(box.last_level, 4) + 1):
        cover = box.list_points(box.list_rows(level))
        points = rng.uniform(-corner, corner, (2000, dimension))
        nearest = np.linalg.norm(points[:, None] - cover, axis=2).min(axis=1).max() if len(cover) < 1000 else None
        radius = 2.0**-level
        assert nearest is None or 0.7 * radius < nearest <= radius + 1e-12
        assert len(cover) <= (3 / radius) ** dimension
