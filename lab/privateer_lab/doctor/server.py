"""What the doctor looks at where a server has its data."""

import sqlite3
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from privateer_core.algorithms import ALGORITHMS, parse_spec
from privateer_core.errors import PluginError, SpecError
from privateer_core.serving.store.copies import is_held
from privateer_core.serving.store.database import Database
from privateer_core.serving.store.sqlite import SqliteDatabase, make_tables
from privateer_core.wire.keys import UNREADABLE_KEY
from privateer_lab.doctor import credentials
from privateer_lab.doctor.checkup import Checkup, Level
from privateer_lab.doctor.listeners import NAME_IT, Listeners, listed_keys
from privateer_lab.doctor.stored_data import (
    MIB,
    RESTORE,
    UNREADABLE,
    check_clock,
    check_disk,
    check_writable,
    connected,
    has_data,
    viewed,
)
from privateer_server.algorithms import LEARNERS, learner_for
from privateer_server.data import KEYS_FOLDER
from privateer_server.publication_log import IDENTITY_FILE
from privateer_server.rounds.agreement import Agreement, KeyFindings, compare
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.records import BackupRecord
from privateer_server.store.round_keys import KeyTable, RoundKeys, read_keys
from privateer_server.store.schema import (
    FILE,
    JOURNAL_FILE,
    JOURNAL_KIND,
    JOURNAL_SCHEMA,
    STORE_KIND,
    STORE_SCHEMA,
)
from privateer_server.store.store import Store

_CLOSING: Final = 8
"""A round that closes writes what it publishes to journal and database, each by way of its log, and once more."""
_TRIES: Final = 10
"""A round may close between two questions to a server; it does not again and again."""
BACKUP_SECONDS: Final = 8 * 86_400
"""The alert `PrivateerBackupFails` waits as long: whoever makes one a week has a day more."""
_OLD_COPY: Final = (
    "stop, and start with the journal and the newest copy of the database; else go on, and lose the round"
)
_KEYS_REMEDY: Final = "put the file back if you moved it; else start the server, which gives the round up"


def examine_server(settings: ServerSettings) -> Checkup:
    """Look at a server's data, its keys and its listeners."""
    found, listeners = Checkup("server"), Listeners.of(settings)
    folder = None if settings.database else settings.data
    journal = _journal_file(settings)
    if folder and not has_data(found, folder, journal.parent):
        return found
    held = is_held(folder / FILE) if folder else None
    trusted = credentials.check_trusted(found, "shufflers", settings.shuffler_keys)
    credentials.check_trusted(found, "senders", settings.sender_keys)
    if settings.admin_tokens:
        credentials.check_admin_tokens(found, settings.admin_tokens)
    for problem in (problems := [*ALGORITHMS.problems(), *LEARNERS.problems()]):
        found.fail("algorithms", problem.detail, problem.remedy or "")
    if not problems:
        found.ok("algorithms", f"{len(ALGORITHMS)} are installed")
    store_key = credentials.store_key(found, settings.store_key_file) if settings.database else None
    agreement = found.settled(lambda seen: _examine_data(seen, settings, store_key), once=held is False)
    identity = settings.identity or (folder / IDENTITY_FILE if folder else None)
    logged = agreement.logged if agreement else 0
    public = credentials.check_identity_key(found, identity, folder, logged) if identity else None
    if agreement:
        _check_experiments(found, agreement, trusted)
    rounds = agreement.open_rounds if agreement else {}
    here = sorted(name for name, facts in rounds.items() if facts.endpoint == "server")
    credentials.check_upload_tokens(found, settings.tokens, settings.host, here)
    check_clock(found, folder, agreement.last_time if agreement else 0.0)
    if folder:
        if agreement:
            _check_backup(found, agreement.store.backup)
        needed = _CLOSING * (agreement.largest if agreement else 0)
        check_writable(found, folder, journal, journal.parent)
        check_disk(found, [folder, journal.parent], needed)
    answers = listeners.check(found, held)
    if answers and folder:
        _check_rounds_of(found, listeners, folder / KEYS_FOLDER)
    credentials.check_signer(found, public, listeners.public, answers=answers)
    return found


