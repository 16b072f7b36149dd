"""The PostgreSQL store: settings, versions, encrypted keys, leases, and two servers that close one round."""

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
from privateer_core.serving.http.problems import answer_defect
from privateer_core.serving.logs import Formatter
from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_server.data import Data, open_data
from privateer_server.intake.decryption import REPORT_ID_SIZE
from privateer_server.rounds.closing import ClosedRound, RoundCloser
from privateer_server.rounds.open_round import OpenRound, build_round_record, open_first_round
from privateer_server.rounds.states import RoundState
from privateer_server.settings import ServerSettings, read_settings
from privateer_server.store.records import JournalEntry, Leaf, RoundRecord, RoundUpdate, TokenRow
from privateer_server.store.schema import JOURNAL_SCHEMA, STORE_SCHEMA
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
def open_server(shared: Shared) -> Iterator[Callable[[], Data]]:
    opened_data: list[Data] = []

    def another() -> Data:
        opened_data.append(open_data(shared.settings()))
        return opened_data[-1]

    yield another
    for data in opened_data:
        data.close()


def refusal(settings: ServerSettings) -> SpecError:
    with pytest.raises(SpecError) as raised:
        open_data(settings)
    assert raised.value.remedy
    return raised.value


def test_a_database_of_a_newer_version_is_refused(shared: Shared, open_server: Callable[[], Data]) -> None:
    open_server()
    journal = shared.journal, "PRIVATEER_JOURNAL_DATABASE", JOURNAL_SCHEMA.version
    store = shared.database, "PRIVATEER_DATABASE", STORE_SCHEMA.version
    for url, field, version in (journal, store):
        shared.cluster.execute("UPDATE privateer_schema SET version = 99", url)
        error = refusal(shared.settings())
        says = f"the database was made by a newer Privateer: schema 99, and this one reads {version}"
        assert (error.field, error.detail, error.remedy) == (field, says, "install the newer version again")


def test_a_database_of_too_old_a_version_is_refused(shared: Shared, open_server: Callable[[], Data]) -> None:
    open_server()
    shared.cluster.execute("UPDATE privateer_schema SET version = 1", shared.database)
    error = refusal(shared.settings())
    assert (error.field, error.detail) == (
        "PRIVATEER_DATABASE",
        f"the database is too old: schema 1, and this Privateer reads {STORE_SCHEMA.version}",
    )


def test_a_migration_is_logged(shared, open_server, caplog):
    caplog.set_level(logging.INFO, "privateer.data")
    open_server()
    assert not [record for record in caplog.records if record.name == "privateer.data"]  # new tables are none
    now, later_version = STORE_SCHEMA.version, STORE_SCHEMA.version + 1
    later = replace(STORE_SCHEMA, version=later_version, steps={now: "CREATE TABLE pets (id bigint)"})
    for _ in range(2):
        PostgresDatabase(shared.database, later, "PRIVATEER_DATABASE").close()
    (line,) = (record for record in caplog.records if record.name == "privateer.data")
    assert line.getMessage() == "migrated"
    assert line.__dict__["fields"] == {"database": "store", "from_schema": now, "to_schema": later_version}


def test_store_and_journal_in_one_database_are_refused(shared: Shared) -> None:
    error = refusal(shared.settings().model_copy(update={"journal_database": shared.database}))
    assert (error.field, error.detail) == ("PRIVATEER_JOURNAL_DATABASE", "the database is the store's")


def test_a_missing_database_is_named(shared: Shared) -> None:
    missing_url = shared.database.replace("test_", "gone_")
    error = refusal(shared.settings().model_copy(update={"database": missing_url}))
    assert (error.field, "does not exist" in error.detail) == ("PRIVATEER_DATABASE", True)


@pytest.mark.parametrize("body", [None, b"short", b"x" * 33])
def test_a_key_file_has_32_bytes(shared: Shared, body: bytes | None) -> None:
    shared.key_file.unlink()
    if body is not None:
        shared.key_file.write_bytes(body)
    error = refusal(shared.settings())
    assert error.field == "PRIVATEER_STORE_KEY_FILE"
    assert "openssl rand" in str(error)


