"""What the doctor looks at where a server has its data."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from privateer_core.codec import decode
from privateer_core.errors import PrivateerError
from privateer_core.serving.store.sqlite import SqliteDatabase, make_tables
from privateer_core.wire.publication import Round, decode_publication
from privateer_lab.doctor.algorithms import check_algorithms, check_experiments
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.copies import Unsettled, copy_of
from privateer_lab.doctor.credentials import check_admin_tokens, check_upload_tokens
from privateer_lab.doctor.files import MIB, check_clock, check_disk, check_folder, is_held
from privateer_lab.doctor.key_files import check_identity_key, check_signer, check_store_key, check_trusted
from privateer_lab.doctor.listeners import Listeners, listed_keys
from privateer_lab.doctor.stores import checked
from privateer_server.data import KEYS_FOLDER
from privateer_server.intake.opening import Opener
from privateer_server.publication_log import IDENTITY_FILE
from privateer_server.rounds.open_round import RoundFacts
from privateer_server.rounds.recovery import reason_to_give_up
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.records import ExperimentRecord, JournalEntry
from privateer_server.store.schema import FILE, JOURNAL_FILE, JOURNAL_KIND, STORE_KIND
from privateer_server.store.store import Store

_SPARE: Final = 64 * MIB
_CLOSING: Final = 8
"""A round that closes writes what it publishes to journal and database, each by way of its log, and once more."""
_KEY_SIZE: Final = 32
_TRIES: Final = 10
"""A round may close between two looks at what a server that runs has; it does not again and again."""
_RESTORE: Final = "restore a backup into an empty folder"
_OLD_COPY: Final = (
    "stop, and start with the journal and the newest copy of the database; else go on, and lose the round"
)


@dataclass(frozen=True)
class Contents:
    """What the files of a server hold.

    Attributes
    ----------
    experiments, deleted
        Those of the database, and the names of deleted ones.
    entries, buried
        The journal's last publications by experiment, and the names of deleted ones.
    recorded
        The newest time on record, in seconds since 1970.
    logged, forked
        Publications in the log, and whether journal and database have two logs.
    """

    experiments: list[ExperimentRecord]
    deleted: set[str]
    entries: dict[str, JournalEntry] = field(repr=False)
    buried: set[str]
    recorded: float
    logged: int = 0
    forked: bool = False

    @cached_property
    def open_rounds(self) -> dict[str, Round]:
        """The rounds that take reports, by experiment."""
        rounds = {one.name: decode_publication(one.current.publication).round for one in self.experiments}
        return {name: facts for name, facts in rounds.items() if facts.batch}

    @property
    def open_keys(self) -> dict[str, bytes]:
        """The public keys of rounds that take reports, by experiment."""
        return {name: facts.public_key for name, facts in self.open_rounds.items()}

    @property
    def following_keys(self) -> set[bytes]:
        """The public keys of rounds that are on record and perhaps not yet in the database."""
        return {decode_publication(entry.following.publication).round.public_key for entry in self.entries.values()}

    @property
    def largest(self) -> int:
        """The bytes of the largest last round."""
        rounds = [one.current for one in self.experiments]
        return max((len(one.publication) + len(one.state) + len(one.total) for one in rounds), default=0)


def examine_server(settings: ServerSettings) -> Checkup:
    """Look at a server's folder and listeners."""
    found = Checkup("server")
    if settings.database:
        return _examine_shared(found, settings)
    if not check_folder(found, settings.data, "PRIVATEER_DATA"):
        return found
    held = is_held(settings.data / FILE)
    listeners = Listeners((settings.host, settings.port), (settings.admin_host, settings.admin_port))
    if not any(settings.data.iterdir()):
        found.warn("folder", "the folder is empty", "nothing, if the server never started; else correct PRIVATEER_DATA")
        return found
    trusted = check_trusted(found, "shufflers", settings.shuffler_keys)
    check_trusted(found, "senders", settings.sender_keys)
    _check_operators(found, settings)
    check_algorithms(found)
    contents = found.settled(lambda seen: _examine_files(seen, settings), once=held is False)
    identity = settings.identity or settings.data / IDENTITY_FILE
    public = check_identity_key(found, identity, settings.data, contents.logged if contents else 0)
    if contents:
        check_experiments(found, contents.experiments)
        _check_claims(found, contents, trusted)
    here = [name for name, facts in contents.open_rounds.items() if facts.endpoint == "server"] if contents else []
    check_upload_tokens(found, settings.tokens, settings.host, sorted(here))
    check_clock(found, settings.data, contents.recorded if contents else 0.0)
    needed = _SPARE + _CLOSING * (contents.largest if contents else 0)
    check_disk(found, [settings.data, _journal(settings).parent], needed)
    answers = listeners.check(found, held)
    if answers:
        _check_rounds_of(found, listeners, settings.data / KEYS_FOLDER)
    check_signer(found, public, listeners.public, answers=answers)
    return found


