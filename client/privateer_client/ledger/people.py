"""The people in one ledger's file, each known by a keyed hash of what the application calls them."""

import secrets
import sys
from typing import Final

from privateer_client.ledger.encryption import Encryption, other_key
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_core.spec.experiment import WINDOW_MAX

_DAY: Final = 86_400
_RANDOM: Final = secrets.SystemRandom()


class KeyedPeople:
    """Many people in one file, which is kept open from the first one on."""

    def __init__(self, file: LedgerFile, encryption: Encryption) -> None:
        self._file, self._encryption = file, encryption

    def pseudonym(self, key: str) -> bytes:
        """Return what a person is called in the file."""
        if not self._file.is_shared:
            self._check_key()
            self._file.share()
        return self._encryption.pseudonym(key)

    def _check_key(self) -> None:
        """Make sure that people are known by the same key as before: by another, all would report again."""
        with self._file.transaction() as database:
            row = database.execute("SELECT mark FROM people").fetchone()
            if row is None:
                self._encryption.hold()
                database.execute("INSERT INTO people VALUES (?)", (self._encryption.mark,))
            elif row[0] != self._encryption.mark:
                raise other_key()
            self._encryption.hold()

    def due(self, now: float) -> list[bytes]:
        """Return those whose reports wait, or may be made by now, in an order that says nothing."""
        due = "SELECT person FROM outbox UNION SELECT person FROM choices WHERE due <= ? OR due BETWEEN ? AND ?"
        with self._file.reading() as database:
            # A clock that was ahead when somebody chose made it due later than any window lasts.
            rows = database.execute(due, (now, now + WINDOW_MAX + _DAY, sys.float_info.max)).fetchall()
        return [person for (person,) in _RANDOM.sample(rows, len(rows))]

    def erase(self, person: bytes) -> None:
        """Overwrite what tells of a person."""
        with self._file.transaction() as database:
            for table in ("choices", "arms", "outbox", "tokens"):
                database.execute(f"DELETE FROM {table} WHERE person = ?", (person,))
        self._file.empty_log()
