"""Load runs: simulated people through an experiment, with a progress bar."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privateer.phased import PhasedPopulation
from privateer.population import parse_population
from privateer.sections import parse_section
from privateer.wire.keys import read_signing_key
from privateer_lab.load.limits import Progress as Told
from privateer_lab.load.people import LoadResult, PeopleDriver
from privateer_lab.load.phases import PhaseResult, PhasesDriver
from privateer_lab.load.wire import Wire

_Result = TypeVar("_Result", LoadResult, PhaseResult)
_Drive: TypeAlias = Callable[[Wire, Told], tuple[_Result, Awaitable[_Result]]]
"""What a run fills in, and the run."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run.

    Attributes
    ----------
    result
        What was counted before.
    """

    def __init__(self, result: LoadResult | PhaseResult) -> None:
        super().__init__()
        self.result = result


def run_load(
    name: str,
    server: str,
    shuffler: str | None,
    *,
    users: int,
    population: dict[str, Any],
    concurrency: int = 4,
    batch: int = 100,
    seed: int = 0,
    cohort: str = "",
    sender_key: Path | None = None,
) -> LoadResult:
    """Drive ``users`` simulated people through an experiment.

    Parameters
    ----------
    name, server, shuffler
        The experiment, and where it is; the shuffler only under shuffle privacy.
    users, population, seed
        How many people, which ones (the table of a spec), and the seed of contexts and rewards.
    concurrency, batch
        Uploads under way at a time, and people in one; 1 as real devices do.
    cohort
        The source that these people belong to; empty for the experiment's own people.
    sender_key
        File of a private key that the services trust with several people's reports at once.

    Raises
    ------
    PrivateerError
        If the experiment is not there, its terms are not what they say, or nobody answers.
    Interrupted
        On Ctrl-C, once somebody has taken part.
    """
    section = parse_population(population)

    def drive(wire: Wire, told: Told) -> tuple[LoadResult, Awaitable[LoadResult]]:
        driver = PeopleDriver(wire, section, seed, cohort)
        return driver.result, driver.run(users, concurrency, batch, told)

    return _run(_Where(name, server, shuffler, concurrency, sender_key), users, drive)


def run_phases(
    name: str,
    server: str,
    shuffler: str | None,
    *,
    users: int | None = None,
    population: dict[str, Any] | None = None,
    concurrency: int = 4,
    batch: int = 100,
    seed: int = 0,
    sender_key: Path | None = None,
) -> PhaseResult:
    """Drive simulated people through a phased experiment.

    Parameters
    ----------
    name, server, shuffler, concurrency, batch
        As for `run_load`.
    users
        How many of the experiment's people there are: the others never answer; None: all.
    population, seed
        The table of a spec, and the seed of theta and of people.

    Raises
    ------
    PrivateerError, Interrupted
        As for `run_load`.
    """
    section = parse_section(PhasedPopulation, population or {"name": "linear"})

    def drive(wire: Wire, told: Told) -> tuple[PhaseResult, Awaitable[PhaseResult]]:
        driver = PhasesDriver(wire, section, seed)
        return driver.result, driver.run(users, concurrency, batch, told)

    return _run(_Where(name, server, shuffler, concurrency, sender_key), users, drive)


class _Where(NamedTuple):
    name: str
    server: str
    shuffler: str | None
    concurrency: int
    sender_key: Path | None


def _run(where: _Where, total: int | None, drive: _Drive[_Result]) -> _Result:
    console = Console(stderr=True)
    columns = (TextColumn("people"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("people", total=total)
        try:
            result, whole = asyncio.run(_driven(where, drive, lambda people: bar.advance(task, people)))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    if not whole:
        raise Interrupted(result) if result.people else KeyboardInterrupt
    return result


async def _driven(where: _Where, drive: _Drive[_Result], told: Told) -> tuple[_Result, bool]:
    """The result, and whether it is of the whole run: Ctrl-C cancels it."""
    started, whole = time.perf_counter(), True
    sender = read_signing_key(where.sender_key, "--sender-key") if where.sender_key else None
    async with Wire.open(where.name, where.server, where.shuffler, where.concurrency, sender) as wire:
        result, run = drive(wire, told)
        try:
            await run
        except asyncio.CancelledError:
            whole = False
    result.seconds = time.perf_counter() - started
    return result, whole
