"""Checks of a server's data, keys and listeners."""

import sqlite3
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from privateer_core.algorithms import ALGORITHMS, parse_spec
from privateer_core.errors import PluginError, SpecError
from privateer_core.serving.store.copies import is_open_elsewhere
from privateer_core.serving.store.database import Database, SqliteDatabase
from privateer_core.serving.store.sqlite import make_tables
from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_lab.doctor import checkup as folders
from privateer_lab.doctor import credentials
from privateer_lab.doctor.checkup import MIB, RESTORE, UNREADABLE, Checkup, Level
from privateer_lab.doctor.places import NAME_REMEDY, Listeners, fetch_listed_keys
from privateer_server.algorithms import LEARNERS, learner_for
from privateer_server.data import IDENTITY_FILE, KEYS_FOLDER
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.agreement import Agreement, KeyFindings, compare_store_and_journal
from privateer_server.settings import ServerSettings
from privateer_server.store import schema
from privateer_server.store.journal import Journal
from privateer_server.store.records import BackupRecord
from privateer_server.store.round_keys import KeyTable, read_keys
from privateer_server.store.store import Store

_N_CLOSING_WRITES: Final = 8
"""Writes of a publication when a round closes: to journal and database, with their logs, twice."""
_MAX_TRIES: Final = 10
"""Largest number of requests: a round may close between two requests."""
BACKUP_SECONDS: Final = 8 * 86_400
"""Age of a backup from which there is a warning, as for the alert `PrivateerBackupFails`."""
_OLD_COPY_REMEDY: Final = (
    "stop, and start with the journal and the newest copy of the database; else go on, and lose the round"
)
_KEYS_REMEDY: Final = "put the file back if you moved it; else start the server, which gives the round up"


def examine_server(settings: ServerSettings) -> Checkup:
    """Check a server's data, keys and listeners."""
    checkup, listeners = Checkup("server"), Listeners.from_settings(settings)
    folder = None if settings.database else settings.data
    journal = settings.journal or settings.data / schema.JOURNAL_FILE
    if folder and not folders.check_data(checkup, folder, journal.parent):
        return checkup
    is_in_use = is_open_elsewhere(folder / schema.STORE_FILE) if folder else None
    trusted_ids = credentials.check_trusted(checkup, "shufflers", settings.shuffler_keys)
    credentials.check_trusted(checkup, "senders", settings.sender_keys)
    if settings.admin_tokens:
        credentials.check_admin_tokens(checkup, settings.admin_tokens)
    for problem in (problems := [*ALGORITHMS.problems(), *LEARNERS.problems()]):
        checkup.fail("algorithms", problem.detail, problem.remedy or "")
    if not problems:
        checkup.ok("algorithms", f"{len(ALGORITHMS)} are installed")
    store_key = credentials.find_store_key(checkup, settings.store_key_file) if settings.database else None
    agreement = checkup.repeat(lambda attempt: _examine_data(attempt, settings, store_key), is_final=is_in_use is False)
    identity = settings.publication_key or (folder / IDENTITY_FILE if folder else None)
    n_published = agreement.logged if agreement else 0
    public_key = credentials.check_identity_key(checkup, identity, folder, n_published) if identity else None
    if agreement:
        _check_experiments(checkup, agreement, trusted_ids)
    rounds = agreement.open_rounds if agreement else {}
    server_experiments = sorted(name for name, facts in rounds.items() if facts.endpoint == "server")
    credentials.check_token_keys(checkup, settings.tokens, settings.host, server_experiments)
    folders.check_clock(checkup, folder, agreement.last_time if agreement else 0.0)
    if folder:
        if agreement:
            _check_backup(checkup, agreement.store.backup)
        required_bytes = _N_CLOSING_WRITES * (agreement.max_round_bytes if agreement else 0)
        folders.check_writable(checkup, folder, journal, journal.parent)
        folders.check_disk(checkup, [folder, journal.parent], required_bytes)
    is_answering = listeners.check(checkup, is_in_use)
    if is_answering and folder:
        _check_open_rounds(checkup, listeners, folder / KEYS_FOLDER)
    credentials.check_signer(checkup, public_key, listeners.public, is_answering=is_answering)
    return checkup


