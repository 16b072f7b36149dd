"""Covariates from before the choice: valid sections of a spec, and the expected part of a reward."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, SpecError
from privateer_core.spec.adjustment import Adjustment, expected_excess, remaining_deviation_factor
from privateer_core.spec.reward import GuardedReward, Reward
from tests.support.specs import tables

MINUTES = {"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8}}}
LEARNED = {"reward.covariates": {"minutes": {"low": 0.0, "high": 100.0}}, "privacy.model": "central"}
TRIAL = {
    "algorithm.name": "trial",
    "reward.kind": "numeric",
    "reward.low": -60.0,
    "reward.high": 120.0,
    "reward.standard_deviation": 20.0,
}


def test_expected_parts_of_covariates_add_up() -> None:
    """By hand: .8 (41 - 31) - 2 (3 - 1), and 0 for a missing number."""
    covariates = {"minutes": Adjustment(mean=31.0, slope=0.8), "visits": Adjustment(mean=1.0, slope=-2.0)}
    numbers = np.array([[41.0, 3.0], [np.nan, 3.0], [31.0, np.nan]])
    assert expected_excess(covariates, numbers, 100.0) == pytest.approx(np.array([4.0, -4.0, 0.0]))
    assert expected_excess({}, np.zeros((2, 0)), 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e308, -1e308])
def test_however_large_a_number_is_the_reward_goes_to_a_bound_and_no_further(value: float) -> None:
    covariates = {"a": Adjustment(mean=0.0, slope=1e10), "b": Adjustment(mean=0.0, slope=1e10)}
    (offset,) = expected_excess(covariates, np.array([[value, value]]), 180.0)
    assert np.isfinite(offset)
    reward = Reward(low=-60.0, high=120.0)
    assert reward.scale_and_clip(reward.adjusted(30.0, offset))[0] == (0.0 if value > 0 else 1.0)
    assert np.isfinite(expected_excess(covariates, np.array([[value, -value]]), 180.0)).all()


def test_a_reward_is_clipped_before_it_is_adjusted_and_after() -> None:
    reward = Reward(low=0.0, high=10.0)
    assert reward.adjusted(1e9, 4.0) == 6.0
    assert reward.scale_and_clip(reward.adjusted(1.0, 4.0)) == (0.0, True)
    assert reward.scaled_all(np.array([1e9, 1.0, 5.0]), np.array([4.0, 4.0, 0.0])) == pytest.approx([0.6, 0.0, 0.5])
    guarded = GuardedReward(reward, ("refund",))
    assert guarded.adjusted({"reward": 7.0, "refund": True}, 4.0) == {"reward": 3.0, "refund": True}
    assert guarded.adjusted(7.0, 4.0) == 3.0


@pytest.mark.parametrize("value", ["41", True, [41.0], 10**400])
def test_a_covariate_that_is_no_number_is_refused_and_not_echoed(value: Any) -> None:
    with pytest.raises(InputError) as error:
        Adjustment(mean=0.0, slope=1.0).read("minutes", value)
    assert error.value.field == "minutes"
    assert error.value.remedy
    assert "41" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reward.covariates": {"minutes": {"mean": 31.0}}}, "reward.covariates.minutes.slope"),
        ({"reward.covariates": {"minutes": {"mean": float("nan"), "slope": 1.0}}}, "reward.covariates.minutes.mean"),
        ({"reward.covariates": {"minutes": {"mean": "many", "slope": 1.0}}}, "reward.covariates.minutes.mean"),
        ({"reward.covariates": {"minutes": {"mean": 1e300, "slope": 1.0}}}, "reward.covariates.minutes.mean"),
        ({"reward.covariates": {"minutes": {"mean": 0.0, "slope": -1e300}}}, "reward.covariates.minutes.slope"),
        (LEARNED | {"reward.covariates": {"minutes": {"low": -1e300, "high": 1e300}}}, "reward.covariates.minutes"),
        (
            {"reward.covariates": {"minutes": {"mean": 1.0, "slope": 1.0, "low": 1.0}}},
            "reward.covariates.minutes.slope",
        ),
        ({"reward.covariates": {"minutes": {"mean": 1.0, "high": 1.0}}}, "reward.covariates.minutes.slope"),
        ({"reward.covariates": {"minutes": {"low": 1.0, "high": 1.0}}}, "reward.covariates.minutes.high"),
        (
            LEARNED | {"privacy.model": "local", "privacy.epsilon": 4.0, "privacy.delta": 0.0},
            "reward.covariates.minutes",
        ),
        (LEARNED | {"privacy.model": "shuffle", "privacy.delta": 1e-6}, "reward.covariates.minutes"),
        (LEARNED | {"reward.kind": "binary"}, "reward.covariates.minutes"),
        (LEARNED | {"algorithm.looks": 1}, "reward.covariates.minutes"),
        ({"reward.covariates": {"minutes": {"mean": 1.0, "slope": 1.0, "correlation": 1.0}}}, "correlation"),
        ({"reward.covariates": {name: {"mean": 1.0, "slope": 1.0} for name in "abcd"}}, "reward.covariates"),
        (
            {"reward.covariates": {n: {"mean": 1.0, "slope": 1.0, "correlation": 0.8} for n in "ab"}},
            "reward.covariates",
        ),
        (MINUTES | {"algorithm.name": "partition", "reward.kind": "binary"}, "reward.covariates"),
        (MINUTES | {"algorithm.name": "linear", "reward.kind": "binary"}, "reward.covariates"),
    ],
)
def test_invalid_covariates_are_refused(changes: dict[str, Any], field: str) -> None:
    sections = TRIAL | changes
    if sections["reward.kind"] == "binary":
        sections.pop("reward.standard_deviation")
    with pytest.raises(SpecError) as error:
        parse_spec(tables(sections))
    assert field in str(error.value.field)
    assert error.value.remedy


def test_inputs_include_covariates_and_the_deviation_is_that_of_residuals() -> None:
    spec: Any = parse_spec(
        tables(TRIAL | {"reward.covariates": {"minutes": {"mean": 1, "slope": 1, "correlation": 0.6}}})
    )
    assert spec.input_names == ("x1", "x2", "minutes")
    assert spec.standard_deviation == pytest.approx(0.8 * 20 / 180)
    assert remaining_deviation_factor({}) == 1.0
    with_feature: Any = parse_spec(tables(TRIAL | {"reward.covariates": {"x1": {"mean": 1, "slope": 1}}}))
    assert with_feature.input_names == ("x1", "x2")


def test_specs_without_adjustments_keep_their_bytes_and_those_with_travel() -> None:
    assert "adjust" not in parse_spec(tables(TRIAL)).model_dump_json()
    spec = parse_spec(tables(TRIAL | MINUTES))
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


def test_a_spec_of_bits_says_that_adjusting_does_nothing() -> None:
    sections = {"algorithm.name": "trial"} | MINUTES
    assert any("reward.covariates" in concern for concern in parse_spec(tables(sections)).concerns())
    assert not any("reward.covariates" in concern for concern in parse_spec(tables(TRIAL | MINUTES)).concerns())


def test_a_slope_beyond_the_bounds_of_rewards_is_a_concern() -> None:
    """The range is 180: .8 times 31 is a small change, 8,000 times 31 changes a number of 0 by 1,378 ranges."""
    assert parse_spec(tables(TRIAL | MINUTES)).concerns() == []
    sections = TRIAL | {"reward.covariates": {"minutes": {"mean": 31.0, "slope": 8000.0}}}
    (concern,) = parse_spec(tables(sections)).concerns()
    assert "reward.covariates.minutes" in concern
    assert "1,378 times" in concern


def test_a_correlation_has_the_sign_of_its_slope() -> None:
    with pytest.raises(ValidationError, match="sign of the slope"):
        Adjustment(mean=0.0, slope=-0.8, correlation=0.7)
