"""Rewards are scaled and clipped, and values that are no numbers are refused without an echo."""

import numpy as np
import pytest
from pydantic import ValidationError

from privateer_core.errors import InputError
from privateer_core.spec.columns import is_number
from privateer_core.spec.reward import Reward


def test_rewards_are_scaled_and_clipped() -> None:
    reward = Reward(low=-1, high=3)
    assert reward.scaled(1) == (0.5, False)
    assert reward.scaled(9) == (1.0, True)
    assert reward.scaled(-9) == (0.0, True)


@pytest.mark.parametrize("value", [float("nan"), "41.5", None, True, [41.5], 10**400])
def test_a_reward_that_is_no_number_is_refused_and_not_echoed(value: object) -> None:
    assert not is_number(value)
    with pytest.raises(InputError) as error:
        Reward().scaled(value)
    assert error.value.field == "reward"
    assert "41" not in str(error.value)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_base_rate_is_between_the_bounds(rate: float) -> None:
    assert Reward(base_rate=0.005).base_rate == 0.005
    with pytest.raises(ValidationError):
        Reward(base_rate=rate)


@pytest.mark.parametrize("value", [0, -1.5, np.int64(3), np.float32(0.5), float("inf")])
def test_numbers_of_every_kind_are_numbers(value: object) -> None:
    assert is_number(value)


def test_default_fields_are_left_out_so_that_earlier_specs_keep_their_bytes() -> None:
    assert Reward().model_dump() == {"low": 0.0, "high": 1.0, "default": None}
    reward = Reward(high=300.0, kind="numeric", base_rate=2.0, standard_deviation=15.0)
    assert Reward.model_validate_json(reward.model_dump_json()) == reward
    assert reward.expected_rate == pytest.approx(2 / 300)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_rate": 0.0},
        {"base_rate": 1.5},
        {"standard_deviation": 0.2},
        {"kind": "numeric", "standard_deviation": 0.6},
        {"kind": "numeric", "standard_deviation": 0.0},
        {"kind": "count"},
    ],
)
def test_impossible_base_rates_and_deviations_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's
        Reward.model_validate(wrong)


def test_numbers_that_cannot_vary_so_much_about_their_mean_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"at most 6\.778"):
        Reward(kind="numeric", low=0.0, high=200.0, base_rate=0.23, standard_deviation=14.0)
    assert (
        Reward(kind="numeric", low=0.0, high=200.0, base_rate=2.3, standard_deviation=14.0).standard_deviation == 14.0
    )


def test_very_wide_bounds_are_a_concern_where_there_is_noise() -> None:
    """Planted: bounds 50 standard deviations apart, which revenue may have."""
    wide = Reward(high=1e6, kind="numeric", base_rate=5.0, standard_deviation=1.0)
    (concern,) = wide.concerns(has_noise=True)
    assert "1,000,000 standard deviations" in concern
    assert "with bounds 10 apart it would be 100,000 times smaller" in concern
    assert wide.concerns(has_noise=False) == []
    assert Reward(high=50.0, kind="numeric", base_rate=5.0, standard_deviation=1.0).concerns(has_noise=True) == []
