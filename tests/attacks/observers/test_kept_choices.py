"""Choices that wait on a device: an adversary reads its files, or publishes another spec meanwhile."""

import logging
import sqlite3
import traceback
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import ReportStatus
from privateer_core.errors import InputError, PrivateerError, RoundClosed
from privateer_core.wire.problem import problem_body
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, WEEK, Device, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import OVER, published
from tests.support.specs import make_spec

MARKED = {"x1": 0.377_190_542, "x2": 0.918_273_645}
REWARD = 0.727_364_819
IDENTITY = "http://s/test"


def marks(device: Device) -> list[bytes]:
    """Everything about the person, in every form in which it might be written down."""
    values = [*MARKED.values(), REWARD]
    numbers = [np.array([value], kind).tobytes() for value in values for kind in ("<f8", ">f8", "<f4")]
    return [*numbers, *(str(value).encode() for value in values), b"arm-0\0", b"arm-1\0", b"arm-2\0"]


def keep_choice(folder: Path, reward: float | None = REWARD, context: dict[str, float] | None = None) -> Device:
    """Return a device that has stored a choice, and its outcome unless ``reward`` is None."""
    folder.mkdir(exist_ok=True)
    device = Device(folder, Server(published(waiting_spec())))
    session = device.start().join("test")
    session.choose(context or MARKED)
    if reward is not None:
        session.report(reward)
    return device


def row(device: Device) -> bytes:
    with closing(sqlite3.connect(device.folder / "ledger.db")) as database:
        (body,) = database.execute("SELECT body FROM choices").fetchone()
    return bytes(body)


def test_the_files_hold_no_choice_in_plain_text(tmp_path: Path) -> None:
    device = keep_choice(tmp_path)
    contents = device.files()
    assert not [mark for mark in marks(device) if mark in contents]
    assert (device.folder / "ledger.db.key").stat().st_mode & 0o777 == 0o600
    choice = device.ledger().choice(IDENTITY)
    assert choice.rewards[0] == REWARD  # it is there, for whoever has the key


def test_the_size_of_a_stored_choice_is_constant(tmp_path: Path) -> None:
    """Neither the arm, nor the context, nor whether there was an outcome."""
    people = [(None, MARKED), (0.0, CONTEXT), (1.0, {"x1": 0.0, "x2": 1.0})] * 4
    devices = [keep_choice(tmp_path / str(number), *person) for number, person in enumerate(people)]
    assert len({len(row(device)) for device in devices}) == 1


def test_the_ledger_is_unreadable_without_its_key(tmp_path: Path) -> None:
    device = keep_choice(tmp_path)
    (tmp_path / "ledger.db.key").unlink()
    for way in (device.start().resume, device.start().join):
        with pytest.raises(InputError, match="cannot be read") as refusal:
            way("test")
        assert refusal.value.field == "key"
    assert device.ledger().experiments_with_choice() == [IDENTITY]
    device.ledger().forget(IDENTITY)
    assert device.start().join("test").choose(CONTEXT)


def test_a_replaced_or_reported_choice_leaves_the_files(tmp_path: Path) -> None:
    device = keep_choice(tmp_path)
    earlier, before = row(device), device.ledger().choice(IDENTITY)
    device.ledger().change_choice(
        IDENTITY, lambda choice: choice and choice.with_outcome(np.array([0.5]), device.clock.now())
    )
    assert earlier[-60:] not in device.files()
    later = row(device)
    device.clock.time += 2 * WEEK
    assert before is not None
    device.start().flush()
    assert later[-60:] not in device.files()


def test_errors_logs_and_representations_hold_no_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    device = keep_choice(tmp_path)
    session = device.start().resume("test")
    choice = device.ledger().choice(IDENTITY)
    messages = [repr(session), repr(choice), str(choice), repr(session.__dict__), f"{[choice]}"]
    device.server.moves_on(waiting_spec(**{"reward.high": 2.0}), 2)
    device.clock.time += 2 * WEEK
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        for act in (lambda: device.start().join("test").report(REWARD), lambda: session.report(f"{REWARD}")):
            try:
                act()
            except PrivateerError as error:
                messages += ["".join(traceback.format_exception(error)), repr(error.args)]
    messages += [f"{warning.message}" for warning in caught_warnings]
    assert len(messages) > 7
    texts = [*messages, caplog.text]
    assert not [text for text in texts for value in (*MARKED.values(), REWARD) if str(value)[2:] in text]
    assert not [message for message in messages[:5] if "arm-" in message]


def test_a_choice_is_not_moved_to_another_experiment(tmp_path: Path) -> None:
    device = keep_choice(tmp_path)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        database.execute("UPDATE choices SET experiment = 'http://s/other'")
        database.commit()
    with pytest.raises(InputError, match="cannot be read"):
        device.ledger().choice("http://s/other")


LIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rewards of another range": ({"reward.high": 100.0}, {}),
    "another default": ({"reward.default": 1.0}, {}),
    "another promise": ({"privacy.model": "local", "privacy.epsilon": 1.0}, {}),
    "features in another order": (
        {"context.features": {"x2": {"low": 0.0, "high": 1.0}, "x1": {"low": 0.0, "high": 1.0}}},
        {},
    ),
    "features of another range": (
        {"context.features": {"x1": {"low": 0.0, "high": 0.5}, "x2": {"low": 0.0, "high": 1.0}}},
        {},
    ),
    "arms in another order": ({"experiment.arms": ["arm-2", "arm-0", "arm-1"]}, {}),
    "arms of other names": ({"experiment.arms": ["x", "y", "z"]}, {}),
}


@pytest.mark.parametrize(("changes", "lies"), LIES.values(), ids=LIES)
def test_a_choice_is_not_reported_under_another_meaning(tmp_path, changes, lies):
    device = keep_choice(tmp_path)
    device.clock.time += 1.1 * WEEK
    device.server.moves_on(waiting_spec(**changes), 2, **lies)
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    assert (device.server.posts, device.ledger().payments()) == ([], [])
    device.clock.time += WEEK
    assert device.start().flush() == {"test": ReportStatus.NOT_REQUESTED}


def test_a_version_that_is_published_twice_gets_no_report(tmp_path: Path) -> None:
    """The second policy would decode the coins by which the first policy chose the arm."""
    device = keep_choice(tmp_path)
    device.clock.time += 1.1 * WEEK
    device.server.moves_on(waiting_spec(**{"experiment.horizon": 30_000}), 1)
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    assert device.ledger().payments() == []


@pytest.mark.parametrize("window", [0.0, 1.0, 52 * WEEK])
def test_a_changed_window_does_not_move_the_due_time(tmp_path: Path, window: float) -> None:
    device = keep_choice(tmp_path)
    device.server.moves_on(waiting_spec(**{"experiment.conversion_window_seconds": window}), 2)
    session = device.start().join("test")
    assert session.report(0.5) is ReportStatus.PENDING
    device.clock.time += 0.98 * WEEK
    assert device.start().flush() == {}
    device.clock.time += 0.04 * WEEK
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert device.server.reward() == 0.5


@pytest.mark.parametrize("window", [0.0, WEEK])
def test_a_server_that_always_says_round_closed_gets_one_report(tmp_path: Path, window: float) -> None:
    """It publishes round after round, and says of each that the report came too late."""
    spec = waiting_spec(**{"experiment.conversion_window_seconds": window})
    device = Device(tmp_path, Server(published(spec)))
    device.server.answer = httpx.Response(409, content=problem_body(RoundClosed("closed")))
    session = device.start().join("test")
    session.choose(MARKED)
    session.save()
    session.report(1.0)
    for version in range(2, 12):
        device.clock.time += 0.6 * WEEK
        device.server.moves_on(spec, version)
        later = device.start().join("test")
        later.choose(CONTEXT)
        for act in (lambda: session.report(0.0), lambda later=later: later.report(0.0), device.start().flush):
            try:
                act()
            except PrivateerError as error:
                assert "has reported" in str(error)  # noqa: PT017
    assert len(set(device.server.posts)) == 1
    assert len(device.ledger().payments()) == 1


def test_time_and_size_of_requests_do_not_depend_on_the_outcome(tmp_path: Path) -> None:
    """The same application, started once a day: outcomes early, late, twice, none; all that the network sees."""
    outcomes: list[dict[int, float]] = [{}, {1: 1.0}, {6: 0.0}, {2: 1.0, 5: 0.0}, {8: 1.0}, {9: 0.5, 12: 1.0}]
    transcripts = []
    for number, reports_by_day in enumerate(outcomes):
        (tmp_path / str(number)).mkdir()
        clock, transcript = Hands(), []
        server = Server(published(waiting_spec()))

        def record_request(request: httpx.Request, clock: Hands = clock, server: Server = server) -> httpx.Response:
            transcript.append((clock.time, request.method, str(request.url), len(request.content)))  # noqa: B023
            return inner.handle_request(request)  # noqa: B023

        inner = Notary().transport(server)
        device = Device(tmp_path / str(number), server, clock, transport=httpx.MockTransport(record_request))
        device.start().join("test").choose({"x1": number / 10, "x2": 0.5})
        for day in range(14):
            clock.time += 0.5 * 86_400.0
            if day in reports_by_day:
                try:
                    device.start().resume("test").report(reports_by_day[day])
                except PrivateerError as error:
                    assert "has reported" in str(error)  # noqa: PT017
            clock.time += 0.5 * 86_400.0
            device.start().join("test")
        transcripts.append(transcript)
    assert all(each == transcripts[0] for each in transcripts)
    assert [method for _, method, _, _ in transcripts[0]].count("POST") == 1


