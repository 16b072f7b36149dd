"""What is PostgreSQL's alone: settings, versions, encrypted keys, leases, and two servers that close one round."""

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privateer_core.clock import SystemClock
from privateer_core.errors import SpecError
from privateer_core.serving.http.problems import defect
from privateer_core.serving.logs import Formatter
from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_server.data import Data, open_data
from privateer_server.intake.opening import REPORT_ID_SIZE
from privateer_server.rounds.closing import Closed, Closer
from privateer_server.rounds.open_round import OpenRound, first_round, record
from privateer_server.settings import ServerSettings, read_settings
from privateer_server.store.records import JournalEntry, Leaf, RoundRecord, RoundUpdate, TokenRow
from privateer_server.store.schema import STORE_SCHEMA
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.servers import TOKEN
from tests.support.specs import make_spec

pytestmark = pytest.mark.postgres
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6, "experiment.round_size": 20, "experiment.horizon": 1000}


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> Shared:
    return Shared.make(postgres, tmp_path)


@pytest.fixture
def opened(shared: Shared) -> Iterator[Callable[[], Data]]:
    every: list[Data] = []

    def another() -> Data:
        every.append(open_data(shared.settings()))
        return every[-1]

    yield another
    for data in every:
        data.close()


def refusal(settings: ServerSettings) -> SpecError:
    with pytest.raises(SpecError) as raised:
        open_data(settings)
    assert raised.value.remedy
    return raised.value


def test_a_database_of_a_newer_version_is_refused(shared: Shared, opened: Callable[[], Data]) -> None:
    opened()
    journal, store = (shared.journal, "PRIVATEER_JOURNAL_DATABASE", 2), (shared.database, "PRIVATEER_DATABASE", 3)
    for url, field, version in (journal, store):
        shared.cluster.execute("UPDATE privateer_schema SET version = 99", url)
        error = refusal(shared.settings())
        says = f"the database was made by a newer Privateer: schema 99, and this one reads {version}"
        assert (error.field, error.detail, error.remedy) == (field, says, "install the newer version again")


def test_a_database_of_too_old_a_version_is_refused(shared: Shared, opened: Callable[[], Data]) -> None:
    opened()
    shared.cluster.execute("UPDATE privateer_schema SET version = 1", shared.database)
    error = refusal(shared.settings())
    assert (error.field, error.detail) == (
        "PRIVATEER_DATABASE",
        "the database is too old: schema 1, and this Privateer reads 3",
    )


def test_a_migration_is_a_line_of_the_log(
    shared: Shared, opened: Callable[[], Data], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "privateer.data")
    opened()
    assert not caplog.records  # tables that are made anew are none
    later = replace(STORE_SCHEMA, version=4, steps={3: "CREATE TABLE pets (id bigint)"})
    for _ in range(2):
        PostgresDatabase(shared.database, later, "PRIVATEER_DATABASE").close()
    (line,) = caplog.records
    assert line.getMessage() == "migrated"
    assert line.__dict__["fields"] == {"database": "store", "from_schema": 3, "to_schema": 4}


def test_one_database_for_both_is_refused(shared: Shared) -> None:
    error = refusal(shared.settings().model_copy(update={"journal_database": shared.database}))
    assert (error.field, error.detail) == ("PRIVATEER_JOURNAL_DATABASE", "the database is the store's")


def test_a_database_that_is_not_there_is_named(shared: Shared) -> None:
    gone = shared.database.replace("test_", "gone_")
    error = refusal(shared.settings().model_copy(update={"database": gone}))
    assert (error.field, "does not exist" in error.detail) == ("PRIVATEER_DATABASE", True)


@pytest.mark.parametrize("body", [None, b"short", b"x" * 33])
def test_a_key_file_has_32_bytes(shared: Shared, body: bytes | None) -> None:
    shared.key_file.unlink()
    if body is not None:
        shared.key_file.write_bytes(body)
    error = refusal(shared.settings())
    assert error.field == "PRIVATEER_STORE_KEY_FILE"
    assert "openssl rand" in str(error)


def test_another_key_file_is_refused(shared: Shared, opened: Callable[[], Data]) -> None:
    opened()
    shared.key_file.write_bytes(os.urandom(32))
    assert refusal(shared.settings()).detail == "what the database keeps of open rounds is encrypted under another key"


@pytest.mark.parametrize("missing", ["PRIVATEER_JOURNAL_DATABASE", "PRIVATEER_STORE_KEY_FILE", "PRIVATEER_IDENTITY"])
def test_settings_of_shared_data_are_whole(missing: str) -> None:
    given = {
        "PRIVATEER_DATABASE": "postgresql://one",
        "PRIVATEER_JOURNAL_DATABASE": "postgresql://two",
        "PRIVATEER_STORE_KEY_FILE": "key",
        "PRIVATEER_IDENTITY": "identity",
        "PRIVATEER_ADMIN_TOKEN": TOKEN,
    }
    settings = read_settings(given, [])
    read = (settings.database, settings.store_key_file, settings.identity)
    assert read == ("postgresql://one", Path("key"), Path("identity"))
    assert "postgresql" not in repr(settings)  # a password may be in it
    with pytest.raises(SpecError, match=missing):
        read_settings(given | {missing: ""}, [])
    with pytest.raises(SpecError, match="PRIVATEER_DATABASE"):
        read_settings(given | {"PRIVATEER_DATABASE": "mysql://one"}, [])


