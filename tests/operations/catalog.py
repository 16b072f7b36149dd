"""The catalog of faults, and how a seed draws them: each once before any is repeated, with its circumstances."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.operations.database_faults import (
    DatabaseAway,
    DatabaseAwayFromShuffler,
    DatabasePaused,
    HeldDatabase,
    SlowDatabase,
)
from tests.operations.disk_faults import FailedDisk, FrozenDisk, FullDisk, ReadOnlyFolder, SlowDisk
from tests.operations.faults import Fault, Hanging, Killed, Stopped
from tests.operations.operator_faults import (
    HOUR,
    BackupBetween,
    BackupRefused,
    ClockSet,
    DamagedDatabase,
    OlderBackupRestored,
    ServerKeyReplaced,
    ShufflerKeyReplaced,
    WrongServerUrl,
)
from tests.operations.services import Role

FAULTS: tuple[Callable[[], Fault], ...] = (
    *(partial(Killed, role) for role in Role),
    *(partial(Hanging, role) for role in (Role.SERVER, Role.SHUFFLER)),
    partial(Stopped, Role.SERVER),
    *(partial(FullDisk, role) for role in Role),
    *(partial(FailedDisk, role) for role in (Role.SERVER, Role.SHUFFLER)),
    *(partial(ReadOnlyFolder, role) for role in Role),
    partial(ReadOnlyFolder, Role.SERVER, below="keys"),
    partial(FrozenDisk, Role.SERVER),
    partial(SlowDisk, Role.SERVER),
    HeldDatabase,
    DatabaseAway,
    DatabaseAwayFromShuffler,
    DatabasePaused,
    SlowDatabase,
    ServerKeyReplaced,
    ShufflerKeyReplaced,
    *(partial(ClockSet, role, by=by) for role in (Role.SERVER, Role.SHUFFLER) for by in (HOUR, -HOUR)),
    WrongServerUrl,
    BackupBetween,
    BackupRefused,
    DamagedDatabase,
    OlderBackupRestored,
)


@dataclass(frozen=True)
class Case:
    """A fault in its circumstances.

    Attributes
    ----------
    store
        Where server and shuffler have their data.
    n_held
        How many reports of a batch the shuffler holds when it happens: the batch is full soon after.
    """

    seed: int
    fault: Fault
    store: str
    n_held: int


def case(seed: int) -> Case:
    """Draw the case of a seed."""
    turn, place = divmod(seed, len(FAULTS))
    fault = random.Random(turn).sample(FAULTS, len(FAULTS))[place]()
    rng = random.Random(f"case {seed}")
    return Case(seed, fault, rng.choice(fault.stores), rng.randint(50, 80))
