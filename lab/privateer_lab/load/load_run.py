"""Load runs: simulated people through an experiment, with a progress bar."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privateer_core.wire.keys import read_signing_key
from privateer_lab.load.driver import Driver, LoadResult
from privateer_lab.load.wire import Wire


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run; ``result`` is what was counted before."""

    def __init__(self, result: LoadResult) -> None:
        super().__init__()
        self.result = result


def run_load(
    name: str,
    server: str,
    shuffler: str | None,
    *,
    users: int | None = None,
    population: dict[str, Any] | None = None,
    concurrency: int = 4,
    batch: int = 100,
    seed: int = 0,
    cohort: str = "",
    sender_key: Path | None = None,
    issuer: str | None = None,
    attestation_secret: bytes | None = None,
    begins: Callable[[], None] = lambda: None,
    each: Callable[[LoadResult], None] = lambda _: None,
) -> LoadResult:
    """Drive simulated people through an experiment.

    Parameters
    ----------
    name, server, shuffler
        The experiment, and its services; the shuffler only if its reports are shuffled.
    users
        How many people there are: of those whom the experiment draws from its population, the others never answer.
        None: 10,000, or the whole population.
    population, seed
        The table of a spec that names the people, None: those that fit the experiment; and the seed of contexts and
        rewards.
    concurrency, batch
        Uploads under way at a time, and people in one; real devices send 1.
    cohort
        The source to which these people belong; empty for the experiment's own people.
    sender_key
        File of a private key that the services trust with several people's reports at once.
    issuer, attestation_secret
        The issuer of upload tokens, if reports need some, and what the application's backend shares with it.
    begins
        Is called before anybody takes part, once the experiment is known and these people fit it.
    each
        Is called with what is counted so far, whenever people have taken part.

    Raises
    ------
    PrivateerError
        If the experiment is not there, its terms do not hold, or nobody answers.
    Interrupted
        On Ctrl-C, once somebody has taken part.
    """
    console = Console(stderr=True)
    columns = (TextColumn("people"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    sender = read_signing_key(sender_key, "--sender-key") if sender_key else None

    async def drive() -> tuple[LoadResult, bool]:
        started, whole = time.perf_counter(), True
        async with Wire.open(name, server, shuffler, concurrency, sender, issuer, attestation_secret) as wire:
            driver = Driver(wire, population, seed, cohort)

            def advance(people: int) -> None:
                bar.advance(task, people)
                each(driver.result)

            try:
                await driver.run(users, concurrency, batch, advance, begins)
            except asyncio.CancelledError:  # by Ctrl-C
                whole = False
        driver.result.seconds = time.perf_counter() - started
        return driver.result, whole

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("people", total=users)
        try:
            result, whole = asyncio.run(drive())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    if not whole:
        raise Interrupted(result) if result.people else KeyboardInterrupt
    return result
