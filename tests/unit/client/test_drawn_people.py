"""A device in a round with a public draw computes whether it is invited, and pays and sends only then."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import AsyncClient, Client, Ledger, ReportStatus
from privateer_core.algorithms.phased import PhasedPolicy
from privateer_core.errors import InputError, InvalidValueWarning, TermsRefused
from privateer_core.policies.policy import Arms
from privateer_core.wire.publication import decode_envelope
from tests.support.devices import Drawn
from tests.support.notary import notarized
from tests.support.phased import LIMITS, small_spec
from tests.support.publications import OVER, parts, published
from tests.support.statistics import is_compatible


class Service:
    """A publication, and an endpoint that takes every report and remembers it."""

    def __init__(self, publication: bytes, status: int = 202) -> None:
        self.publication, self.status = publication, status
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=self.publication)
        self.bodies.append(request.content)
        return httpx.Response(self.status)


def client(service: Service, ledger: Ledger) -> Client:
    transport = notarized(service)
    return Client("http://server", shuffler="http://shuffler", limits=LIMITS, ledger=ledger, transport=transport)


def ledger_at_place(folder: Path, publication: bytes, place: int) -> Drawn:
    """Return a ledger whose device has this place in the order of the publication's draw."""
    return Drawn(folder / "ledger.db", publication, place)


def test_an_invited_participant_reports_once(tmp_path: Path) -> None:
    service = Service(published(small_spec("local")))
    ledger = ledger_at_place(tmp_path, service.publication, 0)
    session = client(service, ledger).join("test")
    plays = session.choose()
    assert session.report_requested
    assert all(times >= 1 for times in plays.values())
    assert session.report(dict.fromkeys(plays, 2.0)) is ReportStatus.ACCEPTED
    assert session.clipped
    assert not session.report_requested
    facts, _ = parts(small_spec("local"))
    (body,) = service.bodies
    assert len(decode_envelope(body).sealed) == facts["messages"] * facts["sealed_size"]
    assert session.report(dict.fromkeys(plays, 0.0)) is ReportStatus.ALREADY_REPORTED
    assert not client(service, ledger).join("test").report_requested
    (payment,) = ledger.payments()
    assert (payment.epsilon, payment.local_epsilon, payment.model) == (4.0, 4.0, "local")


async def test_a_report_needs_no_choice_where_all_play_the_same(tmp_path: Path) -> None:
    service = Service(published(small_spec("shuffle")))
    ledger = ledger_at_place(tmp_path, service.publication, 0)
    transport = notarized(service)
    async with AsyncClient(
        "http://s", shuffler="http://m", limits=LIMITS, ledger=ledger, transport=transport
    ) as device:
        rows = await (await device.join("test")).choose()
        session = await device.join("test")
        assert await session.report(dict.fromkeys(rows, 0.0)) is ReportStatus.ACCEPTED
    assert not session.clipped
    assert len(service.bodies) == 1


def test_an_individual_arm_must_be_chosen_before_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(published(small_spec("local")))
    ledger = ledger_at_place(tmp_path, service.publication, 0)
    session = client(service, ledger).join("test")
    rows = session.choose()
    session.forget()
    monkeypatch.setattr(PhasedPolicy, "decide", lambda *_: Arms(np.zeros(1, np.int64)))
    with pytest.raises(InputError, match="choose an arm first"):
        client(service, ledger).join("test").report(dict.fromkeys(rows, 0.0))
    assert (ledger.payments(), service.bodies) == ([], [])


def test_a_participant_without_invitation_pays_and_sends_nothing(tmp_path: Path) -> None:
    service = Service(published(small_spec("local")))
    ledger = ledger_at_place(tmp_path, service.publication, -1)
    session = client(service, ledger).join("test")
    assert not session.report_requested
    assert session.report(dict.fromkeys(session.choose(), 0.0)) is ReportStatus.NOT_REQUESTED
    assert service.bodies == []
    assert ledger.payments() == []


def test_a_device_looks_up_its_own_number_in_the_draw(tmp_path: Path) -> None:
    """Of 40 devices each knows whether it is asked, and no two ways to find out differ."""
    service = Service(published(small_spec("local", {"experiment.participants": 400})))
    for person in range(40):
        ledger = Ledger(tmp_path / f"{person}.db")
        session = client(service, ledger).join("test")
        policy = session._participation.policy
        number = ledger.draw_number("http://server/test", policy.draw.seed, policy.draw.people)
        assert session.report_requested == (number in policy.draw.select_participants())


def test_a_finished_experiment_asks_nobody(tmp_path: Path) -> None:
    over = published(small_spec("none"), draw={"places": 0}, **OVER)
    ledger = Ledger(tmp_path / "ledger.db")
    session = client(Service(over), ledger).join("test")
    assert not session.report_requested
    assert session.report(dict.fromkeys(session.choose(), 0.0)) is ReportStatus.NOT_REQUESTED
    assert ledger.payments() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda averages: averages.popitem(),
        lambda averages: averages.update({999: 0.5}),
        lambda averages: averages.update({next(iter(averages)): float("nan")}),
        lambda averages: averages.update({next(iter(averages)): "0.5"}),
        lambda averages: averages.update({next(iter(averages)): None}),
    ],
)
def test_an_invalid_observation_counts_as_no_outcome(tmp_path: Path, change: Any) -> None:
    service = Service(published(small_spec("local")))
    ledger = ledger_at_place(tmp_path, service.publication, 0)
    session = client(service, ledger).join("test")
    averages = dict.fromkeys(session.choose(), 0.25)
    change(averages)
    with pytest.warns(InvalidValueWarning, match="no outcome") as caught:
        assert session.report(averages) is ReportStatus.ACCEPTED
    assert "0.25" not in str(caught[0].message)
    assert (len(ledger.payments()), len(service.bodies)) == (1, 1)


@pytest.mark.parametrize("wrong", [None, 5, 0.5, [1], {}, "text"])
def test_a_malformed_mapping_of_averages_counts_as_no_outcome(tmp_path: Path, wrong: Any) -> None:
    service = Service(published(small_spec("local")))
    ledger = ledger_at_place(tmp_path, service.publication, 0)
    with pytest.warns(InvalidValueWarning, match="no outcome"):
        assert client(service, ledger).join("test").report(wrong) is ReportStatus.ACCEPTED
    assert (len(ledger.payments()), len(service.bodies)) == (1, 1)


def test_a_device_keeps_its_number_and_refuses_another_draw(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    number = ledger.draw_number("http://s/a", 5, 1000)
    assert Ledger(tmp_path / "ledger.db").draw_number("http://s/a", 5, 1000) == number
    for seed, people in ((6, 1000), (5, 1001)):
        with pytest.raises(TermsRefused, match="draw of people") as refusal:
            ledger.draw_number("http://s/a", seed, people)
        assert refusal.value.field == "seed"


def test_a_session_refuses_another_draw(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    client(Service(published(small_spec("local"))), ledger).join("test")
    other = published(small_spec("local"), draw={"seed": 12345})
    with pytest.raises(TermsRefused, match="draw of people"):
        client(Service(other), ledger).join("test")


def test_numbers_are_uniform(tmp_path: Path) -> None:
    """Of 4 people, 400 devices: false alarms 1e-6; the planted draw, of one in two, is caught for certain."""
    ledger = Ledger(tmp_path / "ledger.db")
    counts = np.bincount([ledger.draw_number(f"http://s/{i}", 5, 4) for i in range(400)], minlength=4)
    assert is_compatible(counts, np.full(4, 100.0))
    assert not is_compatible(np.array([200, 67, 67, 66]), np.full(4, 100.0))