def test_keys_are_encrypted_in_the_database(shared: Shared, opened: Callable[[], Data]) -> None:
    data = opened()
    opener = data.keys.find(data.keys.make())
    assert opener is not None
    ((wrapped,),) = shared.cluster.execute("SELECT wrapped FROM keys", shared.journal)
    assert opener.private_bytes() not in bytes(wrapped)  # type: ignore[call-overload]


def test_keys_that_nobody_names_go_when_they_are_old(shared: Shared, opened: Callable[[], Data]) -> None:
    data = opened()
    old, young, named = (data.keys.make() for _ in range(3))
    aged = f"made = made - interval '2 hours' WHERE public_key IN ('\\x{old.hex()}', '\\x{named.hex()}')"
    shared.cluster.execute(f"UPDATE keys SET {aged}", shared.journal)
    data.keys.keep([named])
    again = opened().keys
    assert [again.find(key) is not None for key in (old, young, named)] == [False, True, True]


def leases(data: Data, seconds: float) -> Any:
    store: Any = data.store
    store._leases = Leases(store._database, seconds)
    return store._leases


def test_one_server_has_the_lease_and_renews_it(opened: Callable[[], Data]) -> None:
    one, two = leases(opened(), 0.6), leases(opened(), 0.6)
    with one.held("test") as first:
        assert first
        time.sleep(1.0)
        for name, free in (("test", False), ("other", True)):
            with two.held(name) as second:
                assert second is free
    with two.held("test") as second:
        assert second


def test_the_lease_of_a_dead_server_ends_later_each_time(shared: Shared, opened: Callable[[], Data]) -> None:
    one = leases(opened(), 0.2)
    dies = "INSERT INTO leases VALUES ('test', 'x', clock_timestamp() - interval '0.3 s', {})"
    for attempts, free in ((1, True), (2, True), (3, True), (4, False), (40, False)):
        shared.rows("DELETE FROM leases")
        shared.rows(dies.format(attempts))
        with one.held("test") as held:
            assert held is free


def full_round(data: Data) -> OpenRound:
    """A round of which all reports are in, as the store has it."""
    first = first_round(make_spec(CENTRAL), data.keys.make())
    opener = data.keys.find(first.round.public_key)
    assert opener is not None
    entry = Closer(data, SystemClock()).enter(first, None)
    data.store.create("test", first.schedule.encoded, entry.following)
    data.store.commit([RoundUpdate("test", 1, 20, taken=True)])
    return first