def _examine_shared(found: Checkup, settings: ServerSettings) -> Checkup:
    """Look at a server whose data are in PostgreSQL, of which the doctor opens nothing."""
    remedy = "ask /readyz and /metrics, and PostgreSQL's own tools (docs/operations.md, More than one server)"
    found.warn("database", "the data are in PostgreSQL, where the doctor does not look", remedy)
    check_store_key(found, settings.store_key_file)
    check_trusted(found, "shufflers", settings.shuffler_keys)
    check_trusted(found, "senders", settings.sender_keys)
    _check_operators(found, settings)
    check_upload_tokens(found, settings.tokens, settings.host, [])
    listeners = Listeners((settings.host, settings.port), (settings.admin_host, settings.admin_port))
    public = check_identity_key(found, settings.identity, None, 0) if settings.identity else None
    check_signer(found, public, listeners.public, answers=listeners.check(found, None))
    return found


def _check_operators(found: Checkup, settings: ServerSettings) -> None:
    if settings.admin_tokens:
        check_admin_tokens(found, settings.admin_tokens)


def _journal(settings: ServerSettings) -> Path:
    return settings.journal or settings.data / JOURNAL_FILE


def _examine_files(found: Checkup, settings: ServerSettings) -> Contents | None:
    folder = settings.data / KEYS_FOLDER
    before = {path.stem for path in folder.glob("*.key")}
    contents = _read(found, settings)
    if contents:
        _check_journal(found, contents)
        _check_keys(found, folder, contents, before)
    return contents


def _read(found: Checkup, settings: ServerSettings) -> Contents | None:
    """Read the files while no round closes, if there is such a moment: it would look as if one were an earlier copy."""
    for _ in range(_TRIES):
        seen = Checkup(found.service)
        contents = _read_once(seen, settings)
        if contents is None or _published(_journal(settings)) == _digests(contents.entries):
            break
    found.all += seen.all
    return contents


def _published(journal: Path) -> dict[str, bytes]:
    """Return the digests of what a journal says was published last; of one that is missing, none."""
    try:
        with closing(copy_of(journal) or sqlite3.connect(":memory:")) as copy:
            return _digests(_entries(Journal(SqliteDatabase(copy))))
    except (OSError, sqlite3.Error, PrivateerError, Unsettled):
        return {}


def _digests(entries: dict[str, JournalEntry]) -> dict[str, bytes]:
    return {name: entry.following.digest for name, entry in entries.items()}


def _entries(journal: Journal) -> dict[str, JournalEntry]:
    return {name: entry for name in journal.experiments() if (entry := journal.last(name))}


def _read_once(found: Checkup, settings: ServerSettings) -> Contents | None:
    journal_copy = _journal_copy(found, _journal(settings))
    database = checked(found, "database", settings.data / FILE, STORE_KIND)
    if not (journal_copy and database):
        return None
    with closing(journal_copy), closing(database):
        try:
            contents = _contents(database, Store(SqliteDatabase(database)), Journal(SqliteDatabase(journal_copy)))
            open_rounds, _ = len(contents.open_rounds), contents.following_keys
        except (PrivateerError, sqlite3.Error, TypeError, ValueError):
            found.fail("database", "an experiment in it cannot be read", _RESTORE)
            return None
    holds = f"experiments: {len(contents.experiments):,}, open rounds: {open_rounds:,}"
    found.ok("database", f"{FILE} and {_journal(settings).name} are whole, schema {STORE_KIND.version}: {holds}")
    return contents


def _journal_copy(found: Checkup, path: Path) -> sqlite3.Connection | None:
    """Return a copy of the journal, or an empty one where there is none: a restored server has none at first."""
    if path.exists():
        return checked(found, "journal", path, JOURNAL_KIND)
    remedy = "set PRIVATEER_JOURNAL to the one it had; without it a start gives the open rounds up"
    found.warn("journal", f"there is no {path.name}", remedy)
    empty = sqlite3.connect(":memory:", isolation_level=None)
    make_tables(empty, JOURNAL_KIND)
    return empty


def _contents(database: sqlite3.Connection, store: Store, journal: Journal) -> Contents:
    recorded, logged, here = max([0.0, *_times(database)]), journal.leaves(0), store.leaves(0)
    common = min(len(logged), len(here))
    return Contents(
        store.experiments(),
        set(store.deleted()),
        _entries(journal),
        set(journal.buried()),
        recorded,
        max(len(logged), len(here)),
        forked=logged[:common] != here[:common],
    )


def _times(database: sqlite3.Connection) -> Iterator[float]:
    yield from (decode(row[0], RoundFacts).opened for row in database.execute("SELECT facts FROM rounds"))
    yield from (row[0] for row in database.execute("SELECT at FROM log"))


