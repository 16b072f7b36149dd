"""The way of a report through a device: which functions of ours run, in which files, and the ledger's transactions."""

import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / folder) for folder in ("client/privateer_client", "shared/privateer_core"))


class ReportPath(NamedTuple):
    """What a call has run."""

    functions: set[tuple[str, str]]
    transactions: int

    @property
    def files(self) -> set[str]:
        """Files of the device and of the core."""
        return {file for file, _ in self.functions}

    def __str__(self) -> str:
        rows = (
            f"{file}: {', '.join(sorted(name for at, name in self.functions if at == file))}" for file in self.files
        )
        count = f"{len(self.functions)} functions in {len(self.files)} files, {self.transactions} transactions"
        return "\n".join([count, *sorted(rows)])


class _Counted(sqlite3.Connection):
    n_transactions = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_trace_callback(self._count_transaction)

    @staticmethod
    def _count_transaction(statement: str) -> None:
        _Counted.n_transactions += statement.startswith("BEGIN")


def trace_call(patch: pytest.MonkeyPatch, call: Callable[[], object]) -> ReportPath:
    """Run a call of a device's, and return its path."""
    calls: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(OURS)
            and not code.co_qualname.rpartition(".")[2].startswith("<")
        ):
            calls.add((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    connect = sqlite3.connect
    patch.setattr(sqlite3, "connect", lambda *arguments, **options: connect(*arguments, factory=_Counted, **options))
    _Counted.n_transactions = 0
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return ReportPath(calls, _Counted.n_transactions)
