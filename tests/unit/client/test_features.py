"""Contexts are encoded; errors name features and never values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from privateer_client.inputs import encode_context, list_clipped_features
from privateer_core.errors import InputError, InvalidValueWarning
from privateer_core.spec.features import Numeric
from tests.support.specs import make_spec

FEATURES = {"age": Numeric(low=20, high=60), "hours": Numeric(low=0, high=80)}
MIXED = make_spec(
    {
        "context.features": {
            "country": {"levels": ["NL", "DE", "FR"]},
            "hours": {"low": 0, "high": 80, "missing": True},
            "premium": {"boolean": True},
        }
    }
).features
WHOLE: dict[str, Any] = {"country": "NL", "hours": 38, "premium": True}


def test_features_are_scaled_in_order_and_clipped() -> None:
    assert encode_context({"hours": 20, "age": 100}, FEATURES).tolist() == [[1.0, 0.25]]
    assert encode_context({"hours": np.int64(-5), "age": float("-inf")}, FEATURES).tolist() == [[0.0, 0.0]]


def test_features_of_every_kind_are_encoded() -> None:
    assert encode_context(WHOLE, MIXED).tolist() == [[0.0, 0.0, 38 / 80, 0.0, 1.0]]
    assert encode_context({"premium": 0, "hours": None, "country": "ES"}, MIXED).tolist() == [[1.0, 1.0, 0.5, 1.0, 0.0]]
    assert encode_context(WHOLE | {"hours": float("nan")}, MIXED)[0, 3] == 1.0


@pytest.mark.parametrize("value", [float("nan"), "41", None, True, [41], 10**400, 41j, object()])
def test_a_feature_that_is_no_number_is_named_and_not_echoed(value: object) -> None:
    with pytest.warns(InvalidValueWarning, match="age: .* as if it were missing") as caught:
        assert encode_context({"age": value, "hours": 20}, FEATURES).tolist() == [[0.5, 0.25]]
    assert "41" not in str(caught[0].message)


OTHER, PLACES = [1.0, 1.0], [0.0, 0.0, 38 / 80, 0.0, 1.0]
UNFIT = [
    ("country", 31, OTHER + PLACES[2:]),
    ("country", None, OTHER + PLACES[2:]),
    ("premium", "secret", [*PLACES[:4], 0.0]),
    ("premium", None, [*PLACES[:4], 0.0]),
    ("hours", "x", [0.0, 0.0, 0.5, 1.0, 1.0]),
]


@pytest.mark.parametrize(("name", "value", "places"), UNFIT)
def test_a_value_of_another_kind_counts_as_missing_and_is_not_echoed(
    name: str, value: object, places: list[float]
) -> None:
    with pytest.warns(InvalidValueWarning, match=f"{name}: ") as caught:
        assert encode_context(WHOLE | {name: value}, MIXED).tolist() == [places]
    assert "secret" not in str(caught[0].message)
    assert "\n" not in str(caught[0].message)


def test_missing_and_unknown_features_are_named() -> None:
    with pytest.raises(InputError, match="hours: missing"):
        encode_context({"age": 1}, FEATURES)
    with pytest.raises(InputError, match=r"hours: missing .*None says that it is not known"):
        encode_context({"country": "NL", "premium": True}, MIXED)
    with pytest.raises(InputError, match="weight: the experiment has no such feature"):
        encode_context({"age": 1, "hours": 1, "weight": 81}, FEATURES)
    with pytest.raises(InputError, match="3: the experiment has no such feature"):
        encode_context({"age": 1, "hours": 1, 3: 81}, FEATURES)  # type: ignore[dict-item]


@pytest.mark.parametrize("context", [[20, 30], "age", None, 3])
def test_a_context_that_is_no_mapping_is_refused(context: Any) -> None:
    with pytest.raises(InputError, match="context: must be a mapping"):
        encode_context(context, FEATURES)


def test_an_experiment_without_features_takes_an_empty_context() -> None:
    assert encode_context({}, {}).shape == (1, 0)
    with pytest.raises(InputError, match=r"age: the experiment has no such feature .*no features"):
        encode_context({"age": 41}, {})


def test_any_mapping_is_a_context() -> None:
    class Row(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return WHOLE[name]

        def __iter__(self) -> Any:
            return iter(WHOLE)

        def __len__(self) -> int:
            return len(WHOLE)

    assert encode_context(Row(), MIXED).shape == (1, 5)


def test_clipped_features_are_named():
    assert list_clipped_features({"hours": 20, "age": 1000}, FEATURES) == ("age",)
    assert list_clipped_features({"hours": float("-inf"), "age": float("inf")}, FEATURES) == tuple(FEATURES)
    assert list_clipped_features({"hours": "many", "age": float("nan")}, FEATURES) == ()
    assert list_clipped_features(WHOLE, MIXED) == ()