def _examine_data(checkup: Checkup, settings: ServerSettings, store_key: bytes | None) -> Agreement | None:
    """Check store, journal and keys; return the agreement of the two databases, None if one cannot be read."""
    folder = settings.data / KEYS_FOLDER
    earlier_key_ids = {path.stem for path in folder.glob("*.key")}
    if settings.database:
        url, setting = settings.journal_database, "PRIVATEER_JOURNAL_DATABASE"
        journal = folders.open_read_only(checkup, "journal", url, schema.JOURNAL_SCHEMA, setting)
        store = folders.open_read_only(
            checkup, "database", settings.database, schema.STORE_SCHEMA, "PRIVATEER_DATABASE"
        )
    else:
        journal = _open_journal_view(checkup, settings.journal or settings.data / schema.JOURNAL_FILE)
        store = folders.open_file_view(checkup, "database", settings.data / schema.STORE_FILE, schema.STORE_KIND)
    with ExitStack() as stack:
        for database in filter(None, (journal, store)):
            stack.callback(database.close)
        if not (journal and store):
            return None
        agreement = _compare_stores(checkup, Store(store), Journal(journal))
        if agreement:
            _check_journal(checkup, agreement)
            if not settings.database:
                _check_filed_keys(checkup, agreement, folder, earlier_key_ids)
            elif store_key:
                _check_shared_keys(checkup, agreement, journal, store_key)
    return agreement


def _open_journal_view(checkup: Checkup, path: Path) -> SqliteDatabase | None:
    """Return a view of the journal, or an empty journal if there is none, as after a restore."""
    if path.exists():
        return folders.open_file_view(checkup, "journal", path, schema.JOURNAL_KIND)
    remedy = "set PRIVATEER_JOURNAL to the one it had; without it a start gives the open rounds up"
    checkup.warn("journal", f"there is no {path.name}", remedy)
    empty = sqlite3.connect(":memory:", isolation_level=None)
    make_tables(empty, schema.JOURNAL_KIND)
    return SqliteDatabase(empty)


def _compare_stores(checkup: Checkup, store: Store, journal: Journal) -> Agreement | None:
    """Compare the database with the journal, and add what is found to the checkup; None if either cannot be read."""
    try:
        agreement = compare_store_and_journal(store, journal)
        _ = agreement.open_rounds, agreement.public_keys, agreement.last_time
    except UNREADABLE as error:
        checkup.refuse_unreadable("database", "an experiment in it cannot be read", error, RESTORE)
        return None
    version, n_rounds = agreement.store.database.version, len(agreement.open_rounds)
    counts = f"experiments: {len(agreement.experiments):,}, open rounds: {n_rounds:,}"
    checkup.ok("database", f"the database and the journal are whole, schema {version}: {counts}")
    for disagreement, names in agreement.store.disagreements.items():
        checkup.add_all(Level.FAIL, "database", names, "{}: " + disagreement.value, RESTORE)
    return agreement


def _check_journal(checkup: Checkup, agreement: Agreement) -> None:
    """Add findings about differences of journal and database, which a start may repair."""
    n_checks_before = len(checkup.checks)
    abandoned = [f"{name}: {reason}" for name, reason in agreement.give_up_reasons.items()]
    checkup.add_all(Level.WARN, "journal", abandoned, "a start gives up the open round of {}", _OLD_COPY_REMEDY)
    detail, remedy = "{} was published, and is not in the database", "restore a backup that has it"
    checkup.add_all(Level.WARN, "journal", agreement.lost, detail, remedy)
    detail = "{} was deleted, and an earlier copy has brought it back"
    checkup.add_all(Level.WARN, "journal", agreement.returned, detail, "start the server, which deletes it again")
    if agreement.is_forked:
        remedy = "start with the journal of this database, or with the database of this journal: no other way goes on"
        checkup.fail("journal", "the log in the journal is not the one in the database", remedy)
    if len(checkup.checks) == n_checks_before:
        checkup.ok("journal", "the journal and the database agree")


def _check_backup(checkup: Checkup, backup: BackupRecord) -> None:
    """Add a finding about the last backup by `privateer backup`."""
    age = _format_age(backup.completed)
    previous = f"the last complete one was made {age}" if backup.completed else "none was complete before"
    if backup.is_incomplete:
        detail = f"the backup that was begun {_format_age(backup.begun)} is not complete; {previous}"
        checkup.warn("backup", detail, "nothing, if it is under way; else see the server's log, and make another")
    elif backup.completed and time.time() - backup.completed > BACKUP_SECONDS:
        checkup.warn("backup", f"the last backup was made {age}", "find out why none was made since")
    elif backup.completed:
        checkup.ok("backup", f"the last backup ({-(-backup.bytes // MIB):,} MiB) was made {age}")
    else:
        checkup.ok("backup", "privateer backup was never used here")


