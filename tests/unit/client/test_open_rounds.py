"""A report goes to the round that is open when it is sent, and is paid only if the round accepts it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Ledger, ReportStatus, Session
from privateer_client.states import ChoiceState
from privateer_core.errors import Deleted, RoundClosed, TermsRefused, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, decode_envelope, digest
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server
from tests.support.notary import notarized
from tests.support.publications import OVER, parts, published, shuffle_spec
from tests.support.specs import SHUFFLE, make_spec

SOURCE = {"name": "clinic", "participants": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}
LATER = 60.0


@pytest.fixture
def server() -> Server:
    return Server(published(make_spec()))


@pytest.fixture
def device(tmp_path: Path, server: Server) -> Device:
    return Device(tmp_path, server)


def join_and_choose(device: Device, name: str = "test") -> Session[ReportStatus]:
    session = device.start().join(name)
    session.choose(CONTEXT)
    return session


def test_a_recent_publication_is_not_fetched_again(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    device.clock.time += 2.9
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert server.etags == [None]


def test_a_round_that_is_still_open_sends_nothing_again(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    device.clock.time += LATER
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert server.etags == [None, f'"{digest(server.body).hex()}"']
    assert decode_envelope(server.posts[0]).header.digest == digest(server.body)


@pytest.mark.parametrize("step", [LATER, -LATER])
def test_a_device_fetches_the_publication_again_after_sleep(device: Device, server: Server, step: float) -> None:
    """The monotonic clock may have stopped during sleep."""
    session = join_and_choose(device)
    device.clock.step(step)
    session.report(1.0)
    assert len(server.etags) == 2


@pytest.mark.parametrize("changes", [{}, SHUFFLE])
def test_a_report_goes_to_the_round_that_is_open(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Under local the age of the choice goes before the report, which has the size of all."""
    spec = make_spec(changes)
    server = Server(published(spec))
    device = Device(tmp_path, server, shuffler="http://m")
    session = join_and_choose(device)
    device.clock.time += LATER
    server.moves_on(spec, 4)
    assert session.report(1.0) is ReportStatus.ACCEPTED
    header = decode_envelope(server.posts[0]).header
    assert (header.version, header.digest) == (4, digest(server.body))
    assert [payment.version for payment in device.ledger().payments()] == [4]
    if not changes:
        assert server.open_report()[:2] == (3).to_bytes(2, "little")


@pytest.mark.parametrize(
    ("spec", "version", "lies"),
    [
        (make_spec(), 2, OVER),
        (make_spec({"sources": [SOURCE]}), 2, {}),
        (make_spec(), 1_000_001, {}),
        (shuffle_spec(**{"privacy.arm_visibility": "hidden"}), 2, {}),
    ],
    ids=["over or paused", "a source's turn", "what decided is not known", "only its own choices"],
)
def test_a_report_that_the_open_round_does_not_accept_is_not_paid(tmp_path, spec, version, lies):
    server = Server(published(spec, policy={"cohort": ""}, round_=own_round(spec)))
    device = Device(tmp_path, server, shuffler="http://m", limits=Limits(arm_visibility="hidden"))
    session = join_and_choose(device)
    assert session.report_requested
    device.clock.time += LATER
    server.moves_on(spec, version, **lies)
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert (server.posts, device.ledger().payments(), device.ledger().experiments_with_choice()) == ([], [], [])


def own_round(spec: Any) -> dict[str, Any]:
    """Return the fields that differ in a round of the experiment's own participants, if it has sources."""
    return {"sealed_size": parts(spec)[0]["sealed_size"] + 2} if spec.sources else {}


