"""Detectable effects in plans of tests: their sizes, segments without people, and advice."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.planning.expectation.choices import (
    CORRECTED_EFFECT_COLUMN,
    SEGMENT_COLUMN,
    find_least_effect,
    find_least_effects,
    list_choices,
)
from privateer_lab.planning.expectation.search import describe_tests, plan_tests
from privateer_lab.planning.plans import Variant, find_segment_shares, plan_effects


def income(people: int, epsilon: float) -> Spec:
    """Return a test of incomes among people with a degree and without, of one look."""
    return parse_spec(
        {
            "experiment": {"name": "income", "arms": ["old", "new"], "horizon": people, "round_size": people},
            "context": {"features": {"degree": {"boolean": True}}},
            "segments": {"features": ["degree"]},
            "reward": {
                "kind": "numeric",
                "low": 0.0,
                "high": 30000.0,
                "base_rate": 5200.0,
                "standard_deviation": 6000.0,
            },
            "privacy": {"model": "local", "epsilon": epsilon},
            "algorithm": {"name": "trial"},
        }
    )


def describe_plan(spec: Spec) -> list[str]:
    plans = plan_tests(list_choices(spec)[0], 1000, 1, "threads")
    return list(describe_tests(spec, plans))


def test_a_plan_that_finds_no_effect_of_a_segment_says_so_and_what_would_help() -> None:
    """With 110 people an arm no effect is detectable under noise, but without noise, so a larger epsilon helps."""
    words = describe_plan(income(440, 1.0))
    assert words[0] == (
        "With 440 people this test finds effects from these sizes on, if all segments have as many people: "
        "everybody: 13,000."
    )
    assert words[1] == (
        "With 440 people this test can find no effect, however large, of degree=no, degree=yes: "
        "raise privacy.epsilon or experiment.horizon, or have fewer segments or arms."
    )
    assert words[2] == "Without privacy the smallest is 1,630."


def test_a_plan_that_finds_nothing_because_of_its_promise_says_that() -> None:
    words = describe_plan(income(600, 0.2))
    assert words[0] == (
        "With 600 people this test can find no effect at all: "
        "raise privacy.epsilon or experiment.horizon, or have fewer segments or arms."
    )
    assert "Under local at epsilon 0.1 it finds none." in words
    assert not any(" is 0." in word or ": 0." in word for word in words)


def test_no_least_effect_is_none_for_the_yardstick_and_for_the_table_of_sizes() -> None:
    spec = income(600, 0.02)
    assert find_least_effect(100, 2, 0.5, Variant("local", 0.02, spec)) is None
    rows = lab.detectable(spec, trust=["none", "local"], epsilon=[0.02]).rows()
    assert [row["least effect"] is None for row in rows] == [row["times"] is None for row in rows]
    assert {row["model"] for row in rows if row["least effect"] is None} == {"local"}


def test_arms_of_other_shares_have_their_own_least_effects() -> None:
    """Planted: a dictionary by segment keeps the last arm alone."""
    spec = parse_spec(
        {
            "experiment": {"name": "three", "arms": ["a", "b", "c"], "horizon": 20_000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {"model": "local", "epsilon": 1.0},
            "algorithm": {"name": "trial", "allocation": "fixed", "allocation_ratio": [0.5, 0.4, 0.1]},
        }
    )
    first = describe_plan(spec)[0]
    assert "b, everybody: " in first
    assert "c, everybody: " in first


def test_detectable_effects_use_segment_shares_and_the_correction(tmp_path: Path) -> None:
    """Without noise and with one look least effects go with the root of people, by a formula within 3 %.

    Planted: segments of a table counted as equal, and the correction as none. Rates vary alike from .4 to .6.
    """
    rng, path = np.random.default_rng(5), tmp_path / "log.csv"
    rows = zip(rng.choice(["x", "y"], 4000, p=[0.9, 0.1]), rng.choice(["a", "b"], 4000), strict=True)
    path.write_text("g,arm,reward\n" + "".join(f"{g},{a},{rng.integers(2)}\n" for g, a in rows))
    spec_file = tmp_path / "spec.toml"
    draft(path, arm="arm", reward="reward", segments=["g"]).write(spec_file)
    changes = {"privacy.model": "none", "privacy.epsilon": None, "experiment.round_size": 4000}
    spec = lab.spec(spec_file, changes)
    assert find_segment_shares(spec)["g=x"] == pytest.approx(0.9, abs=0.02)
    all_tables = plan_effects([Variant("none", math.inf, spec)])[0]["tables"]
    [table] = [table for table in all_tables if SEGMENT_COLUMN in table.names]
    least_effects, decided = find_least_effects([table]), find_least_effects([table], CORRECTED_EFFECT_COLUMN)
    for segment, share in (("g=x", 0.9), ("g=y or other", 0.1)):
        by_hand = (ndtri(0.975) + ndtri(0.8)) / math.sqrt(share * 4000)
        assert least_effects[segment] == pytest.approx(by_hand, rel=0.05)
        ratio = (ndtri(1 - 0.0125) + ndtri(0.8)) / (ndtri(0.975) + ndtri(0.8))
        assert decided[segment] / least_effects[segment] == pytest.approx(ratio, rel=0.01)
    assert decided["everybody"] == least_effects["everybody"]
    words = list(describe_tests(spec, [{"model": "none", "epsilon": None, "tables": [table]}]))
    assert "if all segments have as many people" not in words[0]
    assert "up to 1.1 times that size on" in words[1]


def test_an_empty_segment_has_no_detectable_effect() -> None:
    """Planted: three devices, whose two-bit codes have a fourth value for the rest."""
    spec = parse_spec(
        {
            "experiment": {"name": "devices", "arms": ["a", "b"], "horizon": 20_000},
            "context": {"features": {"device": {"levels": ["ios", "android", "web"]}}},
            "segments": {"features": ["device"]},
            "privacy": {"model": "local", "epsilon": 2.0},
            "algorithm": {"name": "trial", "allocation": "fixed"},
            "population": {"name": "effects", "base": 0.5, "effects": {"b": 0.1}},
        }
    )
    plans = plan_tests(list_choices(spec)[0], 1000, 1, "threads")
    rows = {row[0] for plan in plans for table in plan["tables"] if table.names[0] == "segment" for row in table.rows}
    assert rows == {"device=ios", "device=android", "device=web", "everybody"}
    nobody = "Nobody of these people is in device=other."
    assert nobody in list(describe_tests(spec, plans))


def test_an_effect_that_rewards_cannot_rise_by_is_said_to_be_one_downwards() -> None:
    tables = {
        "experiment": {"name": "deaths", "arms": ["old", "new"], "horizon": 1000},
        "context": {"features": {"everybody": {"levels": ["everybody"]}}},
        "privacy": {"model": "none"},
    }
    for rate, ends in ((0.99, " points downwards, as the reward cannot rise so far."), (0.5, " points.")):
        for allocation in ("fixed", "thompson"):
            algorithm, reward = {"name": "trial", "allocation": allocation}, {"base_rate": rate}
            assert describe_plan(parse_spec(tables | {"algorithm": algorithm, "reward": reward}))[0].endswith(ends)
