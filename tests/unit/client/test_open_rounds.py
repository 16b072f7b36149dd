"""A report goes to the round that is open when it is sent, if that round takes it; else nothing is paid."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Outcome, Session
from privateer_core.errors import RoundClosed, TermsRefused, Unavailable
from privateer_core.verification import Limits
from privateer_core.wire.envelope import decode_envelope
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, digest
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OTHER, Device, Server
from tests.support.publications import OVER, parts, published, shuffle_spec
from tests.support.specs import SHUFFLE, make_spec

SOURCE = {"name": "clinic", "people": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}
LATER = 60.0


@pytest.fixture
def server() -> Server:
    return Server(published(make_spec()))


@pytest.fixture
def device(tmp_path: Path, server: Server) -> Device:
    return Device(tmp_path, server)


def chosen(device: Device, name: str = "test") -> Session[Outcome]:
    session = device.start().join(name)
    session.choose(CONTEXT)
    return session


def test_a_publication_of_just_now_is_not_fetched_again(device: Device, server: Server) -> None:
    session = chosen(device)
    device.clock.time += 2.9
    assert session.report(1.0) is Outcome.ACCEPTED
    assert server.asked == [None]


def test_a_round_that_is_still_open_sends_nothing_again(device: Device, server: Server) -> None:
    session = chosen(device)
    device.clock.time += LATER
    assert session.report(1.0) is Outcome.ACCEPTED
    assert server.asked == [None, f'"{digest(server.body).hex()}"']
    assert decode_envelope(server.sent[0]).header.digest == digest(server.body)


@pytest.mark.parametrize("step", [LATER, -LATER])
def test_a_device_that_slept_asks_again(device: Device, server: Server, step: float) -> None:
    """The clock that nobody sets may have stood still meanwhile."""
    session = chosen(device)
    device.clock.step(step)
    session.report(1.0)
    assert len(server.asked) == 2


@pytest.mark.parametrize("changes", [{}, SHUFFLE])
def test_a_report_goes_to_the_round_that_is_open(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Under local the age of the choice goes before the report, which has the size of all."""
    spec = make_spec(changes)
    server = Server(published(spec))
    device = Device(tmp_path, server, shuffler="http://m")
    session = chosen(device)
    device.clock.time += LATER
    server.moves_on(spec, 4)
    assert session.report(1.0) is Outcome.ACCEPTED
    header = decode_envelope(server.sent[0]).header
    assert (header.version, header.digest) == (4, digest(server.body))
    assert [paid.version for paid in device.ledger().payments()] == [4]
    if not changes:
        assert server.plain()[:2] == (3).to_bytes(2, "little")


@pytest.mark.parametrize(
    ("spec", "version", "lies"),
    [
        (make_spec(), 2, OVER),
        (make_spec({"sources": [SOURCE]}), 2, {}),
        (make_spec(), 1_000_001, {}),
        (shuffle_spec(**{"privacy.arms": "hidden"}), 2, {}),
    ],
    ids=["over or paused", "a source's turn", "what decided is not known", "only its own choices"],
)
def test_nothing_is_paid_for_what_the_open_round_does_not_take(
    tmp_path: Path, spec: Any, version: int, lies: dict[str, Any]
) -> None:
    server = Server(published(spec, policy={"cohort": ""}, round_=own(spec)))
    device = Device(tmp_path, server, shuffler="http://m", limits=Limits(arms="hidden"))
    session = chosen(device)
    assert session.asked
    device.clock.time += LATER
    server.moves_on(spec, version, **lies)
    assert session.report(1.0) is Outcome.NOT_ASKED
    assert (server.sent, device.ledger().payments(), device.ledger().choices()) == ([], [], [])


def own(spec: Any) -> dict[str, Any]:
    """What differs in a round of the experiment's own people, where a source would have the first."""
    return {"sealed_size": parts(spec)[0]["sealed_size"] + 2} if spec.sources else {}


def test_the_open_rounds_terms_are_verified_anew(device: Device, server: Server) -> None:
    session = chosen(device)
    device.clock.time += LATER
    server.moves_on(make_spec(), 2, mechanism={"epsilon": 1.5})
    with pytest.raises(TermsRefused) as refusal:
        session.report(1.0)
    assert refusal.value.field == "delta"
    assert (server.sent, device.ledger().payments()) == ([], [])
    server.moves_on(make_spec(), 3)
    assert session.report(1.0) is Outcome.ACCEPTED


