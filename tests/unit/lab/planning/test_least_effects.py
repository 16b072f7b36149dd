"""Plans of tests: detectable effects, first rounds, and warnings of services."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.record import make_record
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.planning.admission import KnownLimits, check_admission, concerns_before_start
from privateer_lab.planning.expectation.choices import (
    CORRECTED_EFFECT_COLUMN,
    SEGMENT_COLUMN,
    find_least_effect,
    find_least_effects,
    list_choices,
)
from privateer_lab.planning.expectation.search import describe_tests, plan_tests
from privateer_lab.planning.plans import (
    Variant,
    describe_first_rounds,
    find_segment_shares,
    make_variants,
    plan_effects,
)
from privateer_lab.simulation.simulate import is_gaining, list_warnings, simulate_once
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import make_spec


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


@pytest.mark.parametrize(("model", "epsilon"), [("shuffle", 1.0), ("shuffle", 4.0), ("local", 1.0), ("central", 1.0)])
@pytest.mark.parametrize("rate", [0.005, 0.3, 0.5, None])
def test_the_first_round_asks_for_what_was_planned(model: str, epsilon: float, rate: float | None) -> None:
    """A learner opens the round. The defect named a symbol of a bit and its sign where events were asked for."""
    declared = {} if rate is None else {"reward.base_rate": rate}
    (variant,) = make_variants(make_spec(declared), (model,), (epsilon,))
    (row,) = describe_first_rounds([variant])
    terms = Schedule(variant.spec).open(0).policy.terms
    assert row["mechanism"] == type(terms.mechanism).__struct_config__.tag
    assert row["people"] == terms.batch_size
    if rate not in (None, 0.5):
        planned = variant.spec.first_terms("")
        assert planned.mechanism.local_epsilon == terms.mechanism.local_epsilon


def test_rare_events_are_asked_for_and_a_certificate_ahead_says_so() -> None:
    plain, rare = (
        make_variants(make_spec(declared), ("shuffle",), (1.0,))[0] for declared in ({}, {"reward.base_rate": 0.005})
    )
    assert describe_first_rounds([plain])[0]["mechanism"] == "signed-symbol"
    assert describe_first_rounds([rare])[0]["mechanism"] == "event-symbol"
    planned = make_record(rare.spec, {}).planned
    assert planned.mechanism["type"] == "event-symbol"


EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Spec:
    return parse_spec(tomllib.loads((EXAMPLES / f"{name}.toml").read_text()))


def test_simulations_warn_of_each_refusal_with_the_words_of_the_services() -> None:
    spec = example("dpe")
    with pytest.raises(SpecError) as refused:
        check_admission(spec, KnownLimits(assumed=("as shipped",)))
    prefix = "services as they are shipped refuse this spec: "
    warnings = [message for message in list_warnings(spec, [], {}) if message.startswith(prefix)]
    refusals = [message.split(": ", 1)[1] for message in warnings]
    assert [refusal.split(":")[0] for refusal in refusals] == ["algorithm.alpha", "privacy.min_batch"]
    assert str(refused.value) == "; ".join(refusals)[:-1] + "; as shipped)"


def test_runs_that_gain_refute_that_people_tell_little_of_features() -> None:
    """Planted: the advice of a randomized log stood beside a table whose runs gain."""
    spec = make_spec({"experiment.horizon": 3000, "population": {"name": "mixed", "relevant": ["x1"], "function": 3}})

    def tells_little(**gains: bool) -> list[bool]:
        return ["people tell little of" in warning for warning in list_warnings(spec, [], {}, **gains)]

    assert any(tells_little())
    assert not any(tells_little(gains=True))
    runs = [simulate_once(spec, seed) for seed in range(2)]
    assert is_gaining([replace(run, best_constant_regret=run.regret + 100) for run in runs])
    assert not is_gaining([replace(run, best_constant_regret=run.regret - 1) for run in runs])
    assert not is_gaining(runs[:1])


@pytest.mark.parametrize("name", ["stations", "peaks-shuffle", "peaks-local"])
def test_specs_that_services_accept_have_no_warning(name: str) -> None:
    assert not any("refuse" in concern for concern in concerns_before_start(example(name)))
    assert check_admission(example(name), KnownLimits()) > 0


def test_a_model_whose_protocol_services_lack_is_a_warning() -> None:
    spec = make_variants(example("peaks-shuffle"), ["split"], [1.0])[0].spec
    assert any("refuse this spec: privacy.model" in concern for concern in concerns_before_start(spec))