def test_another_key_file_is_refused(shared: Shared, open_server: Callable[[], Data]) -> None:
    open_server()
    shared.key_file.write_bytes(os.urandom(32))
    assert refusal(shared.settings()).detail == "what the database keeps of open rounds is encrypted under another key"


@pytest.mark.parametrize(
    "missing", ["PRIVATEER_JOURNAL_DATABASE", "PRIVATEER_STORE_KEY_FILE", "PRIVATEER_PUBLICATION_KEY"]
)
def test_settings_of_shared_data_are_required_together(missing: str) -> None:
    environment = {
        "PRIVATEER_DATABASE": "postgresql://one",
        "PRIVATEER_JOURNAL_DATABASE": "postgresql://two",
        "PRIVATEER_STORE_KEY_FILE": "key",
        "PRIVATEER_PUBLICATION_KEY": "identity",
        "PRIVATEER_ADMIN_TOKEN": TOKEN,
    }
    settings = read_settings(environment, [])
    read = (settings.database, settings.store_key_file, settings.publication_key)
    assert read == ("postgresql://one", Path("key"), Path("identity"))
    assert "postgresql" not in repr(settings)  # a password may be in it
    with pytest.raises(SpecError, match=missing):
        read_settings(environment | {missing: ""}, [])
    with pytest.raises(SpecError, match="PRIVATEER_DATABASE"):
        read_settings(environment | {"PRIVATEER_DATABASE": "mysql://one"}, [])


def test_keys_are_encrypted_in_the_database(shared: Shared, open_server: Callable[[], Data]) -> None:
    data = open_server()
    opener = data.keys.find_decryptor(data.keys.create_key())
    ((wrapped,),) = shared.cluster.execute("SELECT wrapped FROM keys", shared.journal)
    assert opener.private_bytes() not in bytes(wrapped)  # type: ignore[call-overload]


def test_old_keys_without_a_round_are_erased(shared: Shared, open_server: Callable[[], Data]) -> None:
    data = open_server()
    old, young, named = (data.keys.create_key() for _ in range(3))
    aged = f"made = made - interval '2 hours' WHERE public_key IN ('\\x{old.hex()}', '\\x{named.hex()}')"
    shared.cluster.execute(f"UPDATE keys SET {aged}", shared.journal)
    data.keys.erase_all_except([named])
    reopened_keys = open_server().keys
    assert [reopened_keys.find_decryptor(key) is not None for key in (old, young, named)] == [False, True, True]


def leases(data: Data, seconds: float) -> Any:
    store: Any = data.store
    store._leases = Leases(store._database, seconds)
    return store._leases


def test_one_server_has_the_lease_and_renews_it(open_server: Callable[[], Data]) -> None:
    first, second = leases(open_server(), 0.6), leases(open_server(), 0.6)
    with first.hold("test") as is_first_held:
        assert is_first_held
        time.sleep(1.0)
        for name, is_free in (("test", False), ("other", True)):
            with second.hold(name) as is_second_held:
                assert is_second_held is is_free
    with second.hold("test") as is_second_held:
        assert is_second_held


def test_each_attempt_delays_the_end_of_a_lease(shared: Shared, open_server: Callable[[], Data]) -> None:
    server_leases = leases(open_server(), 0.2)
    insert_dead_lease = "INSERT INTO leases VALUES ('test', 'x', clock_timestamp() - interval '0.3 s', {})"
    for attempts, is_free in ((1, True), (2, True), (3, True), (4, False), (40, False)):
        shared.rows("DELETE FROM leases")
        shared.rows(insert_dead_lease.format(attempts))
        with server_leases.hold("test") as is_held:
            assert is_held is is_free


