"""Experiments that wait for outcomes: a report is due a fixed time after its choice, whatever happened when."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import ReportStatus
from privateer_core.errors import AlreadyReported, Deleted, InputError, TermsRefused, Unavailable
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import decode_envelope
from tests.support.devices import Drawn
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server, waiting_spec
from tests.support.notary import notarized
from tests.support.phased import LIMITS, small_spec
from tests.support.publications import OVER, published
from tests.support.specs import make_spec

DAY = 86_400.0


@pytest.fixture
def server() -> Server:
    return Server(published(waiting_spec()))


@pytest.fixture
def device(tmp_path: Path, server: Server) -> Device:
    return Device(tmp_path, server)


def test_an_outcome_is_kept_and_sends_nothing(device: Device, server: Server) -> None:
    session = device.start().join("test")
    session.choose(CONTEXT)
    before = server.exchanges
    assert session.report(1.0) is ReportStatus.PENDING
    assert device.start().flush() == {}
    assert server.exchanges == before
    assert device.ledger().payments() == []


@pytest.mark.parametrize("way", ["join", "flush"])
def test_when_the_window_is_over_the_report_goes_to_the_open_round(device: Device, server: Server, way: str) -> None:
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    device.clock.time += WEEK - 1
    device.start().join("test")
    assert server.posts == []
    device.clock.time += WEEK / 50  # the end is kept to a hundredth
    server.moves_on(waiting_spec(), 30)
    if way == "join":
        assert not device.start().join("test").report_requested
    else:
        assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert decode_envelope(server.posts[0]).header.version == 30
    assert (server.open_report()[:2], server.reward()) == ((29).to_bytes(2, "little"), 1.0)
    assert [payment.version for payment in device.ledger().payments()] == [30]
    assert (device.ledger().experiments_with_choice(), device.start().flush()) == ([], {})
    assert session.report(0.0) is ReportStatus.ALREADY_REPORTED


@pytest.mark.parametrize(
    ("rewards", "expected"), [([], 0.25), ([0.5], 0.5), ([0.0, 1.0, 0.75], 0.75), ([7.0], 1.0)], ids=str
)
def test_the_last_outcome_counts_and_none_is_the_default(tmp_path: Path, rewards: list[float], expected: float) -> None:
    server = Server(published(waiting_spec(**{"reward.default": 0.25})))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT)
    for reward in rewards:
        assert session.report(reward) is ReportStatus.PENDING
        device.clock.time += DAY
    assert session.clipped == (rewards == [7.0])
    device.clock.time += 2 * WEEK
    device.start().flush()
    assert server.reward() == expected


def test_after_the_window_an_outcome_changes_nothing(device: Device, server: Server) -> None:
    """It is not sent then either, because the time of the report would reveal that of the outcome."""
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(0.5)
    device.clock.time += 1.5 * WEEK
    before = server.exchanges
    assert session.report(1.0) is ReportStatus.PENDING
    assert server.exchanges == before
    device.start().flush()
    assert server.reward() == 0.5


def test_a_choice_survives_the_process(device: Device, server: Server) -> None:
    arm = device.start().join("test").choose(CONTEXT)
    before = server.exchanges
    session = device.start().resume("test")
    assert server.exchanges == before  # whoever watches the network does not learn that something happened
    assert {session.choose(context) for context in [CONTEXT, OTHER, {}] * 20} == {arm}
    assert {device.start().join("test").choose(OTHER) for _ in range(20)} == {arm}
    assert session.report(1.0) is ReportStatus.PENDING
    device.clock.time += 1.5 * WEEK
    assert {session.choose(OTHER) for _ in range(20)} == {arm}  # the window is over, and the arm stays
    assert len({session.choose(OTHER, sticky=False) for _ in range(60)}) > 1
    session.report(0.5)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert server.reward() == 1.0


def test_without_a_window_a_choice_is_kept_until_its_report(tmp_path: Path) -> None:
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    with pytest.raises(InputError, match="choose an arm first"):
        session.save()
    with pytest.raises(InputError, match="no stored choice"):
        device.start().resume("test")
    arm = session.choose(CONTEXT)
    session.save()  # `choose` has kept it
    device.clock.time += 100 * WEEK
    assert device.start().flush() == {}
    session = device.start().resume("test")
    assert {session.choose(OTHER) for _ in range(20)} == {arm}
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert device.ledger().experiments_with_choice() == []
    with pytest.raises(AlreadyReported):
        device.start().resume("test")


def test_a_choice_that_is_forgotten_is_not_reported(device: Device, server: Server) -> None:
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    session.forget()
    assert device.ledger().experiments_with_choice() == []
    with pytest.raises(InputError, match="choose an arm first"):
        session.report(1.0)
    device.clock.time += 2 * WEEK
    assert device.start().flush() == {}
    assert server.posts == []
    assert session.choose(OTHER)


def test_a_participant_without_invitation_stores_nothing(device: Device, server: Server) -> None:
    server.moves_on(waiting_spec(), 2, **OVER)
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.save()
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert device.ledger().experiments_with_choice() == []


def make_due(device: Device) -> None:
    """Make a choice, and let its conversion window pass."""
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    device.clock.time += 1.1 * WEEK


def test_a_report_that_no_round_accepts_waits_for_another_window(device: Device, server: Server) -> None:
    make_due(device)
    server.moves_on(waiting_spec(), 2, **OVER)
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    device.start().join("test")
    server.moves_on(waiting_spec(), 3)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_a_report_that_no_round_accepts_is_abandoned_in_the_end(device: Device, server: Server) -> None:
    make_due(device)
    server.moves_on(waiting_spec(), 2, **OVER)
    device.clock.time += WEEK
    assert device.start().flush() == {"test": ReportStatus.NOT_REQUESTED}
    assert (device.ledger().experiments_with_choice(), device.ledger().payments(), server.posts) == ([], [], [])


def test_a_device_that_was_away_for_long_reports_still(device: Device, server: Server) -> None:
    make_due(device)
    server.is_down = True
    device.clock.time += 50 * WEEK
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    assert device.start().join("test").offline
    server.is_down = False
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_a_deleted_experiment_asks_for_nothing(device: Device, server: Server) -> None:
    make_due(device)
    response = httpx.Response(410, content=problem_body(Deleted("deleted")))
    client = device.start(transport=notarized(lambda _: response))
    assert client.flush() == {"test": ReportStatus.NOT_REQUESTED}
    assert device.ledger().experiments_with_choice() == []


def test_a_report_above_the_budget_waits(device: Device, server: Server) -> None:
    make_due(device)
    client = device.start(ledger=device.ledger(total_epsilon=1.0))
    assert client.flush() == {"test": ReportStatus.PENDING}
    assert device.ledger().payments() == []


def test_one_bad_experiment_does_not_keep_others_from_reporting(tmp_path: Path) -> None:
    bodies = {name: published(waiting_spec(**{"experiment.name": name})) for name in ("good", "bad")}
    names = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            names.append(decode_envelope(request.content).header.experiment)
            return httpx.Response(202)
        return httpx.Response(200, content=bodies[request.url.path.split("/")[2]])

    device = Device(tmp_path, answer)  # type: ignore[arg-type]
    for name in bodies:
        device.start().join(name).choose(CONTEXT)
    device.clock.time += 2 * WEEK
    bodies["bad"] = b"junk"
    device.start().join("good")
    assert names == ["good"]
    device.clock.time += WEEK
    assert device.start().flush() == {"bad": ReportStatus.NOT_REQUESTED}


def test_a_join_with_many_reports_due_ends_with_one_timeout(tmp_path: Path) -> None:
    """A join with due and pending reports takes no longer than a single request when the server hangs."""
    device = Device(tmp_path, None)  # type: ignore[arg-type]

    def answer(request: httpx.Request) -> httpx.Response:
        if device.clock.time < 1_000_100:
            name = request.url.path.split("/")[2]
            return httpx.Response(200, content=published(waiting_spec(**{"experiment.name": name})))
        device.clock.time += request.extensions["timeout"]["read"]
        raise httpx.ReadTimeout("silence")

    device.server = answer  # type: ignore[assignment]
    for number in range(5):
        device.start().join(f"test-{number}").choose(CONTEXT)
    device.clock.time = began = 1_000_000 + 2 * WEEK
    with pytest.raises(Unavailable):
        device.start(timeout=4.0).join("another")
    assert device.clock.time - began <= 8.0


def test_a_choice_for_a_shuffler_waits_for_a_client_that_has_one(tmp_path: Path) -> None:
    """A client without a shuffler sends nothing, and keeps the choice for a client that has the shuffler."""
    spec = make_spec(
        {
            "privacy.model": "shuffle",
            "privacy.delta": 1e-6,
            "privacy.epsilon": 1.0,
            "experiment.conversion_window_seconds": WEEK,
        }
    )
    device = Device(tmp_path, Server(published(spec)))
    device.start(shuffler="http://m").join("test").choose(CONTEXT)
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    assert device.ledger().payments() == []
    assert device.start(shuffler="http://m").flush() == {"test": ReportStatus.ACCEPTED}


def test_plays_that_all_participants_share_are_reported_within_their_round(tmp_path: Path) -> None:
    spec = small_spec("central", {"experiment.conversion_window_seconds": WEEK, "reward.default": 0.5})
    server = Server(published(spec))
    device = Device(tmp_path, server, limits=LIMITS, ledger=Drawn(tmp_path / "ledger.db", published(spec), 0))
    session = device.start().join("test")
    plays = session.choose()
    assert device.start().resume("test").choose() == plays
    assert session.report(dict.fromkeys(plays, 0.25)) is ReportStatus.PENDING
    device.clock.time += 1.1 * WEEK
    server.moves_on(spec, 2)
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    server.moves_on(spec, 1)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_plays_that_all_participants_share_need_no_call_of_choose(tmp_path: Path) -> None:
    spec = small_spec("central", {"experiment.conversion_window_seconds": WEEK})
    device = Device(tmp_path, Server(published(spec)), limits=LIMITS)
    session = device.start(ledger=Drawn(tmp_path / "ledger.db", published(spec), 0)).join("test")
    policy: Any = session._participation.policy
    assert session.report(dict.fromkeys(policy.support.tolist(), 0.5)) is ReportStatus.PENDING
    assert device.ledger().experiments_with_choice() == ["http://s/test"]


async def test_async_clients_wait_for_the_conversion_window_too(device: Device, server: Server) -> None:
    async with device.start_async() as client:
        session = await client.join("test")
        await session.choose(CONTEXT)
        assert await session.report(0.5) is ReportStatus.PENDING
        device.clock.time += 2 * WEEK
        assert await client.flush() == {"test": ReportStatus.ACCEPTED}
    assert server.reward() == 0.5


def test_a_choice_of_another_meaning_takes_no_outcome(device: Device, server: Server) -> None:
    arm = device.start().join("test").choose(CONTEXT)
    server.moves_on(waiting_spec(**{"reward.high": 100.0}), 2)
    session = device.start().join("test")
    assert session.choose(CONTEXT) == arm
    with pytest.raises(TermsRefused) as refusal:
        session.report(50.0)
    assert refusal.value.field == "spec"


CHANGES: list[dict[str, Any]] = [
    {"experiment.horizon": 50_000},
    {"experiment.arms": ["arm-0", "arm-1", "arm-2", "arm-3"]},
    {"experiment.retired_arms": ["arm-1"]},
    {"experiment.conversion_window_seconds": 5.0},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_an_operators_changes_lose_no_choice_within_its_window(device, server, changes):
    make_due(device)
    server.moves_on(waiting_spec(**changes), 2)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_a_choice_whose_report_was_made_elsewhere_is_erased(device: Device, server: Server) -> None:
    """Another process, which started before the choice was stored, made the report."""
    make_due(device)
    choice = device.ledger().choice("http://s/test")
    device.start().flush()
    device.ledger().change_choice("http://s/test", lambda _: choice)
    assert device.start().flush() == {}
    assert (device.ledger().experiments_with_choice(), len(server.posts)) == ([], 1)


def test_a_session_cannot_be_resumed_without_its_policy(device: Device, server: Server) -> None:
    device.start().join("test").choose(CONTEXT)
    with closing(sqlite3.connect(device.folder / "ledger.db")) as database:
        database.execute("DELETE FROM publications")
        database.commit()
    with pytest.raises(Unavailable, match="the choice is kept"):
        device.start().resume("test")
    assert device.ledger().experiments_with_choice() == ["http://s/test"]


def test_an_experiment_deleted_before_the_report_takes_no_report(tmp_path: Path) -> None:
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    response = httpx.Response(410, content=problem_body(Deleted("deleted")))
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.save()
    device.clock.time += 60
    session = device.start(transport=notarized(lambda _: response)).resume("test")
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert (device.ledger().experiments_with_choice(), device.ledger().payments()) == ([], [])
