"""The last publication of every experiment that reports were taken for, which a restart must not forget."""

from pathlib import Path
from typing import Final

from privateer_core.serving.database import Kind, open_database
from privateer_shuffler.holdings import Taken
from privateer_shuffler.store import REPAIR

DATABASE: Final = Kind(
    application=0x50525654,
    version=1,
    schema="""
    CREATE TABLE taken (
        experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL, over INTEGER NOT NULL
    )
    """,
    field="PRIVATEER_DATA",
    repair=REPAIR,
)
FILE: Final = "taken.sqlite"
_NOTE: Final = """
INSERT INTO taken VALUES (?, ?, ?, 0)
ON CONFLICT DO UPDATE SET version = excluded.version, digest = excluded.digest, over = 0
WHERE excluded.version > version
"""


class History:
    """Public facts alone, durable before the first report of a round is taken.

    Without it a server could show an older version again after the shuffler restarts, whose people have all reported,
    and fill its batch with one late device and reports of its own.

    Raises
    ------
    SpecError
        If the file cannot be used, or another shuffler has it open.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = open_database(folder / FILE, DATABASE)

    def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that reports were taken for."""
        row = self._connection.execute("SELECT version, digest, over FROM taken WHERE experiment = ?", (experiment,))
        found = row.fetchone()
        return None if found is None else Taken(found[0], found[1], bool(found[2]))

    def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        self._connection.execute(_NOTE, (experiment, taken.version, taken.digest))

    def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""
        self._connection.execute(
            "UPDATE taken SET over = 1 WHERE experiment = ? AND version = ?", (experiment, version)
        )

    def close(self) -> None:
        """Close the file, so that another process may use the folder."""
        self._connection.close()
