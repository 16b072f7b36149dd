"""Lists of operations: drawn from a seed, and made shorter as long as they fail."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tests.faults.operations import (
    Arrive,
    Away,
    BackUp,
    Crash,
    Full,
    Junk,
    Kill,
    Lose,
    Operation,
    Pass,
    PutBack,
    Race,
    Resend,
    Restart,
    Spend,
    Step,
    Stuck,
    Upload,
)
from tests.faults.points import POINTS
from tests.faults.world import MIXED, PLAIN

_PAIRS = 5, 12
_RESTORES = 0.3
"""Share of lists in which an operator puts a backup back."""
_OFTEN = 3
"""The first points of a role are the commits of what is acknowledged: half of all deaths are at these."""
Draw = Callable[[Random], Operation]


def _crash(rng: Random, role: str) -> Operation:
    points = len(POINTS[role])
    point = rng.randrange(_OFTEN if rng.random() < 0.5 else points)
    return Crash(role, point, rng.random() < 0.5, rng.choice([0, 0, 0, 1, 2, 5]), rng.randrange(3))


_UPLOADS: list[tuple[int, Draw]] = [
    (4, lambda rng: Upload(PLAIN, rng.randint(5, 10))),
    (2, lambda rng: Upload(PLAIN, rng.randint(1, 8), tokens=True)),
    (4, lambda rng: Upload(MIXED, rng.randint(4, 10))),
    (1, lambda rng: Upload(MIXED, rng.randint(1, 8), tokens=True)),
    (2, lambda rng: Upload(rng.choice([PLAIN, MIXED]), rng.randint(1, 6), rng.random() < 0.3, late=True)),
    (5, lambda rng: Race(rng.randint(2, 8), rng.random() < 0.5)),
]
_FAULTS: list[tuple[int, Draw]] = [
    (8, lambda rng: _crash(rng, "server")),
    (6, lambda rng: _crash(rng, "shuffler")),
    (3, lambda rng: Lose(rng.choice(["server", "shuffler", "batch"]), rng.randint(1, 3))),
    (3, lambda rng: Kill(rng.randrange(6), rng.randrange(3))),
    (2, lambda rng: Restart(rng.randrange(6))),
    (2, lambda rng: Full(rng.choice(["server", "shuffler"]), rng.randint(1, 8))),
    (2, lambda rng: Stuck(rng.randint(1, 6))),
    (2, lambda rng: Away(rng.random() < 0.5)),
    (2, lambda rng: Step(rng.choice([-86_400.0, -400.0, 400.0, 86_400.0]))),
    (2, lambda rng: Pass(rng.choice([1.0, 6.0, 100.0, 4000.0]))),
    (1, lambda rng: Junk(rng.randint(1, 3))),
    (3, lambda rng: Arrive(rng.randrange(100))),
    (4, lambda rng: Resend(rng.randrange(100), rng.randint(1, 3))),
    (2, lambda rng: Spend(rng.randrange(100))),
]


def draw_operations(seed: int) -> list[Operation]:
    """Draw the list of a seed: participants report after each fault."""
    rng = Random(seed)
    pairs = [(_choice(rng, _FAULTS), _choice(rng, _UPLOADS)) for _ in range(rng.randint(*_PAIRS))]
    operations = [operation for pair in pairs for operation in pair]
    if rng.random() < _RESTORES:
        middle = len(operations) // 2
        operations.insert(rng.randrange(middle, len(operations)) + 1, PutBack(rng.choice([0, 1, 1, 2])))
        operations.insert(rng.randrange(middle), BackUp())
    return operations


def _choice(rng: Random, draws: Sequence[tuple[int, Draw]]) -> Operation:
    (draw,) = rng.choices([draw for _, draw in draws], [weight for weight, _ in draws])
    return draw(rng)


_Item = TypeVar("_Item")


def shorten_list(items: list[_Item], fails: Callable[[list[_Item]], bool], runs: int) -> list[_Item]:
    """Shorten a failing list: leave parts of it out, halves first, while it still fails, in at most ``runs`` runs."""
    part = len(items) // 2
    while part and runs > 0:
        start = 0
        while start < len(items) and runs > 0:
            remaining = items[:start] + items[start + part :]
            runs -= 1
            if remaining and fails(remaining):
                items = remaining
            else:
                start += part
        part //= 2
    return items
