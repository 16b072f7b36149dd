"""Contexts are encoded; errors name features and never values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from privateer_client.inputs import clipped_features, context_vector
from privateer_core.errors import InputError, UnfitValueWarning
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
    assert context_vector({"hours": 20, "age": 100}, FEATURES).tolist() == [[1.0, 0.25]]
    assert context_vector({"hours": np.int64(-5), "age": float("-inf")}, FEATURES).tolist() == [[0.0, 0.0]]


def test_a_device_passes_what_it_has() -> None:
    assert context_vector(WHOLE, MIXED).tolist() == [[0.0, 0.0, 38 / 80, 0.0, 1.0]]
    assert context_vector({"premium": 0, "hours": None, "country": "ES"}, MIXED).tolist() == [[1.0, 1.0, 0.5, 1.0, 0.0]]
    assert context_vector(WHOLE | {"hours": float("nan")}, MIXED)[0, 3] == 1.0


@pytest.mark.parametrize("value", [float("nan"), "41", None, True, [41], 10**400, 41j, object()])
def test_what_is_no_number_is_named_and_not_echoed(value: object) -> None:
    with pytest.warns(UnfitValueWarning, match="age: .* as if it were missing") as told:
        assert context_vector({"age": value, "hours": 20}, FEATURES).tolist() == [[0.5, 0.25]]
    assert "41" not in str(told[0].message)


OTHER, PLACES = [1.0, 1.0], [0.0, 0.0, 38 / 80, 0.0, 1.0]
UNFIT = [
    ("country", 31, OTHER + PLACES[2:]),
    ("country", None, OTHER + PLACES[2:]),
    ("premium", "secret", [*PLACES[:4], 0.0]),
    ("premium", None, [*PLACES[:4], 0.0]),
    ("hours", "x", [0.0, 0.0, 0.5, 1.0, 1.0]),
]


@pytest.mark.parametrize(("name", "value", "places"), UNFIT)
def test_what_is_of_another_kind_counts_as_missing_and_is_not_echoed(
    name: str, value: object, places: list[float]
) -> None:
    with pytest.warns(UnfitValueWarning, match=f"{name}: ") as told:
        assert context_vector(WHOLE | {name: value}, MIXED).tolist() == [places]
    assert "secret" not in str(told[0].message)
    assert "\n" not in str(told[0].message)


def test_missing_and_unknown_features_are_named() -> None:
    with pytest.raises(InputError, match="hours: missing"):
        context_vector({"age": 1}, FEATURES)
    with pytest.raises(InputError, match=r"hours: missing .*None says that it is not known"):
        context_vector({"country": "NL", "premium": True}, MIXED)
    with pytest.raises(InputError, match="weight: the experiment has no such feature"):
        context_vector({"age": 1, "hours": 1, "weight": 81}, FEATURES)
    with pytest.raises(InputError, match="3: the experiment has no such feature"):
        context_vector({"age": 1, "hours": 1, 3: 81}, FEATURES)  # type: ignore[dict-item]


@pytest.mark.parametrize("context", [[20, 30], "age", None, 3])
def test_what_is_no_mapping_is_refused(context: Any) -> None:
    with pytest.raises(InputError, match="context: must be a mapping"):
        context_vector(context, FEATURES)


def test_an_experiment_without_features_takes_an_empty_context() -> None:
    assert context_vector({}, {}).shape == (1, 0)
    with pytest.raises(InputError, match=r"age: the experiment has no such feature .*no features"):
        context_vector({"age": 41}, {})


def test_any_mapping_will_do() -> None:
    class Row(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return WHOLE[name]

        def __iter__(self) -> Any:
            return iter(WHOLE)

        def __len__(self) -> int:
            return len(WHOLE)

    assert context_vector(Row(), MIXED).shape == (1, 5)


def test_what_is_clipped_is_named():
    assert clipped_features({"hours": 20, "age": 1000}, FEATURES) == ("age",)
    assert clipped_features({"hours": float("-inf"), "age": float("inf")}, FEATURES) == tuple(FEATURES)
    assert clipped_features({"hours": "many", "age": float("nan")}, FEATURES) == ()
    assert clipped_features(WHOLE, MIXED) == ()
