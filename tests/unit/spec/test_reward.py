"""Rewards are scaled and clipped, and what is not a number is refused without its value."""

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
def test_what_is_not_a_number_is_refused_and_not_echoed(value: object) -> None:
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