def _journal_file(settings: ServerSettings) -> Path:
    return settings.journal or settings.data / JOURNAL_FILE


def _examine_data(found: Checkup, settings: ServerSettings, store_key: bytes | None) -> Agreement | None:
    """Look at store, journal and keys."""
    folder = settings.data / KEYS_FOLDER
    before = {path.stem for path in folder.glob("*.key")}
    if settings.database:
        journal = connected(found, "journal", settings.journal_database, JOURNAL_SCHEMA, "PRIVATEER_JOURNAL_DATABASE")
        store = connected(found, "database", settings.database, STORE_SCHEMA, "PRIVATEER_DATABASE")
    else:
        journal = _journal_view(found, _journal_file(settings))
        store = viewed(found, "database", settings.data / FILE, STORE_KIND)
    with ExitStack() as stack:
        for database in filter(None, (journal, store)):
            stack.callback(database.close)
        if not (journal and store):
            return None
        agreement = _compared(found, Store(store), Journal(journal))
        if agreement:
            _check_journal(found, agreement)
            if not settings.database:
                _check_filed_keys(found, agreement, folder, before)
            elif store_key:
                _check_shared_keys(found, agreement, journal, store_key)
    return agreement


def _journal_view(found: Checkup, path: Path) -> SqliteDatabase | None:
    """Return a view of the journal, or an empty one where there is none: a restored server has none at first."""
    if path.exists():
        return viewed(found, "journal", path, JOURNAL_KIND)
    remedy = "set PRIVATEER_JOURNAL to the one it had; without it a start gives the open rounds up"
    found.warn("journal", f"there is no {path.name}", remedy)
    empty = sqlite3.connect(":memory:", isolation_level=None)
    make_tables(empty, JOURNAL_KIND)
    return SqliteDatabase(empty)


def _compared(found: Checkup, store: Store, journal: Journal) -> Agreement | None:
    try:
        agreement = compare(store, journal)
        _ = agreement.open_rounds, agreement.public_keys, agreement.last_time
    except UNREADABLE as error:
        found.refuse_unreadable("database", "an experiment in it cannot be read", error, RESTORE)
        return None
    holds = f"experiments: {len(agreement.experiments):,}, open rounds: {len(agreement.open_rounds):,}"
    found.ok("database", f"the database and the journal are whole, schema {agreement.store.database.version}: {holds}")
    for wrong, names in agreement.store.disagreements.items():
        found.each(Level.FAIL, "database", names, "{}: " + wrong.value, RESTORE)
    return agreement


def _check_journal(found: Checkup, agreement: Agreement) -> None:
    """Say what a start would mend, and what it could not."""
    before = len(found.all)
    given_up = [f"{name}: {reason}" for name, reason in agreement.given_up.items()]
    found.each(Level.WARN, "journal", given_up, "a start gives up the open round of {}", _OLD_COPY)
    detail, remedy = "{} was published, and is not in the database", "restore a backup that has it"
    found.each(Level.WARN, "journal", agreement.lost, detail, remedy)
    detail = "{} was deleted, and an earlier copy has brought it back"
    found.each(Level.WARN, "journal", agreement.returned, detail, "start the server, which deletes it again")
    if agreement.is_forked:
        remedy = "start with the journal of this database, or with the database of this journal: no other way goes on"
        found.fail("journal", "the log in the journal is not the one in the database", remedy)
    if len(found.all) == before:
        found.ok("journal", "the journal and the database agree")


def _check_backup(found: Checkup, last: BackupRecord) -> None:
    """Say when `privateer backup` was complete last; a server may have other backups, or none."""
    before = f"the last complete one was made {_age(last.completed)}" if last.completed else "none was complete before"
    if last.is_incomplete:
        detail = f"the backup that was begun {_age(last.begun)} is not complete; {before}"
        found.warn("backup", detail, "nothing, if it is under way; else see the server's log, and make another")
    elif last.completed and time.time() - last.completed > BACKUP_SECONDS:
        found.warn("backup", f"the last backup was made {_age(last.completed)}", "find out why none was made since")
    elif last.completed:
        found.ok("backup", f"the last backup was made {_age(last.completed)}, of {-(-last.bytes // MIB):,} MiB")
    else:
        found.ok("backup", "privateer backup was never used here")