def test_the_open_rounds_terms_are_verified_anew(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    device.clock.time += LATER
    server.moves_on(make_spec(), 2, mechanism={"epsilon": 1.5})
    with pytest.raises(TermsRefused) as refusal:
        session.report(1.0)
    assert refusal.value.field == "delta"
    assert (server.posts, device.ledger().payments()) == ([], [])
    server.moves_on(make_spec(), 3)
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_terms_that_were_refused_are_not_followed_later(device: Device, server: Server) -> None:
    """A session must not use refused terms later, when the server is unreachable."""
    session = join_and_choose(device)
    arm = session.choose(CONTEXT)
    device.clock.time += LATER
    server.moves_on(make_spec({"experiment.arms": ["arm-3", "arm-4", "arm-5"]}), 2)
    with pytest.raises(TermsRefused):
        session.report(1.0)
    device.clock.time += LATER
    server.is_down = True
    assert session.report(1.0) is ReportStatus.PENDING
    assert session.choose(CONTEXT) == arm
    server.is_down = False
    with pytest.raises(TermsRefused):
        session.report(1.0)
    assert (server.posts, device.ledger().payments()) == ([], [])


def test_a_choice_from_before_a_pause_is_reported(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    device.clock.time += LATER
    server.headers = {ASKS_HEADER: ASKS_NOBODY}
    assert device.start().join("test").report_requested  # here the choice is kept
    other = Ledger(device.folder / "other.db", clock=device.clock)
    assert not device.start(ledger=other).join("test").report_requested
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_a_report_to_a_round_that_has_just_closed_is_late_and_paid(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    device.clock.time += LATER
    server.answer = httpx.Response(409, content=problem_body(RoundClosed("closed")))
    assert session.report(1.0) is ReportStatus.LATE
    assert len(device.ledger().payments()) == 1


def test_an_outcome_waits_for_a_server_that_is_away(device: Device, server: Server) -> None:
    """The report is paid and sealed once, at the next start, when the open round is known."""
    session = join_and_choose(device)
    device.clock.time += LATER
    server.is_down = True
    assert session.report(1.0) is ReportStatus.PENDING
    assert session.report(0.0) is ReportStatus.PENDING
    assert (device.ledger().payments(), device.ledger().experiments_with_choice()) == ([], ["http://s/test"])
    server.is_down = False
    server.moves_on(make_spec(), 2)
    assert not device.start().join("test").report_requested
    assert decode_envelope(server.posts[0]).header.version == 2
    assert device.start().flush() == {}
    assert (len(server.posts), device.ledger().experiments_with_choice()) == (1, [])


def test_decisions_work_offline(device: Device, server: Server) -> None:
    assert not device.start().join("test").offline
    server.is_down = True
    session = device.start().join("test")
    assert session.offline
    assert session.choose(CONTEXT) in ("arm-0", "arm-1", "arm-2")
    assert session.report(1.0) is ReportStatus.PENDING
    server.is_down = False
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert not session.offline
    # The digest of what an earlier session fetched would tie that one to this.
    assert server.etags == [None, None]


def test_a_device_without_a_policy_cannot_decide_offline(device: Device, server: Server) -> None:
    server.is_down = True
    with pytest.raises(Unavailable):
        device.start().join("test")


def test_a_stored_publication_is_verified_before_use(device: Device, server: Server) -> None:
    device.start().join("test")
    server.is_down = True
    with pytest.raises(TermsRefused) as refusal:
        device.start(limits=Limits(epsilon=0.5)).join("test")
    assert refusal.value.field == "epsilon"


def test_only_verified_publications_are_stored(device: Device, server: Server) -> None:
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
    assert session.state is ChoiceState.OFFERED  # nothing was kept, so nothing is due
    server.is_down = False
    server.moves_on(make_spec({"sources": [SOURCE], "experiment.arms": ["arm-0", "arm-2", "arm-3"]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past(CONTEXT, "arm-1", 1.0)
    assert device.ledger().payments() == []
    device.clock.time += LATER
    server.moves_on(spec, 3)
    assert session.report_past(CONTEXT, "arm-1", 1.0) is ReportStatus.ACCEPTED
    assert decode_envelope(server.posts[0]).header.version == 3


async def test_async_clients_report_to_the_open_round(device: Device, server: Server) -> None:
    async with device.start_async() as client:
        session = await client.join("test")
        await session.choose(CONTEXT)
        await session.save()
    device.clock.time += LATER
    server.moves_on(make_spec(), 2)
    async with device.start_async() as client:
        session = await client.resume("test")
        assert await session.report(1.0) is ReportStatus.ACCEPTED
    assert decode_envelope(server.posts[0]).header.version == 2


def test_a_choice_is_valid_until_it_is_reported(device: Device, server: Server) -> None:
    """Whatever the context, in every session, and while rounds pass; the report is about it."""
    session = join_and_choose(device)
    first = session.choose(CONTEXT)
    for version in range(2, 12):
        server.moves_on(make_spec(), version)
        session = device.start().join("test")
        assert {session.choose(context) for context in (CONTEXT, OTHER)} == {first}
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert device.ledger().experiments_with_choice() == []
    assert {device.start().join("test").choose(context) for context in (CONTEXT, OTHER)} == {first}  # the arm stays
    arms = {device.start().join("test").choose(CONTEXT, sticky=False) for _ in range(40)}  # and nothing else
    assert (len(arms) > 1, device.ledger().experiments_with_choice()) == (True, [])


def test_a_fresh_choice_replaces_the_stored_choice(device: Device, server: Server) -> None:
    session = join_and_choose(device)
    assert len({session.choose(context, fresh=True) for context in [CONTEXT, OTHER] * 20}) > 1
    last = session.choose(CONTEXT, fresh=True)
    assert {device.start().join("test").choose(OTHER) for _ in range(10)} == {last}
    assert device.ledger().experiments_with_choice() == ["http://s/test"]


@pytest.mark.parametrize("is_down", [False, True])
def test_an_outcome_is_added_to_its_own_choice_alone(device: Device, server: Server, is_down: bool) -> None:
    """An outcome of the first session is not added to a fresh choice of another session."""
    session, other = join_and_choose(device), device.start().join("test")
    other.choose(OTHER, fresh=True)
    fresh = device.ledger().choice("http://s/test")
    server.is_down = is_down
    device.clock.time += LATER
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    stored = device.ledger().choice("http://s/test")
    assert (stored.coins, stored.rewards[0], stored.due) == (fresh.coins, 0.0, fresh.due)
    assert other.report(1.0) is (ReportStatus.PENDING if is_down else ReportStatus.ACCEPTED)


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
def test_a_choice_without_a_further_report_is_erased(device, server, spec, lies):
    join_and_choose(device)
    before = device.ledger().choice("http://s/test")
    server.moves_on(make_spec(spec), 2, **lies)
    session = device.start().join("test")
    session.choose(CONTEXT)
    after = device.ledger().choice("http://s/test")
    assert before is not None
    assert (after is None) == (lies is OVER)
    assert after is None or after.coins != before.coins or after.digest != before.digest
    assert (session.report(1.0) is ReportStatus.NOT_REQUESTED) == (lies is OVER)


def test_a_retired_arm_is_not_kept(tmp_path: Path) -> None:
    """A retired arm is replaced at once, also in experiments that wait for outcomes.

    All participants choose anew, whichever arm they had: otherwise the age of a report would reveal it.
    """
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        window = WEEK if number % 2 else 0.0
        server = Server(published(make_spec({"experiment.conversion_window_seconds": window})))
        device = Device(tmp_path / str(number), server)
        device.start().join("test").choose(CONTEXT)
        before = device.ledger().choice("http://s/test")
        retired = {"experiment.conversion_window_seconds": window, "experiment.retired_arms": ["arm-1"]}
        server.moves_on(make_spec(retired), 2)
        arm = device.start().join("test").choose(CONTEXT)
        after = device.ledger().choice("http://s/test")
        assert (before.decided, after.decided) == (1, 2)
        assert arm != "arm-1"
        assert device.start().join("test").choose(OTHER) == arm


def test_a_deleted_experiment_leaves_no_choice(device: Device, server: Server) -> None:
    join_and_choose(device)
    response = httpx.Response(410, content=problem_body(Deleted("deleted")))
    with pytest.raises(Deleted):
        device.start(transport=notarized(lambda _: response)).join("test")
    assert device.ledger().experiments_with_choice() == []


def test_each_period_has_a_choice_of_its_own(tmp_path: Path) -> None:
    """A choice of a returning participant stays until the choice of the next period replaces it."""
    records = {"privacy.model": "none", "privacy.epsilon": None}
    spec = make_spec(records | {"experiment.reports_per_person": 2, "experiment.report_period_seconds": WEEK})
    device = Device(tmp_path, Server(published(spec)))
    device.start().join("test").choose(CONTEXT)
    first = device.ledger().choice("http://s/test")
    device.clock.time += WEEK
    session = device.start().join("test")
    assert device.ledger().choice("http://s/test").coins == first.coins  # type: ignore[union-attr]
    session.choose(CONTEXT)
    second = device.ledger().choice("http://s/test")
    assert second.period == first.period + 1


def test_each_client_has_its_own_clock(tmp_path: Path, server: Server) -> None:
    clock = Hands()
    session = Device(tmp_path, server, clock).start().join("test")
    session.choose(CONTEXT)
    assert not session._shown_choice.is_due(clock.now())