def test_a_pending_outcome_is_paid_for_once(tmp_path: Path) -> None:
    """Without a window: the device dies after it has kept the outcome, and again while it sends."""
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT)
    device.clock.time += 60
    server.is_down = True
    session.report(1.0)
    server.is_down, server.answer = False, httpx.ReadError("broken off")
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    server.answer = None
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert (len(server.posts), len(set(server.posts)), len(device.ledger().payments())) == (2, 1, 1)


def test_concurrent_sessions_store_one_choice(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(waiting_spec())))
    sessions = [device.start().join("test") for _ in range(10)]
    assert len({session.choose(CONTEXT) for session in sessions}) == 1
    assert device.start().resume("test").choose() == sessions[0].choose()


def test_no_choice_is_stored_after_the_report(tmp_path: Path) -> None:
    """A session that began before the report was made does not know of it."""
    device = keep_choice(tmp_path)
    earlier = device.start().join("test")
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert earlier.choose(MARKED)
    earlier.save()
    assert device.ledger().experiments_with_choice() == []
    assert len(device.server.posts) == 1


def test_an_outcome_at_the_end_of_a_day_waits_for_a_day(tmp_path: Path) -> None:
    """What a ledger says of its time is the day alone."""
    server = Server(published(make_spec()))
    device = Device(tmp_path, server)
    device.clock.time = 12 * 86_400.0 - 60
    session = device.start().join("test")
    session.choose(CONTEXT)
    device.clock.time += 30
    server.is_down = True
    assert session.report(1.0) is ReportStatus.PENDING
    server.is_down = False
    server.moves_on(make_spec(), 2, **OVER)
    device.clock.time += 86_300
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    server.moves_on(make_spec(), 3)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_members_of_a_source_owe_no_report_of_the_experiment(tmp_path: Path) -> None:
    """They report on the past alone, under the promise of their source; their choice owes no report."""
    source = {"name": "clinic", "participants": 2000, "epsilon": 0.5, "shares": [0.5, 0.25, 0.25]}
    spec = make_spec({"sources": [source], "experiment.conversion_window_seconds": WEEK})
    device = Device(tmp_path, Server(published(spec)))
    session = device.start().join("test", cohort="clinic")
    session.choose(MARKED)
    session.save()
    assert device.ledger().experiments_with_choice() == []
    partition_spec = make_spec({"experiment.conversion_window_seconds": WEEK})
    device.server.body = published(partition_spec, shown_spec=spec, version=5)
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {}
    assert (device.server.posts, device.ledger().payments()) == ([], [])


def test_a_choice_forgotten_during_a_request_is_not_reported(tmp_path: Path) -> None:
    """A server that answers slowly must not get a report of a choice that the person erases meanwhile."""
    server = Server(published(waiting_spec()))
    device = Device(tmp_path, server)
    device.start().join("test").choose(CONTEXT)
    device.clock.time += 2 * WEEK

    def forgetting(request: httpx.Request) -> httpx.Response:
        device.ledger().forget("http://s/test")
        return server(request)

    assert device.start(transport=Notary().transport(forgetting)).flush() == {}
    assert (server.posts, device.ledger().payments()) == ([], [])


def test_reports_hide_who_had_a_retired_arm(tmp_path: Path) -> None:
    """Under local a report says how many versions ago its person chose: it must be the same whichever arm they had."""
    spec = make_spec({"privacy.model": "local", "privacy.epsilon": 1.0})
    ages, arms = set(), set()
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        device = Device(tmp_path / str(number), Server(published(spec)))
        arms.add(device.start().join("test").choose(CONTEXT))
        device.server.moves_on(make_spec({"privacy.model": "local", "privacy.epsilon": 1.0}), 2)
        device.start().join("test").choose(CONTEXT)
        retired = make_spec({"privacy.model": "local", "privacy.epsilon": 1.0, "experiment.retired_arms": ["arm-1"]})
        device.server.moves_on(retired, 3)
        session = device.start().join("test")
        session.choose(CONTEXT)
        assert session.report(1.0) is ReportStatus.ACCEPTED
        ages.add(device.server.open_report()[:2])
    assert len(arms) > 1  # all alike by chance: 3^-11
    assert ages == {bytes(2)}


def test_the_age_of_a_report_ignores_the_context_of_later_visits(tmp_path: Path) -> None:
    """Neither another context nor another choice of the policy makes a device choose anew."""
    spec = make_spec({"privacy.model": "local", "privacy.epsilon": 1.0})
    ages = set()
    for number in range(6):
        (tmp_path / str(number)).mkdir()
        device = Device(tmp_path / str(number), Server(published(spec)))
        for version in range(1, 5):
            device.server.moves_on(spec, version)
            session = device.start().join("test")
            session.choose({"x1": (number * version) % 7 / 7, "x2": number / 6})
        assert session.report(number / 6) is ReportStatus.ACCEPTED
        ages.add(device.server.open_report()[:2])
    assert ages == {(3).to_bytes(2, "little")}
