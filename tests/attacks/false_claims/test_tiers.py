"""A server misstates in its privacy record what people of a tier were promised, or how their reports were made."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from privateer_core.errors import SpecError
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import make_spec

TIERS = [{"name": "generous", "epsilon": 4.0, "share": 0.3}, {"name": "careful", "epsilon": 0.5, "share": 0.2}]


def record_of(spec: Spec, rounds: int = 2) -> dict[str, Any]:
    terms = describe_terms(Schedule(spec).open(1).policy.terms)
    facts = msgspec.structs.asdict(terms)
    rows = [
        Row(version=version, received=facts["batch_size"], released=True, **facts) for version in range(1, rounds + 1)
    ]
    return dict(msgspec.json.decode(msgspec.json.encode(make_record(spec, {"": rows}))))


@pytest.fixture
def record() -> dict[str, Any]:
    return record_of(make_spec({"privacy.tiers": TIERS}))


@pytest.mark.parametrize("rounds", [0, 2])
def test_a_true_record_has_a_certificate_for_every_tier(rounds: int) -> None:
    certificates = read_certificates(record_of(make_spec({"privacy.tiers": TIERS}), rounds))
    assert {name: certificate.claims[0].epsilon for name, certificate in certificates.items()} == {
        "": 1.0,
        "generous": 4.0,
        "careful": 0.5,
    }


def test_a_record_without_tiers_says_nothing_of_them() -> None:
    assert "tiers" not in record_of(make_spec())


def channel(index: int, **changes: Any) -> Callable[[dict[str, Any]], object]:
    """Change a channel in the first round's row, for people of all tiers."""

    def change(record: dict[str, Any]) -> None:
        for promise in (record, *record["tiers"]):
            promise["rounds"][0]["mechanism"]["channels"][index] |= changes

    return change


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a promise that is not the spec's": lambda record: record["tiers"][0].update(epsilon=2.0),
    "a tier that is not listed": lambda record: record["tiers"].pop(),
    "a tier of another name": lambda record: record["tiers"][0].update(name="else"),
    "no tiers in the promise": lambda record: record["privacy"].pop("tiers"),
    "a round less": lambda record: record["tiers"][0]["rounds"].pop(),
    "a lower tier's channel": lambda record: record["tiers"][0]["rounds"][0]["mechanism"].update(tier=2),
    "no such tier": lambda record: record["tiers"][0]["rounds"][0]["mechanism"].update(tier=3),
    "a channel of a larger epsilon": channel(2, epsilon=0.6),
    "a channel of a larger epsilon for all others": channel(0, epsilon=1.1),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_false_record_is_refused(record: dict[str, Any], lie: Callable[[dict[str, Any]], object]) -> None:
    assert read_certificates(record)
    lie(record)
    with pytest.raises(SpecError):
        read_certificates(record)