def full_round(data: Data) -> OpenRound:
    """A round of which all reports are in, as the store has it."""
    first = open_first_round(make_spec(CENTRAL), data.keys.create_key())
    opener = data.keys.find_decryptor(first.round.public_key)
    assert opener is not None
    entry = RoundCloser(data, SystemClock()).record_publication(first, None)
    data.store.create("test", first.schedule.encoded_spec, entry.following)
    data.store.commit([RoundUpdate("test", 1, 20, state=RoundState.CLOSED)])
    return first


def test_two_servers_draw_noise_and_one_release_is_published(open_server, monkeypatch):
    """The lease of the first runs out while it draws: what the second has put on record stands, for both."""
    first, second = open_server(), open_server()
    current = full_round(first)
    for data in (first, second):
        leases(data, 0.2)
    monkeypatch.setattr(Lease, "_keep_renewing", lambda _: None)  # both servers stand still
    event, may_write = threading.Event(), threading.Event()
    entries: list[JournalEntry] = []
    write = first.journal.record_publication

    def slow(entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        event.set()
        assert may_write.wait(20)
        entries.append(entry)
        return write(entry, after)

    first.journal.record_publication = slow  # type: ignore[method-assign]
    closed: list[ClosedRound | None] = []
    first_close = threading.Thread(target=lambda: closed.append(RoundCloser(first, SystemClock()).close_round(current)))
    first_close.start()
    assert event.wait(20)
    second_close = None
    while second_close is None:
        time.sleep(0.05)
        second_close = RoundCloser(second, SystemClock()).close_round(current)
    may_write.set()
    first_close.join()
    (late,) = closed
    assert late.next_round.publication == second_close.next_round.publication
    assert entries[0].following.publication != second_close.next_round.publication  # it had drawn noise of its own
    assert first.store.publication("test", 2) == second_close.next_round.publication
    keys = [key for key in (current.round, second_close.next_round.round) if second.keys.find_decryptor(key.public_key)]
    assert keys == [second_close.next_round.round]
    assert len(first.keys._decryptors) == 1


def test_a_suspended_server_releases_no_round_closed_elsewhere(open_server, monkeypatch):
    """Suspend a server between reading the end of a round and closing it, while another closes two rounds."""
    first, second = open_server(), open_server()
    current = full_round(first)
    for data in (first, second):
        leases(data, 0.2)
    monkeypatch.setattr(Lease, "_keep_renewing", lambda _: None)
    ended, may_go_on = threading.Event(), threading.Event()
    honest = RoundCloser._read_or_write_entry

    def slow(closer: RoundCloser, open_round: OpenRound) -> JournalEntry:
        if closer._journal is first.journal:
            ended.set()
            assert may_go_on.wait(20)
        return honest(closer, open_round)

    monkeypatch.setattr(RoundCloser, "_read_or_write_entry", slow)
    failed: list[OSError] = []

    def close() -> None:
        try:
            RoundCloser(first, SystemClock()).close_round(current)
        except OSError as error:
            failed.append(error)

    sleeping_close = threading.Thread(target=close)
    sleeping_close.start()
    assert ended.wait(20)
    open_round, closer = current, RoundCloser(second, SystemClock())
    for _ in range(2):
        closed = None
        while closed is None:
            time.sleep(0.05)
            closed = closer.close_round(open_round)
        open_round = closed.next_round
        second.store.commit([RoundUpdate("test", open_round.round.version, 20, state=RoundState.CLOSED)])
    may_go_on.set()
    sleeping_close.join()
    assert [str(error) for error in failed] == ["the journal has another round as the last one"]
    assert [row.version for row in first.store.rounds("test")] == [1, 2, 3]
    last = second.journal.last_entry("test")
    assert last.following.digest == open_round.digest


def test_two_servers_fill_a_round_exactly(open_server: Callable[[], Data]) -> None:
    """Both count at the same time: whoever comes second sees what the first has counted."""
    first, second = open_server(), open_server()
    current = open_first_round(make_spec(CENTRAL), first.keys.create_key())
    key = first.keys.find_decryptor(current.round.public_key)
    first.store.create("test", current.schedule.encoded_spec, build_round_record(current, key))
    counts: list[int] = []

    def count(data: Data) -> None:
        for _ in range(30):
            with suppress(OSError), data.store.lock_experiments(["test"]) as locked:
                standing = locked.state("test")
                assert standing is not None
                if standing.received < 20:
                    counts.append(standing.received)
                    locked.commit([RoundUpdate("test", 1, 1)])

    threads = [threading.Thread(target=count, args=(data,)) for data in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(20))


def test_error_messages_do_not_quote_a_token_spent_twice(open_server, caplog):
    """Two servers may spend a token at once: the driver's message quotes the row, and the one log line must not."""
    data, token = open_server(), bytes(range(16))
    store, current = data.store, open_first_round(make_spec(CENTRAL), data.keys.create_key())
    store.create(
        "test",
        current.schedule.encoded_spec,
        build_round_record(current, data.keys.find_decryptor(current.round.public_key)),
    )
    store.commit([RoundUpdate("test", 1, 1, tokens=[TokenRow(1, token, b"report")])])
    with pytest.raises(Exception, match="the database refuses") as raised:
        store.commit([RoundUpdate("test", 1, 1, tokens=[TokenRow(1, token, b"another")])])
    error = raised.value
    assert type(error).__name__ == "UniqueViolation"
    response = answer_defect(error)
    logging.getLogger("privateer.server").error("a defect", exc_info=error)
    texts = ["".join(traceback.format_exception(error)), *(Formatter().format(record) for record in caplog.records)]
    assert (response.status, len(texts), all("UniqueViolation" in text for text in texts)) == (500, 3, True)
    texts.append(str(response))
    assert not [text for text in texts if token.hex() in text or str(token) in text]


def test_a_log_entry_waits_for_the_previous_entry(shared: Shared, open_server: Callable[[], Data]) -> None:
    """A server is slow to commit a publication: readers see no later place first, so that the log has no gap."""
    first, second = open_server(), open_server()
    first_leaf, second_leaf = Leaf("first", 1, b"one"), Leaf("second", 1, b"digest")
    following = RoundRecord(1, 10, 0, 0, RoundState.OPEN, b"digest", b"{}", b"publication", b"state", b"total")
    creating = threading.Thread(target=second.store.create, args=("second", b"spec", following))
    with first.store._database.transaction() as db:
        first.store._rounds.append_missing_leaves(db, [first_leaf])
        creating.start()
        creating.join(0.5)
        assert (creating.is_alive(), second.store.leaves(0)) == (True, [])
    creating.join(10)
    assert (creating.is_alive(), first.store.leaves(0)) == (False, [first_leaf, second_leaf])
    assert shared.rows("SELECT position FROM leaves ORDER BY position") == [(1,), (2,)]


@pytest.mark.parametrize("n_ids", [2, 600])
def test_report_ids_are_looked_up_by_index_under_stale_statistics(shared, open_server, n_ids):
    """Its statistics are of another round: it would read all ids of this one for each group of reports."""
    store, report_ids = open_server().store, [os.urandom(REPORT_ID_SIZE) for _ in range(20_000)]
    first = RoundRecord(1, 10**6, 0, 0, RoundState.OPEN, b"digest", b"{}", b"publication", b"state", b"total")
    for name in ("other", "test"):
        store.create(name, b"spec", replace(first, digest=name.encode()))
    store.commit([RoundUpdate("other", 1, 5000, part=b"one", total=b"sums", report_ids=tuple(report_ids[:5000]))])
    shared.rows("ANALYZE report_ids")
    store.commit([RoundUpdate("test", 1, len(report_ids), part=b"one", total=b"sums", report_ids=tuple(report_ids))])
    half = report_ids[: n_ids // 2]
    with store.lock_experiments(["test"]) as locked:
        assert locked.counted_ids("test", [*half, *(os.urandom(REPORT_ID_SIZE) for _ in half)]) == set(half)
        read = "SELECT pg_stat_get_xact_tuples_returned('report_ids_pkey'::regclass)"
        assert locked._db.exec_driver_sql(read).scalar_one() <= n_ids
