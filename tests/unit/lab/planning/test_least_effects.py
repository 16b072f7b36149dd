"""What plans of tests say that they find: the least effects, where there is none, and what would help."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.planning.expectation.choices import choices_of
from privateer_lab.planning.expectation.tests import found_by_tests, words_of_tests
from privateer_lab.planning.plain_tests import CORRECTED, SEGMENT, least_effect, least_effects
from privateer_lab.planning.plans import Variant, foreseen
from privateer_lab.planning.segment_shares import named_shares


def income(people: int, epsilon: float) -> Spec:
    """Return a test of incomes among people with a degree and without, of one look."""
    return parse_spec(
        {
            "experiment": {"name": "income", "arms": ["old", "new"], "horizon": people, "round_size": people},
            "context": {"features": {"degree": {"boolean": True}}},
            "segments": {"by": ["degree"]},
            "reward": {"kind": "numeric", "low": 0.0, "high": 30000.0, "base_rate": 5200.0, "deviation": 6000.0},
            "privacy": {"model": "local", "epsilon": epsilon},
            "algorithm": {"name": "trial"},
        }
    )


def said(spec: Spec) -> list[str]:
    found = found_by_tests(choices_of(spec)[0], 1000, 1, "threads")
    return list(words_of_tests(spec, found))


def test_a_plan_that_finds_no_effect_of_a_segment_says_so_and_what_would_help() -> None:
    """Of 110 people an arm nothing is said beside noise, and something without it, so that epsilon would help."""
    words = said(income(440, 1.0))
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
    words = said(income(600, 0.2))
    assert words[0] == (
        "With 600 people this test can find no effect at all: "
        "raise privacy.epsilon or experiment.horizon, or have fewer segments or arms."
    )
    assert "Under local at epsilon 0.1 it finds none." in words
    assert not any(" is 0." in one or ": 0." in one for one in words)


def test_no_least_effect_is_none_for_the_yardstick_and_for_the_table_of_sizes() -> None:
    few = income(600, 0.02)
    assert least_effect(100, 2, 0.5, Variant("local", 0.02, few)) is None
    rows = lab.detectable(few, trust=["none", "local"], epsilon=[0.02]).rows()
    assert [row["least effect"] is None for row in rows] == [row["times"] is None for row in rows]
    assert {row["model"] for row in rows if row["least effect"] is None} == {"local"}


def test_arms_of_other_shares_have_their_own_least_effects() -> None:
    """Planted: a dictionary by segment keeps the last arm alone."""
    spec = parse_spec(
        {
            "experiment": {"name": "three", "arms": ["a", "b", "c"], "horizon": 20_000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {"model": "local", "epsilon": 1.0},
            "algorithm": {"name": "trial", "allocation": "fixed", "shares": [0.5, 0.4, 0.1]},
        }
    )
    first = said(spec)[0]
    assert "b, everybody: " in first
    assert "c, everybody: " in first


def test_a_plan_knows_how_many_people_are_in_each_segment_and_what_the_correction_costs(tmp_path: Path) -> None:
    """Without noise and with one look least effects go with the root of people, by a formula within 3 %.

    Planted: segments of a table counted as equal, and the correction as none. Rates vary alike from .4 to .6.
    """
    rng, path = np.random.default_rng(5), tmp_path / "log.csv"
    rows = zip(rng.choice(["x", "y"], 4000, p=[0.9, 0.1]), rng.choice(["a", "b"], 4000), strict=True)
    path.write_text("g,arm,reward\n" + "".join(f"{g},{a},{rng.integers(2)}\n" for g, a in rows))
    made = tmp_path / "spec.toml"
    draft(path, arm="arm", reward="reward", segments=["g"]).write(made)
    changes = {"privacy.model": "none", "privacy.epsilon": None, "experiment.round_size": 4000}
    spec = lab.spec(made, changes)
    assert named_shares(spec)["g=x"] == pytest.approx(0.9, abs=0.02)
    [table] = [one for one in foreseen([Variant("none", math.inf, spec)])[0]["tables"] if SEGMENT in one.names]
    least, decided = least_effects([table]), least_effects([table], CORRECTED)
    for segment, share in (("g=x", 0.9), ("g=y or other", 0.1)):
        by_hand = (ndtri(0.975) + ndtri(0.8)) / math.sqrt(share * 4000)
        assert least[segment] == pytest.approx(by_hand, rel=0.05)
        ratio = (ndtri(1 - 0.0125) + ndtri(0.8)) / (ndtri(0.975) + ndtri(0.8))
        assert decided[segment] / least[segment] == pytest.approx(ratio, rel=0.01)
    assert decided["everybody"] == least["everybody"]
    words = list(words_of_tests(spec, [{"model": "none", "epsilon": None, "tables": [table]}]))
    assert "if all segments have as many people" not in words[0]
    assert "up to 1.1 times that size on" in words[1]


def test_segments_in_which_nobody_is_have_no_least_effect() -> None:
    """Planted: three devices, of which codes of two bits have a fourth, that of others."""
    spec = parse_spec(
        {
            "experiment": {"name": "devices", "arms": ["a", "b"], "horizon": 20_000},
            "context": {"features": {"device": {"levels": ["ios", "android", "web"]}}},
            "segments": {"by": ["device"]},
            "privacy": {"model": "local", "epsilon": 2.0},
            "algorithm": {"name": "trial", "allocation": "fixed"},
            "population": {"name": "effects", "base": 0.5, "effects": {"b": 0.1}},
        }
    )
    found = found_by_tests(choices_of(spec)[0], 1000, 1, "threads")
    rows = {row[0] for one in found for table in one["tables"] if table.names[0] == "segment" for row in table.rows}
    assert rows == {"device=ios", "device=android", "device=web", "everybody"}
    nobody = "Nobody of these people is in device=other."
    assert nobody in list(words_of_tests(spec, found))


def test_an_effect_that_rewards_cannot_rise_by_is_said_to_be_one_downwards() -> None:
    tables = {
        "experiment": {"name": "deaths", "arms": ["old", "new"], "horizon": 1000},
        "context": {"features": {"everybody": {"levels": ["everybody"]}}},
        "privacy": {"model": "none"},
    }
    for rate, ends in ((0.99, " points downwards, as the reward cannot rise so far."), (0.5, " points.")):
        for allocation in ("fixed", "matching"):
            algorithm = {"name": "trial", "allocation": allocation, "rate": rate}
            assert said(parse_spec(tables | {"algorithm": algorithm}))[0].endswith(ends)
