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
    """The folder with PostgreSQL's programs: the newest of the usual ones, or that of PATH."""
    usual = [path for pattern in BINARIES for path in sorted(Path("/").glob(pattern[1:])) if (path / "initdb").exists()]
    on_path = shutil.which("initdb")
    folders = [*([Path(on_path).resolve().parent] if on_path else []), *usual]
    assert folders, "the tests marked postgres need PostgreSQL's initdb"
    return folders[-1]


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

    def restart(self) -> None:
        """Break every connection, and be away for a moment."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "restart")

    def close(self, url: str) -> None:
        """Allow no connection to a database, and break those that there are; each has ended when this returns."""
        self.execute(f"ALTER DATABASE {_name(url)} ALLOW_CONNECTIONS false")
        self.execute(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{_name(url)}'")

    def open(self, url: str) -> None:
        """Allow them again."""
        self.execute(f"ALTER DATABASE {_name(url)} ALLOW_CONNECTIONS true")

    def drop(self, url: str) -> None:
        """Drop a database under those who use it."""
        self.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def make_again(self, url: str) -> str:
        """The address of a database that was dropped, which is there again, and empty."""
        self.execute(f"CREATE DATABASE {_name(url)}")
        return url

    def dump(self, url: str, path: Path) -> None:
        """Write what pg_dump says of a database."""
        self.run("pg_dump", "--format=custom", f"--file={self._dump_path(path)}", url)

    def load(self, path: Path, url: str) -> None:
        """Put into an empty database what `dump` wrote."""
        self.run("pg_restore", f"--dbname={url}", "--exit-on-error", str(self._dump_path(path)))

    def _dump_path(self, path: Path) -> Path:
        """Where PostgreSQL's user keeps a file of the tests, whose folders it may not enter."""
        return self.folder / f"dump-{abs(hash(path))}"

    def execute(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as db:
            cursor = db.execute(statement)  # type: ignore[call-overload]
            return list(cursor.fetchall()) if cursor.description else []


def _name(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


@contextmanager
def cluster(**settings: str) -> Iterator[Cluster]:
    """Start a cluster with some settings of its own, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="privateer-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    started, data = Cluster(folder), str(folder / "data")
    try:
        started.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join(f"-c {name}='{value}'" for name, value in (_SETTINGS | settings).items())
        started.run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} {options}", "start")
        yield started
    finally:
        started.run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)
