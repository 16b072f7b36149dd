"""Features, outcomes and points that an application passes to a client."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_client.delivery import EndpointAnswer, judge_answer, refusal_status
from privateer_client.inputs import encode_context, list_clipped_features
from privateer_client.ledger.choice import encode_choice
from privateer_client.participation import Participation, StoredChoice
from privateer_client.states import ReportStatus
from privateer_core.algorithms.convex.spec import ConvexSpec
from privateer_core.codec import decode
from privateer_core.errors import InputError, InvalidValueWarning, PrivateerError, ReportRefused
from privateer_core.spec.features import Numeric
from privateer_core.wire.problem import problem_type
from tests.support.experiments import OPEN
from tests.support.publications import published
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
def test_a_value_of_another_kind_counts_as_missing_and_is_not_echoed(name, value, places):
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


def endpoint_response(status: int, slug: str = "", **members: object) -> EndpointAnswer:
    return EndpointAnswer(status, msgspec.json.encode({"type": problem_type(slug)} | members))


def slugs(error: type[PrivateerError]) -> set[str]:
    return {error.slug}.union(*(slugs(kind) for kind in error.__subclasses__() if kind.__module__ == error.__module__))


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (None, "pending", None),
        (EndpointAnswer(202), "accepted", None),
        (EndpointAnswer(200, b"<html>"), "pending", "unknown"),
        (EndpointAnswer(204), "pending", "unknown"),
        (EndpointAnswer(307), "pending", "unknown"),
        (EndpointAnswer(400, b"<html>"), "pending", "unknown"),
        (endpoint_response(409, "duplicate-report"), "accepted", None),
        (endpoint_response(409, "round-closed"), "late", "round-closed"),
        (endpoint_response(500, "round-closed"), "pending", "round-closed"),
        (endpoint_response(200, "round-closed"), "pending", "round-closed"),
        (endpoint_response(409, "round-unknown"), "pending", "round-unknown"),
        (endpoint_response(429, "malformed-report"), "pending", "malformed-report"),
        (endpoint_response(400, "malformed-report"), "refused", "malformed-report"),
        (endpoint_response(404, "not-found"), "pending", "not-found"),
        (endpoint_response(503, "unavailable"), "pending", "unavailable"),
    ],
)
def test_only_a_verdict_on_the_report_is_final(answer: EndpointAnswer | None, outcome: str, reason: str | None) -> None:
    assert judge_answer(answer) == (outcome, reason)


def test_every_refusal_of_a_report_is_final_but_those_that_are_not_about_the_report() -> None:
    """A reason that is added to the errors has to be judged here, too."""
    waits = {slug for slug in slugs(ReportRefused) if refusal_status(slug) is ReportStatus.PENDING}
    tokens = {f"token-{reason}" for reason in ("refused", "missing", "invalid", "wrong-audience", "expired", "spent")}
    assert waits == {"round-unknown", "sender-refused"} | tokens
    others = slugs(PrivateerError) - slugs(ReportRefused)
    assert {slug for slug in others if refusal_status(slug) is not ReportStatus.PENDING} == {
        "too-large",
        "terms-refused",
        "spec-invalid",
        "deleted",
    }


SPECS = ConvexSpec.instances()


def choice(name: str, coins: int) -> StoredChoice:
    followed = Participation(published(SPECS[name]), "test", OPEN)
    return StoredChoice.decide(followed, np.zeros((1, 0)), np.array([coins], np.uint32), 1e6)


@pytest.mark.parametrize("name", ["local", "local-ellipsoid"])
def test_points_are_kept_as_they_were_shown(name: str) -> None:
    choices = [choice(name, coins) for coins in range(30)]
    for stored in choices:
        read = decode(encode_choice(stored), StoredChoice)
        assert read.display_value == stored.display_value
        assert not read.is_common
        points = list(stored.display_value.values()) if name == "local" else [stored.display_value]
        assert SPECS[name].domain.contains(np.array(points))
    assert len({len(encode_choice(stored)) for stored in choices}) == 1
    assert len({repr(stored.display_value) for stored in choices}) == 4  # the sides of two axes


def test_a_choice_that_was_kept_before_there_were_points_is_read() -> None:
    stored = choice("local", 1)
    tables = msgspec.msgpack.decode(encode_choice(stored))
    del tables["points"]
    assert set(stored.__struct_fields__) - set(tables) == {"points"}
    assert decode(msgspec.msgpack.encode(tables), StoredChoice).points.size == 0
