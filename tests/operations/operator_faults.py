"""What operators do, and clocks: keys, addresses, backups."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

from privateer_core.wire.keys import load_or_create_key
from tests.operations.faults import IMMEDIATE, Fault
from tests.operations.operated_world import MIXED, OperatedWorld
from tests.operations.services import Role

HOUR = 3600
_NO_BACKUP = "\nprivateer_last_backup_timestamp_seconds 0.0\n"


@dataclass
class ServerKeyReplaced(Fault):
    """The server has another identity, and nobody told the shuffler. Cure: the old key back, and a restart."""

    alerts: tuple[str, ...] = ("PrivateerShufflerCannotFollow",)
    restarts: Role | None = Role.SERVER

    def inject(self, world: OperatedWorld) -> None:
        key = world.data(self.role) / "identity.key"
        world.server.stop()
        shutil.move(key, world.folder / "identity.old")
        load_or_create_key(key, "--data")
        world.server.start()

    def cure(self, world: OperatedWorld) -> None:
        world.server.stop()
        shutil.move(world.folder / "identity.old", world.data(self.role) / "identity.key")
        world.server.start()


@dataclass
class ShufflerKeyReplaced(Fault):
    """The shuffler signs with another key than the server trusts. Cure: trust it, and release the old claim."""

    role: Role = Role.SHUFFLER
    alerts: tuple[str, ...] = ("PrivateerShufflerCannotDeliver", "PrivateerShufflerCannotFollow")
    seconds: float = 80.0  # it tries every 30 seconds
    restarts: Role | None = Role.SHUFFLER

    def inject(self, world: OperatedWorld) -> None:
        world.shuffler.stop()
        (world.data(self.role) / "shuffler.key").unlink()
        world.shuffler.settings["PRIVATEER_PUBLIC_KEY_FILE"] = str(world.folder / "shuffler.pub")
        world.shuffler.start()

    def cure(self, world: OperatedWorld) -> None:
        shutil.copy(world.folder / "shuffler.pub", world.folder / "trusted" / "shuffler.pub")
        world.ask("DELETE", f"/experiments/{MIXED}/shuffler").raise_for_status()


@dataclass
class ClockSet(Fault):
    """The clock of a service's machine jumps. Cure: set it right."""

    clock: bool = True
    by: int = HOUR
    alerts: tuple[str, ...] = ("PrivateerClockWrong",)

    @property
    def name(self) -> str:
        return f"{super().name} {self.by:+d} s"

    def inject(self, world: OperatedWorld) -> None:
        world.services[self.role].set_clock(self.by)

    def cure(self, world: OperatedWorld) -> None:
        world.services[self.role].set_clock(0)


@dataclass
class WrongServerUrl(Fault):
    """The shuffler is given another port, where nobody is. Cure: correct PRIVATEER_SERVER_URL."""

    role: Role = Role.SHUFFLER
    alerts: tuple[str, ...] = ("PrivateerShufflerCannotFollow", "PrivateerShufflerCannotDeliver")
    restarts: Role | None = Role.SHUFFLER
    _url: str = ""

    def inject(self, world: OperatedWorld) -> None:
        settings = world.shuffler.settings
        self._url, settings["PRIVATEER_SERVER_URL"] = settings["PRIVATEER_SERVER_URL"], "http://127.0.0.1:9"
        world.shuffler.stop()
        world.shuffler.start()

    def cure(self, world: OperatedWorld) -> None:
        world.shuffler.settings["PRIVATEER_SERVER_URL"] = self._url
        world.shuffler.stop()
        world.shuffler.start()


def back_up(world: OperatedWorld) -> None:
    """Make a backup, as an operator does."""
    shutil.rmtree(world.folder / "backup", ignore_errors=True)
    _run_command(world, "backup", str(world.folder / "backup"), "--admin-url", world.server.private)


def _run_command(world: OperatedWorld, *arguments: str) -> None:
    command = [sys.executable, "-m", "privateer_lab", *arguments]
    subprocess.run(command, check=True, env=os.environ | world.server.settings, stdout=subprocess.DEVNULL)


@dataclass
class BackupBetween(Fault):
    """A backup is fetched under load."""

    is_lasting: bool = False
    says: bool = False
    why_silent: str = "nothing is wrong"

    def inject(self, world: OperatedWorld) -> None:
        back_up(world)

    def cure(self, world: OperatedWorld) -> None:
        pass


@dataclass
class BackupRefused(Fault):
    """Since nine days every backup is asked for with a token that has not the scope. Cure: the right token."""

    alerts: tuple[str, ...] = ("PrivateerBackupFails",)
    clock: bool = True
    began_earlier: bool = True
    says: bool = False

    def prepare(self, world: OperatedWorld) -> None:
        world.server.set_clock(-9 * 24 * HOUR)
        assert world.ask("GET", "/backup").is_success  # sooner than by the command, so that no batch is refused
        while _NO_BACKUP in (world.server.metrics() or _NO_BACKUP):  # it is on record after all of it was sent
            time.sleep(0.1)
        world.server.set_clock(0)

    def inject(self, world: OperatedWorld) -> None:
        for _ in range(3):
            assert world.ask("GET", "/backup", token="a-token-that-is-wrong").status_code == 401

    def cure(self, world: OperatedWorld) -> None:
        back_up(world)


@dataclass
class DamagedDatabase(Fault):
    """The database is garbage. Cure: restore the backup with the old journal and key."""

    alerts: tuple[str, ...] = ("PrivateerDown",)
    restarts: Role | None = Role.SERVER
    gives_up: bool = True

    def prepare(self, world: OperatedWorld) -> None:
        back_up(world)

    def inject(self, world: OperatedWorld) -> None:
        world.server.stop(IMMEDIATE)
        (world.data(self.role) / "server.db-wal").unlink(missing_ok=True)
        (world.data(self.role) / "server.db").write_bytes(b"no database" * 1000)
        world.server.start()

    def cure(self, world: OperatedWorld) -> None:
        restore(world)


@dataclass
class OlderBackupRestored(DamagedDatabase):
    """Somebody restores an older backup: rounds that were open are given up."""

    alerts: tuple[str, ...] = ()
    says: bool = False
    why_silent: str = "the operator did it; the log says which rounds were given up"

    def inject(self, world: OperatedWorld) -> None:
        restore(world)

    def cure(self, world: OperatedWorld) -> None:
        pass


def restore(world: OperatedWorld) -> None:
    """Restore as docs/operations/backup.md says it for one machine."""
    data = world.data(Role.SERVER)
    old = data.with_name("server.old")
    world.server.stop()
    shutil.move(data, old)
    _run_command(world, "restore", str(world.folder / "backup"), str(data))
    settings = {"PRIVATEER_JOURNAL": str(old / "journal.db"), "PRIVATEER_PUBLICATION_KEY": str(old / "identity.key")}
    world.server.settings.update(settings)
    for key in (old / "keys").glob("*.key"):
        key.unlink()
    world.server.start()
