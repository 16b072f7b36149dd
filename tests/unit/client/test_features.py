"""Contexts are scaled and clipped; errors name features and never values."""

import numpy as np
import pytest

from privateer.errors import InputError
from privateer.features import Numeric
from privateer_client.features import context_vector

FEATURES = {"age": Numeric(low=20, high=60), "hours": Numeric(low=0, high=80)}


def test_features_are_scaled_in_order_and_clipped() -> None:
    assert context_vector({"hours": 20, "age": 100}, FEATURES).tolist() == [[1.0, 0.25]]
    assert context_vector({"hours": np.int64(-5), "age": float("-inf")}, FEATURES).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("value", [float("nan"), "41", None, True, [41]])
def test_what_is_no_number_is_named_and_not_echoed(value: object) -> None:
    with pytest.raises(InputError) as error:
        context_vector({"age": value, "hours": 1}, FEATURES)
    assert error.value.field == "age"
    assert "41" not in str(error.value)


def test_missing_and_unknown_features_are_named() -> None:
    with pytest.raises(InputError, match="hours: missing"):
        context_vector({"age": 1}, FEATURES)
    with pytest.raises(InputError, match="weight: the experiment has no such feature"):
        context_vector({"age": 1, "hours": 1, "weight": 81}, FEATURES)


def test_an_experiment_without_features_takes_an_empty_context() -> None:
    assert context_vector({}, {}).shape == (1, 0)
    with pytest.raises(InputError, match=r"age: the experiment has no such feature .*no features"):
        context_vector({"age": 41}, {})
