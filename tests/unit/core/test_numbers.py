"""Rewards are scaled and clipped, and what is not a number is refused without its value."""

import numpy as np
import pytest

from privateer_core.errors import InputError
from privateer_core.numbers import is_number, scaled_reward
from privateer_core.spec import Reward


def test_rewards_are_scaled_and_clipped() -> None:
    reward = Reward(low=-1, high=3)
    assert scaled_reward(1, reward) == (0.5, False)
    assert scaled_reward(9, reward) == (1.0, True)
    assert scaled_reward(-9, reward) == (0.0, True)


@pytest.mark.parametrize("value", [float("nan"), "41.5", None, True, [41.5], 10**400])
def test_what_is_not_a_number_is_refused_and_not_echoed(value: object) -> None:
    assert not is_number(value)
    with pytest.raises(InputError) as error:
        scaled_reward(value, Reward())
    assert error.value.field == "reward"
    assert "41" not in str(error.value)


@pytest.mark.parametrize("value", [0, -1.5, np.int64(3), np.float32(0.5), float("inf")])
def test_numbers_of_every_kind_are_numbers(value: object) -> None:
    assert is_number(value)