def test_two_servers_draw_noise_and_one_release_is_published(
    opened: Callable[[], Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the first runs out while it draws: what the second has put on record stands, for both."""
    one, two = opened(), opened()
    current = full_round(one)
    for data in (one, two):
        leases(data, 0.2)
    monkeypatch.setattr(Lease, "_renew", lambda _: None)  # both servers stand still
    drawn, may_write = threading.Event(), threading.Event()
    written: list[JournalEntry] = []
    write = one.journal.write

    def slow(entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        drawn.set()
        assert may_write.wait(20)
        written.append(entry)
        return write(entry, after)

    one.journal.write = slow  # type: ignore[method-assign]
    closed: list[Closed | None] = []
    first = threading.Thread(target=lambda: closed.append(Closer(one, SystemClock()).close(current)))
    first.start()
    assert drawn.wait(20)
    second = None
    while second is None:
        time.sleep(0.05)
        second = Closer(two, SystemClock()).close(current)
    may_write.set()
    first.join()
    (late,) = closed
    assert late is not None
    assert late.opened.publication == second.opened.publication
    assert written[0].following.publication != second.opened.publication  # it had drawn noise of its own
    assert one.store.publication("test", 2) == second.opened.publication
    keys = [key for key in (current.round, second.opened.round) if two.keys.find(key.public_key)]
    assert keys == [second.opened.round]
    assert len(one.keys._openers) == 1


def test_a_server_that_slept_through_two_rounds_releases_nothing(
    opened: Callable[[], Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read that a round is over, and goes on when two others have closed it and the next one."""
    one, two = opened(), opened()
    current = full_round(one)
    for data in (one, two):
        leases(data, 0.2)
    monkeypatch.setattr(Lease, "_renew", lambda _: None)
    ended, may_go_on = threading.Event(), threading.Event()
    honest = Closer._on_record

    def slow(closer: Closer, known: OpenRound) -> JournalEntry:
        if closer._journal is one.journal:
            ended.set()
            assert may_go_on.wait(20)
        return honest(closer, known)

    monkeypatch.setattr(Closer, "_on_record", slow)
    failed: list[OSError] = []

    def close() -> None:
        try:
            Closer(one, SystemClock()).close(current)
        except OSError as error:
            failed.append(error)

    first = threading.Thread(target=close)
    first.start()
    assert ended.wait(20)
    known, closer = current, Closer(two, SystemClock())
    for _ in range(2):
        closed = None
        while closed is None:
            time.sleep(0.05)
            closed = closer.close(known)
        known = closed.opened
        two.store.commit([RoundUpdate("test", known.round.version, 20, taken=True)])
    may_go_on.set()
    first.join()
    assert [str(error) for error in failed] == ["the journal has another round as the last one"]
    assert [row.version for row in one.store.rounds("test")] == [1, 2, 3]
    last = two.journal.last("test")
    assert last is not None
    assert last.following.digest == known.digest


def test_a_round_that_reports_fill_elsewhere_takes_the_last_place_once(opened: Callable[[], Data]) -> None:
    """Both count at the same time: whoever comes second sees what the first has counted."""
    one, two = opened(), opened()
    first = first_round(make_spec(CENTRAL), one.keys.make())
    one.store.create("test", first.schedule.encoded, record(first, one.keys.find(first.round.public_key)))
    seen: list[int] = []

    def count(data: Data) -> None:
        for _ in range(30):
            with suppress(OSError), data.store.locked(["test"]) as locked:
                standing = locked.standing("test")
                assert standing is not None
                if standing.received < 20:
                    seen.append(standing.received)
                    locked.commit([RoundUpdate("test", 1, 1)])

    threads = [threading.Thread(target=count, args=(data,)) for data in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(20))


def test_what_the_database_says_of_a_token_spent_twice_is_repeated_nowhere(
    opened: Callable[[], Data], caplog: pytest.LogCaptureFixture
) -> None:
    """Two servers may spend a token at once: the driver's message quotes the row, and the one log line must not."""
    data, token = opened(), bytes(range(16))
    store, first = data.store, first_round(make_spec(CENTRAL), data.keys.make())
    store.create("test", first.schedule.encoded, record(first, data.keys.find(first.round.public_key)))
    store.commit([RoundUpdate("test", 1, 1, tokens=[TokenRow(1, token, b"report")])])
    with pytest.raises(Exception, match="the database refuses") as raised:
        store.commit([RoundUpdate("test", 1, 1, tokens=[TokenRow(1, token, b"another")])])
    error = raised.value
    assert type(error).__name__ == "UniqueViolation"
    response = defect(error)
    logging.getLogger("privateer.server").error("a defect", exc_info=error)
    said = ["".join(traceback.format_exception(error)), *(Formatter().format(one) for one in caplog.records)]
    assert (response.status, len(said), all("UniqueViolation" in one for one in said)) == (500, 3, True)
    said.append(str(response))
    assert not [one for one in said if token.hex() in one or str(token) in one]


def test_the_next_place_in_the_log_waits_for_the_one_before(shared: Shared, opened: Callable[[], Data]) -> None:
    """A server is slow to commit what it publishes: nobody reads a later place first, so that the log has no gap."""
    one, two = opened(), opened()
    first, second = Leaf("first", 1, b"one"), Leaf("second", 1, b"digest")
    following = RoundRecord(1, 10, 0, 0, False, b"digest", b"{}", b"publication", b"state", b"total")
    creating = threading.Thread(target=two.store.create, args=("second", b"spec", following))
    with one.store._database.transaction() as db:
        one.store._rounds.add_leaves(db, [first])
        creating.start()
        creating.join(0.5)
        assert (creating.is_alive(), two.store.leaves(0)) == (True, [])
    creating.join(10)
    assert (creating.is_alive(), one.store.leaves(0)) == (False, [first, second])
    assert shared.rows("SELECT position FROM leaves ORDER BY position") == [(1,), (2,)]


@pytest.mark.parametrize("asked", [2, 600])
def test_ids_are_looked_up_one_by_one_whatever_postgresql_knows_of_the_round(
    shared: Shared, opened: Callable[[], Data], asked: int
) -> None:
    """Its statistics are of another round: it would read all ids of this one for each group of reports."""
    store, held = opened().store, [os.urandom(REPORT_ID_SIZE) for _ in range(20_000)]
    first = RoundRecord(1, 10**6, 0, 0, False, b"digest", b"{}", b"publication", b"state", b"total")
    for name in ("other", "test"):
        store.create(name, b"spec", replace(first, digest=name.encode()))
    store.commit([RoundUpdate("other", 1, 5000, part=b"one", total=b"sums", report_ids=tuple(held[:5000]))])
    shared.rows("ANALYZE report_ids")
    store.commit([RoundUpdate("test", 1, len(held), part=b"one", total=b"sums", report_ids=tuple(held))])
    known = held[: asked // 2]
    with store.locked(["test"]) as locked:
        assert locked.seen("test", [*known, *(os.urandom(REPORT_ID_SIZE) for _ in known)]) == set(known)
        read = "SELECT pg_stat_get_xact_tuples_returned('report_ids_pkey'::regclass)"
        assert locked._db is not None
        assert locked._db.exec_driver_sql(read).scalar_one() <= asked
