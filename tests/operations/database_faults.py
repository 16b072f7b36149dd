"""What happens to databases."""

import subprocess
import sys
from dataclasses import dataclass

from tests.operations.databases import pause, resume, start, stop
from tests.operations.faults import Fault, Slow
from tests.operations.operated_world import OperatedWorld
from tests.operations.services import Role


@dataclass
class HeldDatabase(Fault):
    """After a restart another process has the database open. Cure: end it, and start the service."""

    alerts: tuple[str, ...] = ("PrivateerDown",)
    restarts: Role | None = Role.SERVER
    _holder: subprocess.Popen[bytes] | None = None

    def inject(self, world: OperatedWorld) -> None:
        world.services[self.role].stop()
        path = world.data(self.role) / "server.db"
        code = f"import sqlite3, time; db = sqlite3.connect({str(path)!r}); db.execute('BEGIN EXCLUSIVE')"
        holder_code = f"{code}; print('held', flush=True); time.sleep(600)"
        self._holder = subprocess.Popen([sys.executable, "-c", holder_code], stdout=subprocess.PIPE)
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"held\n"
        world.services[self.role].start()

    def cure(self, world: OperatedWorld) -> None:
        assert self._holder
        self._holder.kill()
        self._holder.communicate()
        world.services[self.role].start()


@dataclass
class DatabaseAway(Fault):
    """PostgreSQL is stopped. Cure: start it."""

    alerts: tuple[str, ...] = ("PrivateerNotCounting",)
    stores: tuple[str, ...] = ("postgres",)

    def inject(self, world: OperatedWorld) -> None:
        stop(world.database)

    def cure(self, world: OperatedWorld) -> None:
        start(world.database)


@dataclass
class DatabaseAwayFromShuffler(DatabaseAway):
    """The same, as the shuffler must say it."""

    role: Role = Role.SHUFFLER
    alerts: tuple[str, ...] = ("PrivateerShufflerNotStoring",)


@dataclass
class DatabasePaused(Fault):
    """PostgreSQL answers nobody for 20 seconds."""

    is_lasting: bool = False
    alerts: tuple[str, ...] = ("PrivateerStoreStalled",)
    stores: tuple[str, ...] = ("postgres",)

    def inject(self, world: OperatedWorld) -> None:
        pause(world.database)

    def cure(self, world: OperatedWorld) -> None:
        resume(world.database)


@dataclass
class SlowDatabase(Slow):
    """PostgreSQL is slow."""

    stores: tuple[str, ...] = ("postgres",)

    def hold(self, world: OperatedWorld) -> None:
        pause(world.database)

    def release(self, world: OperatedWorld) -> None:
        resume(world.database)
