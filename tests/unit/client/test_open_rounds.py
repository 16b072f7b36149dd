"""A report goes to the round that is open when it is sent, if that round takes it; else nothing is paid."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Ledger, Outcome, Session
from privateer_core.errors import Deleted, RoundClosed, TermsRefused, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.envelope import decode_envelope
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, digest
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server
from tests.support.notary import notarized
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
    assert device.start().join("test").asked  # here the choice is kept
    other = Ledger(device.folder / "other.db", clock=device.clock)
    assert not device.start(ledger=other).join("test").asked
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
        await session.choose(CONTEXT)
        await session.save()
    device.clock.time += LATER
    server.moves_on(make_spec(), 2)
    async with device.start_async() as client:
        session = await client.resume("test")
        assert await session.report(1.0) is Outcome.ACCEPTED
    assert decode_envelope(server.sent[0]).header.version == 2


def test_a_choice_stands_until_it_is_reported(device: Device, server: Server) -> None:
    """Whatever the context, in every session, and while rounds pass; the report is about it."""
    session = chosen(device)
    first = session.choose(CONTEXT)
    for version in range(2, 12):
        server.moves_on(make_spec(), version)
        session = device.start().join("test")
        assert {session.choose(context) for context in (CONTEXT, OTHER)} == {first}
    assert session.report(1.0) is Outcome.ACCEPTED
    assert device.ledger().choices() == []
    assert {device.start().join("test").choose(context) for context in (CONTEXT, OTHER)} == {first}  # the arm stays
    arms = {device.start().join("test").choose(CONTEXT, sticky=False) for _ in range(40)}  # and nothing else
    assert (len(arms) > 1, device.ledger().choices()) == (True, [])


def test_a_fresh_choice_takes_the_place_of_the_one_that_is_kept(device: Device, server: Server) -> None:
    session = chosen(device)
    assert len({session.choose(context, fresh=True) for context in [CONTEXT, OTHER] * 20}) > 1
    last = session.choose(CONTEXT, fresh=True)
    assert {device.start().join("test").choose(OTHER) for _ in range(10)} == {last}
    assert device.ledger().choices() == ["http://s/test"]


@pytest.mark.parametrize("is_down", [False, True])
def test_an_outcome_is_told_of_the_choice_that_it_is_about(device: Device, server: Server, is_down: bool) -> None:
    """Another session has made a fresh choice meanwhile: the first one's outcome says nothing of that."""
    session, other = chosen(device), device.start().join("test")
    other.choose(OTHER, fresh=True)
    fresh = device.ledger().choice("http://s/test")
    server.is_down = is_down
    device.clock.time += LATER
    assert session.report(1.0) is Outcome.NOT_ASKED
    kept = device.ledger().choice("http://s/test")
    assert (kept.coins, kept.rewards[0], kept.due) == (fresh.coins, 0.0, fresh.due)
    assert other.report(1.0) is (Outcome.PENDING if is_down else Outcome.ACCEPTED)


@pytest.mark.parametrize(
    ("spec", "lies"),
    [
        ({}, OVER),
        ({"reward.high": 2.0}, {}),
        ({"experiment.arms": ["arm-0", "arm-1", "other"]}, {}),
        ({"privacy.epsilon": 1.5}, {}),
    ],
    ids=["nobody is asked", "another reward", "another arm", "another promise"],
)
def test_a_choice_that_no_report_is_made_of_any_more_is_erased(
    device: Device, server: Server, spec: dict[str, Any], lies: dict[str, Any]
) -> None:
    chosen(device)
    before = device.ledger().choice("http://s/test")
    server.moves_on(make_spec(spec), 2, **lies)
    session = device.start().join("test")
    session.choose(CONTEXT)
    after = device.ledger().choice("http://s/test")
    assert before is not None
    assert (after is None) == (lies is OVER)
    assert after is None or after.coins != before.coins or after.digest != before.digest
    assert (session.report(1.0) is Outcome.NOT_ASKED) == (lies is OVER)


def test_nobody_keeps_an_arm_that_is_retired(tmp_path: Path) -> None:
    """Also where the experiment waits for outcomes: whoever retires an arm wants nobody to have it.

    Everybody chooses anew, whichever arm they had: otherwise the age of a report would tell.
    """
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        window = WEEK if number % 2 else 0.0
        server = Server(published(make_spec({"experiment.conversion_window": window})))
        device = Device(tmp_path / str(number), server)
        device.start().join("test").choose(CONTEXT)
        before = device.ledger().choice("http://s/test")
        retired = {"experiment.conversion_window": window, "experiment.retired": ["arm-1"]}
        server.moves_on(make_spec(retired), 2)
        arm = device.start().join("test").choose(CONTEXT)
        after = device.ledger().choice("http://s/test")
        assert before is not None
        assert after is not None
        assert (before.decided, after.decided) == (1, 2)
        assert arm != "arm-1"
        assert device.start().join("test").choose(OTHER) == arm


def test_a_deleted_experiment_leaves_no_choice(device: Device, server: Server) -> None:
    chosen(device)
    gone = httpx.Response(410, content=problem_body(Deleted("deleted")))
    with pytest.raises(Deleted):
        device.start(transport=notarized(lambda _: gone)).join("test")
    assert device.ledger().choices() == []


def test_each_period_has_a_choice_of_its_own(tmp_path: Path) -> None:
    """Of people who come back; one whose outcome comes in the next period counts until there is another."""
    records = {"privacy.model": "none", "privacy.epsilon": None}
    spec = make_spec(records | {"experiment.reports_per_person": 2, "experiment.report_period": WEEK})
    device = Device(tmp_path, Server(published(spec)))
    device.start().join("test").choose(CONTEXT)
    first = device.ledger().choice("http://s/test")
    device.clock.time += WEEK
    session = device.start().join("test")
    assert device.ledger().choice("http://s/test").coins == first.coins  # type: ignore[union-attr]
    session.choose(CONTEXT)
    second = device.ledger().choice("http://s/test")
    assert first is not None
    assert second is not None
    assert second.period == first.period + 1


def test_clocks_are_the_clients_own(tmp_path: Path, server: Server) -> None:
    clock = Hands()
    session = Device(tmp_path, server, clock).start().join("test")
    session.choose(CONTEXT)
    assert not session._shown.is_due(clock.now())