def _format_age(moment: float) -> str:
    hours = max(0, int(time.time() - moment)) // 3600
    return f"{hours // 24:,} days ago" if hours >= 48 else f"{hours} hours ago" if hours else "within the last hour"


def _check_filed_keys(checkup: Checkup, agreement: Agreement, folder: Path, earlier_key_ids: Collection[str]) -> None:
    """Check the round keys in the folder's files against the rounds that are open."""
    try:
        keys = read_keys(folder)
    except PermissionError:
        checkup.fail("round keys", f"a .key file of {folder.name} cannot be read", UNREADABLE_KEY_REMEDY)
    else:
        _check_keys(checkup, agreement.examine_keys(*keys, earlier_key_ids))


def _check_keys(checkup: Checkup, keys: KeyFindings) -> None:
    """Check that every open round has its key and sums, and that keys of closed rounds are erased."""
    if keys.n_broken:
        detail = f"{keys.n_broken:,} files hold no key, or not that of their name"
        checkup.fail("round keys", detail, _KEYS_REMEDY)
    checkup.add_all(Level.FAIL, "round keys", keys.lost, "the key of the open round of {} is lost", _KEYS_REMEDY)
    checkup.add_all(Level.FAIL, "round keys", keys.unread, "the sums of the open round of {} do not open", _KEYS_REMEDY)
    if keys.n_unerased:
        detail = f"keys of {keys.n_unerased:,} closed rounds are not erased"
        checkup.warn("round keys", detail, "start the server, which erases them; if it runs, see the disk and its log")
    if not any((keys.n_broken, keys.lost, keys.unread, keys.n_unerased)):
        checkup.ok("round keys", f"open rounds: {keys.rounds:,}; each has its key, and there are no other keys")


def _check_shared_keys(checkup: Checkup, agreement: Agreement, journal: Database, store_key: bytes) -> None:
    """Check the round keys in the journal's database against the rounds that are open."""
    try:
        keys = RoundKeys(KeyTable(journal, store_key))
        public_keys = [facts.public_key for facts in agreement.open_rounds.values()]
        findings = agreement.examine_keys({key: opener for key in public_keys if (opener := keys.find_decryptor(key))})
    except SpecError as error:
        checkup.refuse("round keys", error)
    except OSError as error:
        checkup.refuse_unreadable("round keys", "the keys in the journal's database cannot be read", error, RESTORE)
    else:
        _check_keys(checkup, findings)


def _check_experiments(checkup: Checkup, agreement: Agreement, trusted_ids: set[str]) -> None:
    """Check that the algorithms of experiments are installed, and that shufflers of open rounds are trusted."""
    for experiment in agreement.experiments:
        try:
            learner_for(parse_spec(msgspec.json.decode(experiment.spec)))
        except PluginError as problem:
            checkup.fail("algorithms", f"{experiment.name} stands still: {problem}", problem.remedy or "")
    receiving = [experiment for experiment in agreement.experiments if experiment.name in agreement.open_rounds]
    untrusted = [experiment.name for experiment in receiving if experiment.state.shuffler not in trusted_ids | {""}]
    remedy = "put its public key back, or release the claim (docs/operations/keys.md)"
    checkup.add_all(Level.FAIL, "shufflers", untrusted, "{} is claimed by a shuffler that is not trusted", remedy)
    shuffled = sorted(name for name, facts in agreement.open_rounds.items() if facts.endpoint == "shuffler")
    if not trusted_ids:
        remedy = "put its public key where PRIVATEER_SHUFFLER_KEYS says"
        checkup.add_all(Level.FAIL, "shufflers", shuffled, "{} needs a shuffler, and none is trusted", remedy)


def _check_open_rounds(checkup: Checkup, listeners: Listeners, folder: Path) -> None:
    """Check that the server at the listeners has the open rounds of this folder."""
    for _ in range(_MAX_TRIES):
        listed = fetch_listed_keys(listeners.public)
        if not listed or any((folder / f"{key}.key").exists() for key in listed):
            return
    checkup.fail("answers", f"the server at {listeners.public} has other open rounds than this folder", NAME_REMEDY)
