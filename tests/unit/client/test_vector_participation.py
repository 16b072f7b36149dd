"""A device in a round that asks for vectors recomputes the publication, and sends reports of equal size."""

from typing import Any

import numpy as np
import pytest

from privateer_client.participation import Participation
from privateer_core.errors import PrivateerError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.publication import hpke_info, split_bytes
from privateer_server.intake.decryption import Decryptor
from tests.support.phased import phased_spec, small_spec
from tests.support.publications import KEY, published

TRUST = ["none", "central", "local", "local-normal", "shuffle"]
WIDE = Limits(
    epsilon=float("inf"), delta=0.3, local_epsilon=float("inf"), honest_fraction=1, min_batch=2, allow_central=True
)
REDUCED = {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.6}


def join_round(trust: str, **lies: Any) -> Participation:
    return Participation(published(small_spec(trust), **lies), "test", WIDE)


@pytest.mark.parametrize("trust", TRUST)
def test_honest_rounds_are_followed(trust: str) -> None:
    part = join_round(trust)
    draw = part.policy.draw
    assert part.is_report_requested
    assert draw is not None
    assert part.round.batch_size == part.spec.first_batch("")
    assert sum(draw.is_invited(number) for number in range(5000)) == draw.places


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("shuffle", {"terms": {"epsilon": 3.0}}, "epsilon"),
    ("shuffle", {"terms": {"delta": 1e-9}}, "delta"),
    ("shuffle", {"terms": {"honest": 1000}}, "honest"),
    ("shuffle", {"terms": {"calibration": "published"}}, "calibration"),
    ("shuffle", {"mechanism": {"bits": 40}, "round_": {"messages": 4 * 46, "groups": 1}}, "messages"),
    ("shuffle", {"mechanism": {"probability": 0.01}}, "delta"),
    ("shuffle", {"mechanism": {"probability": float("nan")}}, "levels"),
    ("shuffle", {"mechanism": {"levels": -1}}, "levels"),
    ("shuffle", {"round_": {"batch_size": 1000}}, "batch_size"),
    ("shuffle", {"round_": {"messages": 1, "groups": 1}}, "messages"),
    ("shuffle", {"round_": {"groups": 1}}, "groups"),
    ("shuffle", {"round_": {"least": 11, "deadline": 5}}, "deadline"),
    ("shuffle", {"round_": {"sealed_size": 66}}, "sealed_size"),
    ("shuffle", {"round_": {"version": 2}}, "version"),
    ("local-normal", {"mechanism": {"standard_deviation": 1.0}}, "delta"),
    ("local-normal", {"mechanism": {"standard_deviation": float("inf")}}, "standard_deviation"),
    ("local", {"terms": {"epsilon": float("nan")}}, "epsilon"),
    ("local", {"mechanism": {"directions": 1 << 40}}, "symbols"),
    ("central", {"mechanism": {"standard_deviation": 0.0}}, "delta"),
    ("central", {"mechanism": {"standard_deviation": 1.0}}, "delta"),
]


@pytest.mark.parametrize(("trust", "lies", "field"), LIES)
def test_every_changed_field_of_a_round_is_refused(trust: str, lies: dict[str, Any], field: str) -> None:
    with pytest.raises(TermsRefused) as refusal:
        join_round(trust, **lies)
    assert refusal.value.field == field


CONTRADICTIONS: list[dict[str, Any]] = [
    {"draw": {"places": 4000}},
    {"draw": {"start": 4990}},
    {"draw": {"people": 4999}},
    {"draw": {"people": 1 << 40}},
    {"draw": {"seed": -1}},
    {"policy": {"draw": None}},
    {"mechanism": {"ball": {"norm": "max", "bound": 0.5, "coordinates": 4}}},
    {"policy": {"middle": 0.5}},
]


@pytest.mark.parametrize("lies", CONTRADICTIONS)
@pytest.mark.parametrize("trust", ["local", "central"])
def test_a_policy_that_contradicts_its_spec_is_refused(trust: str, lies: dict[str, Any]) -> None:
    with pytest.raises(PrivateerError):
        join_round(trust, **lies)


