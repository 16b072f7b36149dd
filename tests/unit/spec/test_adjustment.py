"""Numbers from before the choice: what a spec takes of them, and what they let expect of a reward."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, SpecError
from privateer_core.spec.adjustment import Adjustment, expected, left_over
from privateer_core.spec.reward import GuardedReward, Reward
from tests.support.specs import tables

MINUTES = {"reward.adjust": {"minutes": {"mean": 31.0, "slope": 0.8}}}
LEARNED = {"reward.adjust": {"minutes": {"low": 0.0, "high": 100.0}}, "privacy.model": "central"}
TRIAL = {
    "algorithm.name": "trial",
    "reward.kind": "numeric",
    "reward.low": -60.0,
    "reward.high": 120.0,
    "reward.deviation": 20.0,
}


def test_what_is_expected_above_the_average_adds_up() -> None:
    """By hand: .8 (41 - 31) - 2 (3 - 1), and nothing by a number that is not known."""
    known = {"minutes": Adjustment(mean=31.0, slope=0.8), "visits": Adjustment(mean=1.0, slope=-2.0)}
    numbers = np.array([[41.0, 3.0], [np.nan, 3.0], [31.0, np.nan]])
    assert expected(known, numbers, 100.0) == pytest.approx(np.array([4.0, -4.0, 0.0]))
    assert expected({}, np.zeros((2, 0)), 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e308, -1e308])
def test_however_large_a_number_is_the_reward_goes_to_a_bound_and_no_further(value: float) -> None:
    both = {"a": Adjustment(mean=0.0, slope=1e10), "b": Adjustment(mean=0.0, slope=1e10)}
    (offset,) = expected(both, np.array([[value, value]]), 180.0)
    assert np.isfinite(offset)
    reward = Reward(low=-60.0, high=120.0)
    assert reward.scaled(reward.adjusted(30.0, offset))[0] == (0.0 if value > 0 else 1.0)
    assert np.isfinite(expected(both, np.array([[value, -value]]), 180.0)).all()


def test_a_reward_is_clipped_before_it_is_adjusted_and_after() -> None:
    reward = Reward(low=0.0, high=10.0)
    assert reward.adjusted(1e9, 4.0) == 6.0
    assert reward.scaled(reward.adjusted(1.0, 4.0)) == (0.0, True)
    assert reward.scaled_all(np.array([1e9, 1.0, 5.0]), np.array([4.0, 4.0, 0.0])) == pytest.approx([0.6, 0.0, 0.5])
    guarded = GuardedReward(reward, ("refund",))
    assert guarded.adjusted({"reward": 7.0, "refund": True}, 4.0) == {"reward": 3.0, "refund": True}
    assert guarded.adjusted(7.0, 4.0) == 3.0


@pytest.mark.parametrize("value", ["41", True, [41.0], 10**400])
def test_what_is_no_number_is_refused_by_its_name_and_not_echoed(value: Any) -> None:
    with pytest.raises(InputError) as error:
        Adjustment(mean=0.0, slope=1.0).read("minutes", value)
    assert error.value.field == "minutes"
    assert error.value.remedy
    assert "41" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reward.adjust": {"minutes": {"mean": 31.0}}}, "reward.adjust.minutes.slope"),
        ({"reward.adjust": {"minutes": {"mean": float("nan"), "slope": 1.0}}}, "reward.adjust.minutes.mean"),
        ({"reward.adjust": {"minutes": {"mean": "many", "slope": 1.0}}}, "reward.adjust.minutes.mean"),
        ({"reward.adjust": {"minutes": {"mean": 1e300, "slope": 1.0}}}, "reward.adjust.minutes.mean"),
        ({"reward.adjust": {"minutes": {"mean": 0.0, "slope": -1e300}}}, "reward.adjust.minutes.slope"),
        (LEARNED | {"reward.adjust": {"minutes": {"low": -1e300, "high": 1e300}}}, "reward.adjust.minutes"),
        ({"reward.adjust": {"minutes": {"mean": 1.0, "slope": 1.0, "low": 1.0}}}, "reward.adjust.minutes.slope"),
        ({"reward.adjust": {"minutes": {"mean": 1.0, "high": 1.0}}}, "reward.adjust.minutes.slope"),
        ({"reward.adjust": {"minutes": {"low": 1.0, "high": 1.0}}}, "reward.adjust.minutes.high"),
        (LEARNED | {"privacy.model": "local", "privacy.epsilon": 4.0, "privacy.delta": 0.0}, "reward.adjust.minutes"),
        (LEARNED | {"privacy.model": "shuffle", "privacy.delta": 1e-6}, "reward.adjust.minutes"),
        (LEARNED | {"reward.kind": "binary"}, "reward.adjust.minutes"),
        (LEARNED | {"algorithm.looks": 1}, "reward.adjust.minutes"),
        ({"reward.adjust": {"minutes": {"mean": 1.0, "slope": 1.0, "correlation": 1.0}}}, "correlation"),
        ({"reward.adjust": {name: {"mean": 1.0, "slope": 1.0} for name in "abcd"}}, "reward.adjust"),
        ({"reward.adjust": {n: {"mean": 1.0, "slope": 1.0, "correlation": 0.8} for n in "ab"}}, "reward.adjust"),
        (MINUTES | {"algorithm.name": "partition", "reward.kind": "binary"}, "reward.adjust"),
        (MINUTES | {"algorithm.name": "linear", "reward.kind": "binary"}, "reward.adjust"),
    ],
)
def test_specs_that_are_refused(changes: dict[str, Any], field: str) -> None:
    told = TRIAL | changes
    if told["reward.kind"] == "binary":
        told.pop("reward.deviation")
    with pytest.raises(SpecError) as error:
        parse_spec(tables(told))
    assert field in str(error.value.field)
    assert error.value.remedy


def test_a_spec_says_what_people_are_asked_and_a_plan_what_is_left_to_vary() -> None:
    spec: Any = parse_spec(tables(TRIAL | {"reward.adjust": {"minutes": {"mean": 1, "slope": 1, "correlation": 0.6}}}))
    assert spec.asked_of_people == ("x1", "x2", "minutes")
    assert spec.deviation == pytest.approx(0.8 * 20 / 180)
    assert left_over({}) == 1.0
    both: Any = parse_spec(tables(TRIAL | {"reward.adjust": {"x1": {"mean": 1, "slope": 1}}}))
    assert both.asked_of_people == ("x1", "x2")


def test_specs_without_adjustments_keep_their_bytes_and_those_with_travel() -> None:
    assert "adjust" not in parse_spec(tables(TRIAL)).model_dump_json()
    spec = parse_spec(tables(TRIAL | MINUTES))
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec


def test_a_spec_of_bits_says_that_adjusting_does_nothing() -> None:
    told = {"algorithm.name": "trial"} | MINUTES
    assert any("reward.adjust" in one for one in parse_spec(tables(told)).concerns())
    assert not any("reward.adjust" in one for one in parse_spec(tables(TRIAL | MINUTES)).concerns())


def test_a_slope_that_moves_everybody_beyond_the_bounds_is_said() -> None:
    """The range is 180: .8 times 31 moves nobody far, 8,000 times 31 moves a number of 0 by 1,378 ranges."""
    assert parse_spec(tables(TRIAL | MINUTES)).concerns() == []
    told = TRIAL | {"reward.adjust": {"minutes": {"mean": 31.0, "slope": 8000.0}}}
    (said,) = parse_spec(tables(told)).concerns()
    assert "reward.adjust.minutes" in said
    assert "1,378 times" in said


def test_a_correlation_has_the_sign_of_its_slope() -> None:
    with pytest.raises(ValidationError, match="sign of the slope"):
        Adjustment(mean=0.0, slope=-0.8, correlation=0.7)
