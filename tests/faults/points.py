"""Moments at which a process dies or its disk fails: before and after every call that changes what is stored."""

import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from privateer_core.serving.store.database import Unreachable
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.closing import ClosedRound, RoundCloser
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.journal import Journal
from privateer_server.store.rounds import LockedExperiments
from privateer_server.store.store import Store
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import FiledTokens
from privateer_shuffler.pool.store import PoolStore

EMBEDDED = (
    (Store, "commit"),
    (Journal, "record_publication"),
    (Journal, "extend_log"),
    (RoundKeys, "create_key"),
    (RoundKeys, "destroy"),
    (Store, "claim"),
    (Store, "erase_old_states"),
    (Journal, "record_end_of_batches"),
)
SHARED = (
    (LockedExperiments, "commit"),
    (Store, "commit"),
    (Journal, "record_publication"),
    (Journal, "extend_log"),
    (RoundKeys, "create_key"),
    (RoundKeys, "destroy"),
    (Store, "claim"),
    (Journal, "record_end_of_batches"),
)
MIXING = (
    (RoundStore, "commit"),
    (RoundStore, "write"),
    (RoundStore, "truncate_log"),
    (RoundStore, "start_next_batch"),
    (RoundStore, "erase"),
    (PoolStore, "store_publication"),
    (PoolStore, "end_version"),
    (FiledTokens, "store"),
)
_QUIET = (
    (Store, "write_probe"),
    (Store, "delete_some_expired_tokens"),
    (Store, "add_missing_leaves"),
    (RoundKeys, "retry_erasures"),
)
"""Nothing dies there, but no copy is made meanwhile either."""
_DISKS = {RoundKeys: OSError(errno.ENOSPC, "No space left on device")}
POINTS = {"server": EMBEDDED, "shuffler": MIXING}
"""Points by role; servers on PostgreSQL have as many, one for each of the embedded store's."""


class Mortal(Protocol):
    """A process that a point may kill.

    Attributes
    ----------
    role
        ``server`` or ``shuffler``.
    is_shared
        Whether it is a server that shares its data.
    is_alive
        False from its death on.
    disk
        Held while something is written, so that a copy of the files is one that a death leaves.
    """

    role: str
    is_shared: bool
    is_alive: bool
    disk: Any

    def die(self) -> None: ...


@dataclass
class Death:
    """A process of this role dies when its point is reached once more after ``skip`` times."""

    role: str
    point: int
    after: bool
    skip: int