def test_a_round_that_may_close_with_fewer_people_counts_on_fewer() -> None:
    spec = small_spec("shuffle", REDUCED)
    min_participants = Participation(published(spec), "test", WIDE).round.least
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(spec, round_={"least": min_participants - 1}), "test", WIDE)
    assert refusal.value.field in ("honest", "least")


@pytest.mark.parametrize("bits", [1, 8])
def test_too_few_bits_are_refused_by_their_true_delta(bits: int) -> None:
    mechanism: Any = join_round("shuffle").terms.mechanism
    messages = mechanism.ball.coordinates * (mechanism.levels + bits)
    with pytest.raises(TermsRefused, match="in truth, promised is"):
        join_round("shuffle", mechanism={"bits": bits}, round_={"messages": messages})


@pytest.mark.parametrize("trust", ["shuffle", "local"])
def test_a_curators_mechanism_is_refused_where_nobody_is_trusted(trust: str) -> None:
    record = {"type": "central-vectors", "standard_deviation": 0.0}
    ball = {"norm": "max", "bound": 1.0, "coordinates": len(join_round(trust).policy.decide(*empty_contexts()).actions)}
    sizes = {"messages": 1, "groups": 1, "sealed_size": 64 + 4 * ball["coordinates"]}
    with pytest.raises(TermsRefused) as refusal:
        join_round(trust, terms={"mechanism": record | {"ball": ball}}, round_=sizes)
    assert refusal.value.field == "mechanism"


@pytest.mark.parametrize(
    ("trust", "limit", "field"),
    [
        ("shuffle", {"local_epsilon": 6.0}, "local_epsilon"),
        ("shuffle", {"epsilon": 1.0}, "epsilon"),
        ("shuffle", {"delta": 1e-9}, "delta"),
        ("shuffle", {"honest_fraction": 0.5}, "honest_fraction"),
        ("shuffle", {"min_batch": 1000}, "batch_size"),
        ("local", {"local_epsilon": 1.0}, "local_epsilon"),
        ("central", {"allow_central": False}, "model"),
    ],
)
def test_rounds_beyond_the_devices_limits_are_refused(trust: str, limit: dict[str, Any], field: str) -> None:
    usual = {name: getattr(WIDE, name) for name in WIDE.__dataclass_fields__}
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(small_spec(trust)), "test", Limits(**(usual | limit)))
    assert refusal.value.field == field


def empty_contexts(people: int = 0) -> tuple[Any, Any]:
    """Return contexts without features, and coins."""
    return np.zeros((people, 0)), np.zeros(people, np.uint32)


@pytest.mark.parametrize("trust", TRUST)
def test_reports_of_all_people_have_one_size_and_open(trust: str) -> None:
    """Averages at the ends of the range, beyond it, and in the middle."""
    part = join_round(trust)
    contexts, coins = empty_contexts(3)
    plays: Any = part.decide(contexts, coins)
    actions = len(plays.actions)
    averages = np.array([[-1.0] * actions, [0.0] * actions, [1e9] * actions])
    reports = part.make_reports(contexts, coins, plays, averages)
    assert {len(report) for report in reports} == {part.round.report_size}
    opened = Decryptor(KEY).decrypt(
        split_bytes(reports[2], part.round.sealed_size), hpke_info(part.header, part.round.model)
    )
    assert len(opened) == part.round.messages
    part.terms.mechanism.parse(b"".join(message[16:] for message in opened))


def test_another_round_invites_other_participants() -> None:
    """Every participant number is invited to at most a single round, in any order of rounds."""
    spec = phased_spec({"algorithm.participants_factor": 2})
    now = Participation(published(spec), "test", WIDE).policy.draw
    later = Participation(published(spec, draw={"start": now.places}), "test", WIDE).policy.draw
    assert later is not None
    assert not any(now.is_invited(number) and later.is_invited(number) for number in range(now.people))


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_a_seed_out_of_range_is_refused_before_payment(trust: str) -> None:
    with pytest.raises(PrivateerError):
        join_round(trust, draw={"seed": -1})
    if trust == "local":
        with pytest.raises(PrivateerError):
            join_round(trust, mechanism={"seed": -1})


def test_malformed_publications_raise_privateer_errors() -> None:
    good = published(small_spec("shuffle"))
    for cut in range(0, len(good), 97):
        with pytest.raises(PrivateerError):
            Participation(good[:cut], "test", WIDE)