def _check_journal(found: Checkup, contents: Contents) -> None:
    """Say what a start would mend, and what it could not."""
    known = {one.name for one in contents.experiments}
    troubles = [
        f"{one.name}: {reason}"
        for one in contents.experiments
        if one.current.batch and (reason := reason_to_give_up(one.current, contents.entries.get(one.name)))
    ]
    if troubles:
        detail = f"a start gives up the open round of {troubles[0]}" + _others(troubles)
        found.warn("journal", detail, _OLD_COPY)
    if lost := sorted(contents.entries.keys() - known - contents.deleted):
        detail = f"{lost[0]} was published, and is not in the database" + _others(lost)
        found.warn("journal", detail, "restore a backup that has it")
    if back := sorted(contents.buried & known):
        detail = f"{back[0]} was deleted, and an earlier copy has brought it back" + _others(back)
        found.warn("journal", detail, "start the server, which deletes it again")
    if contents.forked:
        remedy = "start with the journal of this database, or with the database of this journal: no other way goes on"
        found.fail("journal", "the log in the journal is not the one in the database", remedy)
    if not (troubles or lost or back or contents.forked):
        found.ok("journal", "the journal and the database agree")


def _check_keys(found: Checkup, folder: Path, contents: Contents, before: set[str]) -> None:
    """Check that every open round has its key and its sums, and that no key of a closed round is left.

    What was only there before the contents were read, or is only there now, may be of a round that closed meanwhile.
    """
    openers, broken = _openers(folder)
    wanted = contents.open_keys
    lost = sorted(name for name, key in wanted.items() if key not in openers and key.hex() not in before)
    records = {one.name: one for one in contents.experiments}
    unread = sorted(name for name, key in wanted.items() if key in openers and not _opens(openers[key], records[name]))
    known = set(wanted.values()) | contents.following_keys
    left = [key for key in openers if key not in known and key.hex() in before]
    if broken:
        found.fail("round keys", f"{broken:,} files hold no key, or not that of their name", _KEYS_REMEDY)
    if lost:
        found.fail("round keys", f"the key of the open round of {lost[0]} is lost" + _others(lost), _KEYS_REMEDY)
    if unread:
        detail = f"the sums of the open round of {unread[0]} do not open" + _others(unread)
        found.fail("round keys", detail, _KEYS_REMEDY)
    if left:
        detail = f"keys of {len(left):,} closed rounds are not erased"
        found.warn("round keys", detail, "start the server, which erases them; if it runs, see the disk and its log")
    if not (broken or lost or unread or left):
        found.ok("round keys", f"open rounds: {len(wanted):,}; each has its key, and there is no other")


def _opens(opener: Opener, record: ExperimentRecord) -> bool:
    """Whether all sums of the open round of an experiment open."""
    digest = record.current.digest
    return all(opener.reveal(sums, digest) is not None for sums in (record.current.total, *record.parts))


_KEYS_REMEDY: Final = "put the file back if you moved it; else start the server, which gives the round up"


def _openers(folder: Path) -> tuple[dict[bytes, Opener], int]:
    """Return what the key files open, by public key, and how many files are not what they should be."""
    openers, broken = dict[bytes, Opener](), 0
    for path in sorted(folder.glob("*.key")):
        try:
            raw = path.read_bytes() if path.is_file() or not path.exists() else b""  # a pipe would never end
        except FileNotFoundError:  # the round has closed
            continue
        except OSError:
            raw = b""
        opener = Opener.of(raw) if len(raw) == _KEY_SIZE else None
        if opener and opener.public_key.hex() == path.stem:
            openers[opener.public_key] = opener
        else:
            broken += 1
    return openers, broken


def _check_claims(found: Checkup, contents: Contents, trusted: set[str]) -> None:
    """Check that every shuffler with a claim is trusted, and that there is one where one is needed."""
    asking = [one for one in contents.experiments if one.name in contents.open_rounds]
    if strangers := [one.name for one in asking if one.standing.shuffler not in trusted | {""}]:
        detail = f"{strangers[0]} is claimed by a shuffler that is not trusted" + _others(strangers)
        found.fail("shufflers", detail, "put its public key back, or release the claim (docs/operations.md)")
    shuffled = sorted(name for name, facts in contents.open_rounds.items() if facts.endpoint == "shuffler")
    if shuffled and not trusted:
        detail = f"{shuffled[0]} needs a shuffler, and none is trusted" + _others(shuffled)
        found.fail("shufflers", detail, "put its public key where PRIVATEER_SHUFFLER_KEYS says")


def _check_rounds_of(found: Checkup, listeners: Listeners, folder: Path) -> None:
    """Check that the server that answers is the one with these keys; one of its rounds may just have closed."""
    for _ in range(_TRIES):
        listed = listed_keys(listeners.public)
        if not listed or any((folder / f"{key}.key").exists() for key in listed):
            return
    detail = f"the server at {listeners.public} has other open rounds than this folder"
    found.fail("answers", detail, "name its folder, or the ports of this one")


def _others(names: list[str]) -> str:
    return f", and so for {len(names) - 1:,} more" if len(names) > 1 else ""
