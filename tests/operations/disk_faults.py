"""What happens to disks and folders."""

from dataclasses import dataclass

from tests.operations.faults import Fault, Slow
from tests.operations.operated_world import OperatedWorld
from tests.operations.services import Role

_NOT_STORING = {
    Role.SERVER: ("PrivateerNotCounting",),
    Role.SHUFFLER: ("PrivateerShufflerNotStoring",),
    Role.ISSUER: ("PrivateerIssuerNotCounting",),
}
"""A service that cannot write must report it itself, whatever else is seen of it."""


@dataclass
class FullDisk(Fault):
    """Somebody else fills the disk. Cure: make room."""

    disk: bool = True

    def __post_init__(self) -> None:
        self.alerts = _NOT_STORING[self.role]

    def inject(self, world: OperatedWorld) -> None:
        world.disks[self.role].fill()

    def cure(self, world: OperatedWorld) -> None:
        world.disks[self.role].clear()


@dataclass
class FailedDisk(Fault):
    """The disk fails, and the kernel makes it read-only. Cure: stop the service, repair the disk, start it."""

    disk: bool = True

    def __post_init__(self) -> None:
        self.alerts = _NOT_STORING[self.role]

    def inject(self, world: OperatedWorld) -> None:
        world.disks[self.role].fail()

    def cure(self, world: OperatedWorld) -> None:
        world.services[self.role].stop()
        world.disks[self.role].repair()
        world.services[self.role].start()


@dataclass
class ReadOnlyFolder(Fault):
    """Somebody takes the right to write away from the folder. Cure: give it back."""

    below: str = ""

    def __post_init__(self) -> None:
        usual = ("PrivateerRoundNotClosed", "PrivateerKeysNotErased", "PrivateerNotCounting")
        self.alerts = usual if self.role is Role.SERVER else _NOT_STORING[self.role]

    @property
    def name(self) -> str:
        return f"{super().name} {self.below}".strip()

    def inject(self, world: OperatedWorld) -> None:
        (world.data(self.role) / self.below).chmod(0o500)

    def cure(self, world: OperatedWorld) -> None:
        (world.data(self.role) / self.below).chmod(0o700)


@dataclass
class FrozenDisk(Fault):
    """The disk answers nobody for 20 seconds. It is over by itself."""

    disk: bool = True
    is_lasting: bool = False
    doctor_says: str = "did not end within"
    alerts: tuple[str, ...] = ("PrivateerStoreStalled",)

    def inject(self, world: OperatedWorld) -> None:
        world.disks[self.role].freeze()

    def cure(self, world: OperatedWorld) -> None:
        world.disks[self.role].thaw()


@dataclass
class SlowDisk(Slow):
    """The disk is slow."""

    disk: bool = True

    def hold(self, world: OperatedWorld) -> None:
        world.disks[self.role].freeze()

    def release(self, world: OperatedWorld) -> None:
        world.disks[self.role].thaw()
