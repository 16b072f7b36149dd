"""The participants in a ledger's file, each identified by a keyed hash of the application's key."""

import secrets
import sys
from typing import Final

from privateer_client.ledger.encryption import Encryption, other_key_error
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_core.spec.experiment import WINDOW_MAX

_DAY_SECONDS: Final = 86_400
_RANDOM: Final = secrets.SystemRandom()
_DUE_CONDITION: Final = "due <= ? OR due BETWEEN ? AND ?"


class KeyedPeople:
    """Many participants in a file, which stays open from the first participant on."""

    def __init__(self, file: LedgerFile, encryption: Encryption) -> None:
        self._file, self._encryption = file, encryption

    def pseudonym(self, key: str) -> bytes:
        """Return a participant's pseudonym in the file."""
        if not self._file.is_shared:
            self._check_key()
            self._file.share()
        return self._encryption.pseudonym(key)

    def _check_key(self) -> None:
        """Check that pseudonyms are made with the same key as before, since otherwise all would report again."""
        with self._file.transaction() as database:
            row = database.execute("SELECT mark FROM people").fetchone()
            if row is None:
                self._encryption.keep_in_memory()
                database.execute("INSERT INTO people VALUES (?)", (self._encryption.mark,))
            elif row[0] != self._encryption.mark:
                raise other_key_error()
            self._encryption.keep_in_memory()

    def list_due(self, now: float) -> list[bytes]:
        """Return the participants with pending or due reports, in random order."""
        with self._file.reading() as database:
            query = f"SELECT person FROM outbox UNION SELECT person FROM choices WHERE {_DUE_CONDITION}"
            rows = database.execute(query, _due_parameters(now)).fetchall()
        return [person for (person,) in _RANDOM.sample(rows, len(rows))]

    def is_due(self, person: bytes, now: float) -> bool:
        """Whether a participant has a pending or due report."""
        with self._file.reading() as database:
            has_sealed = "EXISTS (SELECT 1 FROM outbox WHERE person = ?)"
            has_choice = f"EXISTS (SELECT 1 FROM choices WHERE person = ? AND ({_DUE_CONDITION}))"
            parameters = (person, person, *_due_parameters(now))
            return bool(database.execute(f"SELECT {has_sealed} OR {has_choice}", parameters).fetchone()[0])

    def erase(self, person: bytes) -> None:
        """Overwrite a participant's choices, arms, tokens and pending reports."""
        with self._file.transaction() as database:
            for table in ("choices", "arms", "outbox", "tokens"):
                database.execute(f"DELETE FROM {table} WHERE person = ?", (person,))
        self._file.empty_log()


def _due_parameters(now: float) -> tuple[float, float, float]:
    """Return the times of `_DUE_CONDITION`: a clock that was ahead made a choice due later than any window lasts."""
    return now, now + WINDOW_MAX + _DAY_SECONDS, sys.float_info.max
