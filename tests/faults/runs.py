"""Runs of the lists of many seeds, and the message about the first list that fails."""

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.faults.lists import draw_operations, shorten_list
from tests.faults.operations import Operation, run
from tests.faults.schedule import Schedule
from tests.faults.world import World

_SHORTENING = 40
"""Runs that may be spent on a shorter list."""
_MEMORY = Path("/dev/shm")
Kind = Callable[..., World]
_Result = TypeVar("_Result")


def run_simulation(
    operations: Sequence[Operation], kind: Kind = World, seed: int = 0, trace: list[str] | None = None
) -> dict[str, Any]:
    """Run a list; its figures. Files are in memory where there is a folder for that: nothing here cuts the power.

    Parameters
    ----------
    seed
        Decides when what threads do begins and ends.
    trace
        Gets all that happens, and when.
    """
    folder = Path(tempfile.mkdtemp(prefix="privateer-faults-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        return run_on_simulated_time(run(operations, folder, kind, trace), seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_on_simulated_time(work: Coroutine[Any, Any, _Result], seed: int = 0) -> _Result:
    """Do work on simulated time, and return its result."""
    with asyncio.Runner(loop_factory=lambda: Schedule(seed)) as runner:
        return runner.run(work)


def run_seeds(seeds: Iterable[int], kind: Kind = World, shortening: int = _SHORTENING) -> Counter[str]:
    """Run the lists of seeds; the sum of their figures.

    Raises
    ------
    AssertionError
        With the seed, a short list that fails, and why.
    """
    figures: Counter[str] = Counter()
    for seed in seeds:
        began, operations = time.monotonic(), draw_operations(seed)
        try:
            figures.update(run_simulation(operations, kind, seed))
        except Exception as error:
            short = shorten_list(operations, partial(_fails, kind, seed), shortening)
            listing = "\n".join(f"    {operation}," for operation in short)
            failure = f"seed {seed}: {type(error).__name__}: {error}"
            raise AssertionError(f"{failure}\nrun_simulation([\n{listing}\n], seed={seed})") from error
        print(f"seed {seed}: {time.monotonic() - began:.1f} s", flush=True)
        figures["runs"] += 1
    return figures


def _fails(kind: Kind, seed: int, operations: list[Operation]) -> bool:
    with suppress(Exception):
        run_simulation(operations, kind, seed)
        return False
    return True