class Faults:
    """What is to go wrong from now on.

    Attributes
    ----------
    deaths
        Deaths that have not happened yet.
    full
        How many further writes of a role find the disk full.
    stuck
        How many further closings of rounds fail.
    happened
        How often which point killed a process.
    note
        Takes every point that is passed.
    """

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self.full: dict[str, int] = {}
        self.stuck = 0
        self.happened: list[str] = []
        self.note: Callable[[str], None] = lambda _: None
        self.starting: Mortal | None = None
        self._owners: dict[int, tuple[Any, Mortal]] = {}
        self._folders: dict[Path, Mortal] = {}
        self._thread_state, self._lock = threading.local(), threading.Lock()

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        self.deaths, self.full, self.stuck = [], {}, 0

    def assign_folder(self, folder: Path, process: Mortal) -> None:
        """Note whose rounds are in a folder."""
        self._folders[folder] = process

    def _process(self, owner: Any) -> Mortal | None:
        if isinstance(owner, RoundStore):
            return self._folders.get(owner._path.parent)
        entry = self._owners.get(id(owner))
        return entry[1] if entry else getattr(self._thread_state, "process", None)

    def _is_full(self, role: str) -> bool:
        with self._lock:
            n_full_writes = self.full.get(role, 0)
            self.full[role] = max(0, n_full_writes - 1)
        return n_full_writes > 0

    def _due(self, role: str, point: int) -> Death | None:
        with self._lock:
            for death in self.deaths:
                if (death.role, death.point) == (role, point):
                    if death.skip == 0:
                        self.deaths.remove(death)
                        return death
                    death.skip -= 1
        return None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Watch all points."""
        with pytest.MonkeyPatch.context() as patched:
            for kind in (Store, Journal, RoundKeys, PostgresDatabase, PoolStore, FiledTokens):
                self._note(patched, kind)
            for owner, method in dict.fromkeys((*EMBEDDED, *SHARED, *MIXING, *_QUIET)):
                self._guard(patched, owner, method)
            self._watch(patched)
            self._stick(patched)
            yield

    def _note(self, patched: pytest.MonkeyPatch, kind: type) -> None:
        """Know whose a store is: the process that is just starting makes it."""
        init: Callable[..., None] = kind.__init__

        def init_and_note(store: Any, *arguments: Any, **options: Any) -> None:
            if self.starting:
                self._owners[id(store)] = store, self.starting
            init(store, *arguments, **options)

        patched.setattr(kind, "__init__", init_and_note)

    def _guard(self, patched: pytest.MonkeyPatch, owner: Any, method: str) -> None:
        honest: Callable[..., Any] = getattr(owner, method)
        points = {is_shared: _number(owner, method, is_shared) for is_shared in (False, True)}

        def guarded(*arguments: Any, **options: Any) -> Any:
            process = self._process(arguments[0])
            point = points[process.is_shared] if process else None
            if process is None or point is None or not process.is_alive:
                return honest(*arguments, **options)
            with process.disk:
                if point >= 0 and self._is_full(process.role):
                    raise _refusal(owner, process.is_shared)
                return self._pass_point(process, owner, method, point, lambda: honest(*arguments, **options))

        patched.setattr(owner, method, guarded)

    def _pass_point(self, process: Mortal, owner: Any, method: str, point: int, call: Callable[[], Any]) -> Any:
        death = self._due(process.role, point)
        self.note(f"{process.role} {owner.__name__}.{method}")
        if death is None:
            return call()
        self.happened.append(f"{'after' if death.after else 'before'} {owner.__name__}.{method}")
        self.note(f"{process.role} dies {self.happened[-1]}")
        result = call() if death.after else None
        process.die()
        return result if death.after else call()

    def _stick(self, patched: pytest.MonkeyPatch) -> None:
        """A round that is over is not learned from: its server answers, and tries again later."""
        honest = RoundCloser.close_round

        def close_round(closer: RoundCloser, current: OpenRound) -> ClosedRound | None:
            with self._lock:
                stuck, self.stuck = self.stuck, max(0, self.stuck - 1)
            if stuck:
                raise OSError(errno.ENOSPC, "No space left on device")
            return honest(closer, current)

        patched.setattr(RoundCloser, "close_round", close_round)

    def _watch(self, patched: pytest.MonkeyPatch) -> None:
        """A dead server reaches no database."""
        honest = PostgresDatabase._open_connection

        @contextmanager
        def connected(database: PostgresDatabase, *options: Any) -> Iterator[Any]:
            process = self._process(database)
            if process and not process.is_alive:
                raise Unreachable("the process is dead")
            previous, self._thread_state.process = getattr(self._thread_state, "process", None), process
            try:
                with honest(database, *options) as db:
                    yield db
            finally:
                self._thread_state.process = previous

        patched.setattr(PostgresDatabase, "_open_connection", connected)


def _number(owner: Any, method: str, is_shared: bool) -> int | None:
    """The number of a point, or -1 where nothing dies; None: it is none."""
    for points in (SHARED if is_shared else EMBEDDED, MIXING):
        if (owner, method) in points:
            return points.index((owner, method))
    return -1 if (owner, method) in _QUIET and not is_shared else None


def _refusal(owner: Any, is_shared: bool) -> Exception:
    if is_shared:
        return Unreachable("could not extend file: No space left on device")
    return _DISKS.get(owner) or sqlite3.OperationalError("database or disk is full")
