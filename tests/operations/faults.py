"""Faults of services, and their cures according to the runbook."""

import signal
import threading
from dataclasses import dataclass, field

from tests.operations.operated_world import OperatedWorld
from tests.operations.services import Role

IMMEDIATE = signal.SIGKILL
_HOLD, _BREATH = 2.5, 0.3
"""Seconds for which something slow answers nobody, and for which it answers."""


@dataclass
class Fault:
    """Something that goes wrong, and its cure.

    Attributes
    ----------
    role
        At which service.
    alerts
        Of these at least one must fire; none: nothing may fire, for the reason that ``why_silent`` gives.
    is_lasting
        Whether it stays until the cure; else it is over by itself.
    began_earlier
        Whether it is there before anything is watched, so that its alerts are, too.
    seconds
        For how long it is watched.
    gives_up
        Whether the documentation says that rounds are given up.
    restarts
        What is started again when it happens; it is watched once that answers, or has ended.
    says
        Whether readiness or the doctor must say something.
    doctor_says
        What the doctor must say in any case, while it is there.
    """

    role: Role = Role.SERVER
    alerts: tuple[str, ...] = ()
    is_lasting: bool = True
    began_earlier: bool = False
    seconds: float = 20.0
    gives_up: bool = False
    says: bool = True
    doctor_says: str = ""
    why_silent: str = ""
    restarts: Role | None = None
    disk: bool = False
    clock: bool = False
    stores: tuple[str, ...] = ("sqlite",)

    def prepare(self, world: OperatedWorld) -> None:
        """Do what was done before."""

    def inject(self, world: OperatedWorld) -> None:
        """Let it happen."""
        raise NotImplementedError

    def cure(self, world: OperatedWorld) -> None:
        """Do what the runbook says."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return f"{type(self).__name__} {self.role}"


@dataclass
class Killed(Fault):
    """A process is killed, and nobody starts it again. Cure: start it on the same data."""

    alerts: tuple[str, ...] = ("PrivateerDown",)
    stores: tuple[str, ...] = ("sqlite", "postgres")

    def inject(self, world: OperatedWorld) -> None:
        world.services[self.role].stop(IMMEDIATE)

    def cure(self, world: OperatedWorld) -> None:
        world.services[self.role].start()


@dataclass
class Stopped(Killed):
    """A process is stopped in order, and nobody starts it again."""

    def inject(self, world: OperatedWorld) -> None:
        world.services[self.role].stop()


@dataclass
class Hanging(Fault):
    """A process answers nobody. Cure: kill it, and start it on the same data."""

    alerts: tuple[str, ...] = ("PrivateerDown",)
    stores: tuple[str, ...] = ("sqlite", "postgres")

    def inject(self, world: OperatedWorld) -> None:
        world.services[self.role].send(signal.SIGSTOP)

    def cure(self, world: OperatedWorld) -> None:
        world.services[self.role].stop(IMMEDIATE)
        world.services[self.role].start()


@dataclass
class Slow(Fault):
    """Something answers for a moment, and then not for seconds, again and again. Cure: end what slows it down."""

    alerts: tuple[str, ...] = ("PrivateerCommitsSlow", "PrivateerAnswersSlow")
    seconds: float = 24.0
    says: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def hold(self, world: OperatedWorld) -> None:
        raise NotImplementedError

    def release(self, world: OperatedWorld) -> None:
        raise NotImplementedError

    def inject(self, world: OperatedWorld) -> None:
        def run() -> None:
            while not self._over.is_set():
                self.hold(world)
                self._over.wait(_HOLD)
                self.release(world)
                self._over.wait(_BREATH)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def cure(self, world: OperatedWorld) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
