"""A device in a phase: it recomputes what it is told, knows for itself whether it is asked, and tells one size."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer.errors import AlreadyReported, InputError, PrivateerError, TermsRefused
from privateer.verification import Limits
from privateer.wire.envelope import binding, decode_envelope, pieces
from privateer_client import Client, Ledger, Outcome
from privateer_client.phase import Phase
from privateer_server.opening import Opener
from tests.support.phased import phased_spec
from tests.support.phases import KEY, LIMITS, published, small_spec
from tests.support.publications import published as published_arms
from tests.support.specs import make_spec
from tests.support.statistics import fits

TRUST = ["none", "central", "local", "local-normal", "shuffle"]
WIDE = Limits(epsilon=float("inf"), delta=0.3, local_epsilon=float("inf"), honest_fraction=1, min_batch=2, curator=True)


@pytest.mark.parametrize("trust", TRUST)
def test_honest_phases_are_followed(trust: str) -> None:
    phase = Phase(published(small_spec(trust)), "test", WIDE)
    assert phase.round.batch == phase.spec.clients(1)
    assert sum(phase.asks(number) for number in range(5000)) == phase.policy.places


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("shuffle", {"terms": {"epsilon": 3.0}}, "epsilon"),
    ("shuffle", {"terms": {"delta": 1e-9}}, "delta"),
    ("shuffle", {"terms": {"honest": 1000}}, "honest"),
    ("shuffle", {"terms": {"bound": 0.5}}, "bound"),
    ("shuffle", {"terms": {"mechanism": "curated"}}, "messages"),
    ("shuffle", {"terms": {"calibration": "published"}}, "calibration"),
    ("shuffle", {"terms": {"bits": 40}, "round_": {"messages": 4 * 46}}, "messages"),
    ("shuffle", {"terms": {"probability": 0.01}}, "delta"),
    ("shuffle", {"terms": {"probability": float("nan")}}, "mechanism"),
    ("shuffle", {"terms": {"levels": -1}}, "messages"),
    ("shuffle", {"policy": {"places": 4000}}, "places"),
    ("shuffle", {"policy": {"start": 4990}}, "people"),
    ("shuffle", {"policy": {"middle": 0.1}}, "middle"),
    ("shuffle", {"round_": {"batch": 1000}}, "batch"),
    ("shuffle", {"round_": {"messages": 1}}, "messages"),
    ("shuffle", {"round_": {"least": 11, "deadline": 5}}, "honest"),
    ("shuffle", {"round_": {"sealed_size": 66}}, "sealed_size"),
    ("shuffle", {"round_": {"version": 2}}, "version"),
    ("local-normal", {"terms": {"standard_deviation": 1.0}}, "delta"),
    ("local-normal", {"terms": {"standard_deviation": float("inf")}}, "standard_deviation"),
    ("local", {"terms": {"epsilon": float("nan")}}, "epsilon"),
    ("local", {"terms": {"directions": 1 << 40}}, "directions"),
    ("local", {"terms": {"mechanism": "curated"}}, "mechanism"),
    ("central", {"terms": {"standard_deviation": 0.0}}, "delta"),
    ("central", {"terms": {"standard_deviation": 1.0}}, "delta"),
]


@pytest.mark.parametrize(("trust", "lies", "field"), LIES)
def test_every_lie_is_refused(trust: str, lies: dict[str, Any], field: str) -> None:
    with pytest.raises(TermsRefused) as refusal:
        Phase(published(small_spec(trust), **lies), "test", WIDE)
    assert refusal.value.field == field


@pytest.mark.parametrize("bits", [1, 8])
def test_too_few_bits_are_refused_by_what_they_give(bits: int) -> None:
    spec = small_spec("shuffle")
    true = Phase(published(spec), "test", WIDE).terms
    messages = true.coordinates * (true.levels + bits)
    with pytest.raises(TermsRefused, match="the noise gives delta"):
        Phase(published(spec, terms={"bits": bits}, round_={"messages": messages}), "test", WIDE)


@pytest.mark.parametrize(
    ("trust", "limit", "field"),
    [
        ("shuffle", {"local_epsilon": 6.0}, "local_epsilon"),
        ("shuffle", {"epsilon": 1.0}, "epsilon"),
        ("shuffle", {"delta": 1e-9}, "delta"),
        ("shuffle", {"honest_fraction": 0.5}, "honest_fraction"),
        ("shuffle", {"min_batch": 1000}, "batch"),
        ("local", {"local_epsilon": 1.0}, "local_epsilon"),
        ("central", {"curator": False}, "model"),
    ],
)
def test_what_is_beyond_the_devices_limits_is_refused(trust: str, limit: dict[str, Any], field: str) -> None:
    usual = {name: getattr(WIDE, name) for name in WIDE.__dataclass_fields__}
    with pytest.raises(TermsRefused) as refusal:
        Phase(published(small_spec(trust)), "test", Limits(**(usual | limit)))
    assert refusal.value.field == field


def test_families_are_told_apart(tmp_path: Path) -> None:
    answers = {"test": published(small_spec("local"))}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answers["test"]))
    ledger = Ledger(tmp_path / "ledger.db")
    with Client("http://server", limits=WIDE, ledger=ledger, transport=transport) as client:
        with pytest.raises(InputError, match="join_phase"):
            client.join("test")
        answers["test"] = published_arms(make_spec())
        with pytest.raises(InputError, match="call join,"):
            client.join_phase("test")


@pytest.mark.parametrize("trust", TRUST)
def test_reports_of_all_people_have_one_size_and_open(trust: str) -> None:
    """Averages at the ends of the range, beyond it, and in the middle."""
    phase = Phase(published(small_spec(trust)), "test", WIDE)
    actions = len(phase.policy.support)
    sent = phase.reports(np.array([[-1.0] * actions, [0.0] * actions, [1e9] * actions]))
    assert {len(one) for one in sent} == {phase.round.report_size}
    opened = Opener(KEY).open(pieces(sent[2], phase.round.sealed_size), binding(phase.header, phase.round.model))
    assert len(opened) == phase.round.messages
    phase.policy.mechanism.parse(b"".join(one[16:] for one in opened))


class _Person:
    """A device whose requests are kept."""

    def __init__(self, folder: Path, publication: bytes, status: int = 202) -> None:
        self.bodies: list[bytes] = []
        self.publication, self.status = publication, status
        self.client = Client(
            "http://server",
            shuffler="http://shuffler",
            limits=LIMITS,
            ledger=Ledger(folder / "ledger.db"),
            transport=httpx.MockTransport(self._answer),
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=self.publication)
        self.bodies.append(request.content)
        return httpx.Response(self.status)


def test_four_lines(tmp_path: Path) -> None:
    spec = small_spec("local")
    person = _Person(tmp_path, published(spec))
    session = person.client.join_phase("test")
    phase = Phase(person.publication, "test", LIMITS)
    assert session.plays == phase.plays
    number = Ledger(tmp_path / "ledger.db").number("http://server/test", phase.policy.seed, spec.experiment.people)
    assert session.asked == phase.asks(number)
    session.asked = True
    assert session.report(dict.fromkeys(session.plays, 2.0)) is Outcome.ACCEPTED
    assert session.clipped
    (body,) = person.bodies
    assert len(decode_envelope(body).sealed) == phase.round.report_size
    with pytest.raises(AlreadyReported):
        session.report(dict.fromkeys(session.plays, 0.0))
    assert not person.client.join_phase("test").asked
    (payment,) = Ledger(tmp_path / "ledger.db").payments()
    assert (payment.epsilon, payment.local_epsilon, payment.model) == (4.0, 4.0, "local")


def test_who_is_not_asked_pays_and_sends_nothing(tmp_path: Path) -> None:
    person = _Person(tmp_path, published(small_spec("local")))
    session = person.client.join_phase("test")
    session.asked = False
    assert session.report(dict.fromkeys(session.plays, 0.0)) is Outcome.NOT_ASKED
    assert person.bodies == []
    assert Ledger(tmp_path / "ledger.db").payments() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.popitem(),
        lambda told: told.update({999: 0.5}),
        lambda told: told.update({next(iter(told)): float("nan")}),
        lambda told: told.update({next(iter(told)): "0.5"}),
        lambda told: told.update({next(iter(told)): None}),
    ],
)
def test_what_is_no_observation_is_refused_unpaid(tmp_path: Path, change: Any) -> None:
    person = _Person(tmp_path, published(small_spec("local")))
    session = person.client.join_phase("test")
    session.asked, told = True, dict.fromkeys(session.plays, 0.25)
    change(told)
    with pytest.raises(InputError) as refusal:
        session.report(told)
    assert refusal.value.field == "averages"
    assert "0.25" not in str(refusal.value)
    assert Ledger(tmp_path / "ledger.db").payments() == []


def test_a_device_keeps_its_number_and_refuses_another_draw(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    number = ledger.number("http://s/a", 5, 1000)
    assert Ledger(tmp_path / "ledger.db").number("http://s/a", 5, 1000) == number
    for seed, people in ((6, 1000), (5, 1001)):
        with pytest.raises(TermsRefused, match="draw of people") as refusal:
            ledger.number("http://s/a", seed, people)
        assert refusal.value.field == "seed"


def test_numbers_are_uniform(tmp_path: Path) -> None:
    """Of 4 people, 400 devices: false alarms 1e-6; the planted draw, of one in two, is caught for certain."""
    ledger = Ledger(tmp_path / "ledger.db")
    counts = np.bincount([ledger.number(f"http://s/{i}", 5, 4) for i in range(400)], minlength=4)
    assert fits(counts, np.full(4, 100.0))
    assert not fits(np.array([200, 67, 67, 66]), np.full(4, 100.0))


def test_another_phase_asks_other_people() -> None:
    """Every number is in one phase at most, whichever order the device learns of them in."""
    spec = phased_spec({"algorithm.clients": 2})
    phase = Phase(published(spec), "test", WIDE)
    later = Phase(published(spec, policy={"start": phase.policy.places}), "test", WIDE)
    numbers = range(spec.experiment.people)
    assert not any(phase.asks(number) and later.asks(number) for number in numbers)


def test_a_finished_experiment_asks_nobody(tmp_path: Path) -> None:
    spec = small_spec("none")
    over = published(spec, terms={"batch": 0}, policy={"places": 0}, round_={"batch": 0, "least": 0, "deadline": 0})
    session = _Person(tmp_path, over).client.join_phase("test")
    assert not session.asked
    assert session.report(dict.fromkeys(session.plays, 0.0)) is Outcome.NOT_ASKED


def test_malformed_publications_are_errors_of_ours() -> None:
    good = published(small_spec("shuffle"))
    for cut in range(0, len(good), 97):
        with pytest.raises(PrivateerError):
            Phase(good[:cut], "test", WIDE)