def test_who_chose_before_a_pause_began_is_counted(device: Device, server: Server) -> None:
    session = chosen(device)
    device.clock.time += LATER
    server.headers = {ASKS_HEADER: ASKS_NOBODY}
    comes = device.start().join("test")
    assert not comes.asked
    assert session.report(1.0) is Outcome.ACCEPTED


def test_a_round_that_closes_in_between_is_a_race_that_stays(device: Device, server: Server) -> None:
    session = chosen(device)
    device.clock.time += LATER
    server.answer = httpx.Response(409, content=problem_body(RoundClosed("closed")))
    assert session.report(1.0) is Outcome.LATE
    assert len(device.ledger().payments()) == 1


def test_an_outcome_waits_for_a_server_that_is_away(device: Device, server: Server) -> None:
    """Nothing is paid or sealed before the open round is known; the next start makes the report, once."""
    session = chosen(device)
    device.clock.time += LATER
    server.is_down = True
    assert session.report(1.0) is Outcome.PENDING
    assert session.report(0.0) is Outcome.PENDING
    assert (device.ledger().payments(), device.ledger().choices()) == ([], ["http://s/test"])
    server.is_down = False
    server.moves_on(make_spec(), 2)
    assert not device.start().join("test").asked
    assert decode_envelope(server.sent[0]).header.version == 2
    assert device.start().resend() == {}
    assert (len(server.sent), device.ledger().choices()) == (1, [])


def test_decisions_work_offline(device: Device, server: Server) -> None:
    assert not device.start().join("test").offline
    server.is_down = True
    session = device.start().join("test")
    assert session.offline
    assert session.choose(CONTEXT) in ("arm-0", "arm-1", "arm-2")
    assert session.report(1.0) is Outcome.PENDING
    server.is_down = False
    assert session.report(1.0) is Outcome.ACCEPTED
    assert not session.offline
    # The digest of what an earlier session fetched would tie that one to this.
    assert server.asked == [None, None]


def test_a_device_without_a_policy_cannot_decide_offline(device: Device, server: Server) -> None:
    server.is_down = True
    with pytest.raises(Unavailable):
        device.start().join("test")


def test_what_was_kept_is_verified_when_it_is_used(device: Device, server: Server) -> None:
    device.start().join("test")
    server.is_down = True
    with pytest.raises(TermsRefused) as refusal:
        device.start(limits=Limits(epsilon=0.5)).join("test")
    assert refusal.value.field == "epsilon"


def test_only_what_was_verified_is_kept(device: Device, server: Server) -> None:
    device.start().join("test")
    good, server.body = server.body, published(make_spec(), mechanism={"epsilon": 1.5})
    with pytest.raises(TermsRefused):
        device.start().join("test")
    assert device.ledger().publication("http://s/test") == good


def test_people_of_a_source_report_to_the_open_round(tmp_path: Path) -> None:
    spec = make_spec({"sources": [SOURCE]})
    server = Server(published(spec))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    device.clock.time += LATER
    server.is_down = True
    with pytest.raises(Unavailable):
        session.report_past(CONTEXT, "arm-1", 1.0)
    server.is_down = False
    server.moves_on(make_spec({"sources": [SOURCE], "experiment.arms": ["arm-0", "arm-2", "arm-3"]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past(CONTEXT, "arm-1", 1.0)
    assert device.ledger().payments() == []
    device.clock.time += LATER
    server.moves_on(spec, 3)
    assert session.report_past(CONTEXT, "arm-1", 1.0) is Outcome.ACCEPTED
    assert decode_envelope(server.sent[0]).header.version == 3


async def test_async_clients_report_to_the_open_round(device: Device, server: Server) -> None:
    async with device.start_async() as client:
        session = await client.join("test")
        session.choose(CONTEXT)
        session.save()
    device.clock.time += LATER
    server.moves_on(make_spec(), 2)
    async with device.start_async() as client:
        session = await client.resume("test")
        assert await session.report(1.0) is Outcome.ACCEPTED
    assert decode_envelope(server.sent[0]).header.version == 2


def test_the_last_choice_counts_and_none_stands_unless_it_is_kept(device: Device, server: Server) -> None:
    session = chosen(device)
    assert len({session.choose(context) for context in [CONTEXT, OTHER] * 20}) > 1
    assert device.ledger().choices() == []


def test_clocks_are_the_clients_own(tmp_path: Path, server: Server) -> None:
    clock = Hands()
    session = Device(tmp_path, server, clock).start().join("test")
    session.choose(CONTEXT)
    assert not session._choice.is_due(clock.now())
