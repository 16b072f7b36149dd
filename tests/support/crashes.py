"""What is on a disk at a moment: for the process that begins after a death, and for a thief."""

import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


def snapshot_at(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, data: Path, copy: Path, *, after: bool
) -> Callable[[], bool]:
    """Have a copy of ``data`` made the next time a method is called, before or after it; tells whether it was."""
    original: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not after and not copy.exists():
            shutil.copytree(data, copy)
        result = original(*arguments, **options)
        if after and not copy.exists():
            shutil.copytree(data, copy)
        return result

    monkeypatch.setattr(owner, method, wrapped)
    return copy.exists


_HEADER, _FRAME = 32, 24


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder and those below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def earlier_states(files: dict[str, bytes], scratch: Path) -> list[bytes]:
    """Sums of reports as the database had them after each transaction that the write-ahead log still holds."""
    database, log = files["server.db"], files.get("server.db-wal", b"")
    ends = [0, *_commits(log)]
    totals: list[bytes] = []
    for number, end in enumerate(ends):
        path = scratch / f"{number}.db"
        path.write_bytes(database)
        path.with_name(f"{number}.db-wal").write_bytes(log[:end])
        with closing(sqlite3.connect(path)) as db:
            if db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'rounds'").fetchone() == (1,):
                totals += [row[0] for row in db.execute("SELECT total FROM rounds ORDER BY version")]
    return totals


def _commits(log: bytes) -> list[int]:
    """Where the transactions of a write-ahead log end."""
    if len(log) < _HEADER:
        return []
    page = struct.unpack(">I", log[8:12])[0]
    starts = range(_HEADER, len(log) - _FRAME - page + 1, _FRAME + page)
    return [start + _FRAME + page for start in starts if struct.unpack(">I", log[start + 4 : start + 8])[0]]