def _age(moment: float) -> str:
    hours = max(0, int(time.time() - moment)) // 3600
    return f"{hours // 24:,} days ago" if hours >= 48 else f"{hours} hours ago" if hours else "within the last hour"


def _check_filed_keys(found: Checkup, agreement: Agreement, folder: Path, before: Collection[str]) -> None:
    try:
        keys = read_keys(folder)
    except PermissionError:
        found.fail("round keys", f"a .key file of {folder.name} cannot be read", UNREADABLE_KEY)
    else:
        _check_keys(found, agreement.examine_keys(*keys, before))


def _check_keys(found: Checkup, keys: KeyFindings) -> None:
    """Check that every open round has its key and its sums, and that no key of a closed round is left."""
    if keys.broken:
        detail = f"{keys.broken:,} files hold no key, or not that of their name"
        found.fail("round keys", detail, _KEYS_REMEDY)
    found.each(Level.FAIL, "round keys", keys.lost, "the key of the open round of {} is lost", _KEYS_REMEDY)
    found.each(Level.FAIL, "round keys", keys.unread, "the sums of the open round of {} do not open", _KEYS_REMEDY)
    if keys.left:
        detail = f"keys of {keys.left:,} closed rounds are not erased"
        found.warn("round keys", detail, "start the server, which erases them; if it runs, see the disk and its log")
    if not any((keys.broken, keys.lost, keys.unread, keys.left)):
        found.ok("round keys", f"open rounds: {keys.rounds:,}; each has its key, and there is no other")


def _check_shared_keys(found: Checkup, agreement: Agreement, journal: Database, store_key: bytes) -> None:
    try:
        keys = RoundKeys(KeyTable(journal, store_key))
        wanted = [facts.public_key for facts in agreement.open_rounds.values()]
        findings = agreement.examine_keys({key: opener for key in wanted if (opener := keys.find(key))})
    except SpecError as error:
        found.refuse("round keys", error)
    except OSError as error:
        found.refuse_unreadable("round keys", "the keys in the journal's database cannot be read", error, RESTORE)
    else:
        _check_keys(found, findings)


def _check_experiments(found: Checkup, agreement: Agreement, trusted: set[str]) -> None:
    """Check that experiments have their algorithms, and open rounds a shuffler that is trusted where they need one."""
    for one in agreement.experiments:
        try:
            learner_for(parse_spec(msgspec.json.decode(one.spec)))
        except PluginError as problem:
            found.fail("algorithms", f"{one.name} stands still: {problem}", problem.remedy or "")
    asking = [one for one in agreement.experiments if one.name in agreement.open_rounds]
    strangers = [one.name for one in asking if one.standing.shuffler not in trusted | {""}]
    remedy = "put its public key back, or release the claim (docs/operations/keys.md)"
    found.each(Level.FAIL, "shufflers", strangers, "{} is claimed by a shuffler that is not trusted", remedy)
    shuffled = sorted(name for name, facts in agreement.open_rounds.items() if facts.endpoint == "shuffler")
    if not trusted:
        remedy = "put its public key where PRIVATEER_SHUFFLER_KEYS says"
        found.each(Level.FAIL, "shufflers", shuffled, "{} needs a shuffler, and none is trusted", remedy)


def _check_rounds_of(found: Checkup, listeners: Listeners, folder: Path) -> None:
    """Check that the server that answers is the one with these keys; one of its rounds may just have closed."""
    for _ in range(_TRIES):
        listed = listed_keys(listeners.public)
        if not listed or any((folder / f"{key}.key").exists() for key in listed):
            return
    found.fail("answers", f"the server at {listeners.public} has other open rounds than this folder", NAME_IT)
