"""A PostgreSQL of the tests' own: a cluster in a temporary folder, which listens on a Unix socket alone."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

BINARIES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # what is killed here are servers of Privateer
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}


def binaries() -> Path:
    """The folder with ``initdb`` and ``pg_ctl``: that of PATH, or the newest of the usual ones."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    usual = [path for pattern in BINARIES for path in sorted(Path("/").glob(pattern[1:])) if (path / "initdb").exists()]
    assert usual, "the tests marked postgres need PostgreSQL's initdb"
    return usual[-1]


class Cluster:
    """A running cluster.

    Attributes
    ----------
    folder
        Where its socket is, and what the tests keep beside its data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._numbers = folder, count(1)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as a user that it accepts: it refuses root."""
        command = [str(binaries() / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def make(self) -> str:
        """The address of a new database."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as db:
            found = db.execute(statement)  # type: ignore[call-overload]
            return list(found.fetchall()) if found.description else []


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="privateer-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    started, data = Cluster(folder), str(folder / "data")
    try:
        started.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join(f"-c {name}='{value}'" for name, value in _SETTINGS.items())
        started.run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} {options}", "start")
        yield started
    finally:
        started.run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)
