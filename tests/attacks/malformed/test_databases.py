"""The doctor reports hostile files as damaged, and goes on with the others."""

import os
import resource
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.store.copies import is_open_elsewhere, open_view
from privateer_core.serving.store.sqlite import FileKind
from privateer_server.store.round_keys import read_keys

PATIENCE = 5.0
MEMORY = 4 << 30
SALTS = (1, 2)
KIND = FileKind(application=0, version=0, schema="", field="SETTING")
LARGE = 1 << 24
"""Pages: 8 GiB of them."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Whatever asks for the memory that a hostile log names fails, and does not take it from the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of one table, of pages of 4,096 bytes."""
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE rows (id INTEGER)")
    return path


def checksum(order: str, body: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of a log (https://sqlite.org/fileformat2.html#checksum_algorithm)."""
    first, second = sums
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def log_of(size: int, pages: int, page: bytes) -> bytes:
    """A log of one transaction on pages of a size, with the checksums that belong to it."""
    head = struct.pack(">6I", 0x377F0683, 3_007_000, size, 0, *SALTS)
    sums = checksum(">", head, (0, 0))
    frame, log = struct.pack(">2I", 1, pages), head + struct.pack(">2I", *sums)
    if (len(frame) + len(page)) % 8 == 0:
        sums = checksum(">", frame + page, sums)
    return log + frame + struct.pack(">4I", *SALTS, *sums) + page


@pytest.mark.parametrize("size", [0, 3, 4, 256])
def test_a_log_of_impossible_page_sizes_is_left_alone(database: Path, size: int) -> None:
    database.with_name("rows.db-wal").write_bytes(log_of(size, 1, bytes(size)))
    view = open_view(database, KIND)
    assert view is not None
    with closing(view), view.driver() as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("rows",)]


def test_a_log_that_names_more_than_all_memory_is_refused(database: Path) -> None:
    database.with_name("rows.db-wal").write_bytes(log_of(512, LARGE, bytes(512)))
    with pytest.raises(SpecError, match="damaged"):
        open_view(database, KIND)


def read_neighbouring_keys(path: Path) -> None:
    """Read the key files beside a path."""
    _, broken = read_keys(path.parent)
    assert broken == 1


def read_database(path: Path) -> None:
    """Read a database, which may have a log."""
    is_open_elsewhere(path)
    with pytest.raises(SpecError, match="damaged"):
        open_view(path, KIND)


PIPES: dict[str, Callable[[Path], None]] = {
    "rows.db": read_database,
    "rows.db-wal": lambda log: read_database(log.with_name("rows.db")),
    f"{'0' * 64}.key": read_keys,
}


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_the_place_of_a_file_does_not_hold_the_doctor(database: Path, name: str) -> None:
    path = database.with_name(name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    ended: list[bool] = []
    looking = Thread(target=lambda: (PIPES[name](path), ended.append(True)), daemon=True)
    looking.start()
    looking.join(PATIENCE)
    assert ended
