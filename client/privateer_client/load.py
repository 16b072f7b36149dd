"""Simulated people over HTTP: the real client code, a light transport, and what they learned."""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import aiohttp
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from privateer.errors import NotFound, PrivateerError, SpecError, TermsRefused, Unavailable
from privateer.population import Population as PopulationSpec
from privateer.population import parse_population
from privateer.privacy.verification import Limits
from privateer.tables import apply_setting, read_tables
from privateer.wire.envelope import MEDIA_TYPE, REPORTS_PER_BODY_MAX, Envelope, encode_envelope
from privateer.wire.problem import slug_of
from privateer_client.participation import Participation
from privateer_client.population import Population, population_for

_WAIT: Final = 10
"""Seconds of a long poll for the next policy."""
_TRIES: Final = 60
_LIMITS: Final = Limits(
    epsilon=math.inf, delta=0.5, local_epsilon=16.0, honest_fraction=1.0, min_batch=100, curator=True
)
"""Simulated people accept any terms that are what they say."""


@dataclass
class LoadResult:
    """What came of a load run. Regrets are sums over people of expected reward lost against the best arm."""

    people: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    reward: float = 0.0
    regret: float = 0.0
    uniform_regret: float = 0.0
    best_constant_regret: float = 0.0
    seconds: float = 0.0
    versions: int = 0

    @property
    def people_per_second(self) -> float:
        """Rate over the whole run."""
        return self.people / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        mean = self.reward / self.people if self.people else 0.0
        more = {"refused": dict(self.refused), "reward_mean": mean, "people_per_second": self.people_per_second}
        return vars(self) | more


class _Driver:
    """People in groups of one upload, some groups at a time, each following the newest policy."""

    def __init__(
        self, name: str, server: str, shuffler: str | None, population: PopulationSpec, seed: int, cohort: str
    ) -> None:
        self.name, self.server, self.shuffler, self.cohort = name, server.rstrip("/"), shuffler, cohort
        self.wanted, self.seed = population, seed
        self.rng = np.random.default_rng([seed, 3])
        self.result = LoadResult()
        self.best = 0.0
        self.by_arm: NDArray[np.float64] = np.zeros(0)
        self.people: Population | None = None
        self.part: Participation | None = None
        self.fetching = asyncio.Lock()
        self.left = 0
        self.room = 0

    async def run(self, users: int, concurrency: int, batch: int, bar: Progress, task: TaskID) -> LoadResult:
        started = time.perf_counter()
        self.left = users
        timeout = aiohttp.ClientTimeout(total=_WAIT + 60)
        connector = aiohttp.TCPConnector(limit=concurrency + 1)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            await self._follow(http, None)
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._work(http, batch, bar, task))
        return self._finished(time.perf_counter() - started)

    async def _work(self, http: aiohttp.ClientSession, batch: int, bar: Progress, task: TaskID) -> None:
        while self.left > 0:
            part = self._current()
            if part.waits or (part.asks and self.room <= 0):
                await self._follow(http, part)
                continue
            people = min(batch, self.left, self.room if part.asks else batch)
            self.left -= people
            self.room -= people
            await self._group(http, people)
            bar.advance(task, people)

    async def _group(self, http: aiohttp.ClientSession, people: int) -> None:
        part = self._current()
        contexts, slots, arms, rewards = self._play(part, people)
        if not part.asks:
            self.result.refused["not-asked"] += people
            return
        sealed = b"".join(
            part.recorded(contexts, slots, arms, rewards) if self.cohort else part.reports(contexts, slots, rewards)
        )
        accepted, refused = await self._send(http, encode_envelope(Envelope(part.header, sealed)), people)
        self.result.accepted += accepted
        self.result.refused.update(refused)
        if refused.get("round-closed") or refused.get("round-unknown"):
            await self._follow(http, part)

    def _current(self) -> Participation:
        if self.part is None:
            raise Unavailable("no policy yet", remedy="try again later")
        return self.part

    def _play(
        self, part: Participation, people: int
    ) -> tuple[NDArray[np.float64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.float64]]:
        """People choose and are rewarded; contexts and rewards scaled to [0, 1], and the sums brought up to date."""
        population, spec = self.people, part.spec
        if population is None:
            raise Unavailable("no population yet", remedy="try again later")
        slots = part.slots(people)
        raw = population.contexts(self.result.people, people, self.rng)
        low, high = np.array([(f.low, f.high) for f in spec.context.features.values()]).T
        contexts = np.clip((raw[:, : len(low)] - low) / (high - low), 0.0, 1.0)
        arms = self._arms(part, contexts, slots)
        means = population.means(raw)
        rewards = population.rewards(raw, arms, self.rng)
        self.result.people += people
        self.result.reward += float(rewards.sum())
        self.result.regret += float((np.amax(means, axis=1) - means[np.arange(people), arms]).sum())
        self.best += float(np.amax(means, axis=1).sum())
        self.by_arm = self.by_arm + means.sum(axis=0) if self.by_arm.size else means.sum(axis=0)
        scaled = (rewards - spec.reward.low) / (spec.reward.high - spec.reward.low)
        return contexts, slots, arms, np.clip(scaled, 0.0, 1.0)

    def _arms(self, part: Participation, contexts: NDArray[np.float64], slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        """What people play now, or what those of a source have played before."""
        source = part.spec.source(self.cohort)
        if source is None:
            return part.choose(contexts, slots)
        shares = None if source.shares == "unknown" else np.array(source.shares)
        return np.asarray(self.rng.choice(part.spec.arm_count, len(contexts), p=shares))

    async def _send(self, http: aiohttp.ClientSession, body: bytes, people: int) -> tuple[int, dict[str, int]]:
        """Upload until somebody answers; the same bytes each time, so that nothing counts twice."""
        for attempt in range(_TRIES):
            try:
                async with http.post(self._door(), data=body, headers={"Content-Type": MEDIA_TYPE}) as response:
                    answer = await response.read()
                    if response.status == 202:
                        return _counts(answer)
                    if response.status < 500:
                        return _refusals(answer, people, attempt > 0)
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(min(2.0, 0.05 * 2**attempt))
        return 0, {"unsent": people}

    def _door(self) -> str:
        part = self._current()
        if part.round.model != "shuffle":
            return f"{self.server}/reports"
        if self.shuffler is None:
            raise TermsRefused("the experiment needs a shuffler", field="--shuffler", remedy="give its URL")
        return f"{self.shuffler.rstrip('/')}/experiments/{self.name}/reports"

    async def _follow(self, http: aiohttp.ClientSession, old: Participation | None) -> None:
        """Fetch the policy; after ``old``, wait until it is another, or until the round must have lost reports."""
        async with self.fetching:
            if self.part is not old:
                return
            for attempt in range(_TRIES):
                body = await self._fetch(http, old)
                if body is not None:
                    self._join(body)
                    return
                if old is not None and self.room <= 0:
                    # Reports that were refused or lost left room in the round.
                    self.room = old.round.batch
                    return
                await asyncio.sleep(min(1.0, 0.02 * 2**attempt))
            raise Unavailable("the server publishes no policy", field="--url", remedy="look at its log")

    async def _fetch(self, http: aiohttp.ClientSession, old: Participation | None) -> bytes | None:
        headers = {"Accept": MEDIA_TYPE}
        query = ""
        if old is not None:
            headers["If-None-Match"] = f'"{old.header.digest.hex()}"'
            query = f"?wait={_WAIT}"
        try:
            async with http.get(f"{self.server}/experiments/{self.name}/policy{query}", headers=headers) as response:
                if response.status == 404:
                    raise NotFound("the server has no such experiment", field="NAME", remedy="privateer list")
                return await response.read() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            if old is None:
                raise Unavailable("no answer", field="--url", remedy="is the server running?") from None
            return None

    def _join(self, body: bytes) -> None:
        self.part = Participation(body, self.name, _LIMITS, self.cohort)
        self.room = self.part.round.batch
        self.result.versions += 1
        if self.people is None:
            spec = self.part.spec.model_copy(update={"population": self.wanted})
            self.people = population_for(spec, self.seed)

    def _finished(self, seconds: float) -> LoadResult:
        self.result.seconds = seconds
        self.result.uniform_regret = self.best - float(self.by_arm.mean())
        self.result.best_constant_regret = self.best - float(np.max(self.by_arm))
        return self.result


def _counts(answer: bytes) -> tuple[int, dict[str, int]]:
    data = json.loads(answer)
    return int(data["accepted"]), dict(data["refused"])


def _refusals(answer: bytes, people: int, retried: bool) -> tuple[int, dict[str, int]]:
    """Counts in a problem document; duplicates after a retry were accepted before."""
    try:
        refused = dict(json.loads(answer).get("refused") or {})
    except ValueError:
        refused = {}
    refused = refused or {slug_of(answer): people}
    accepted = refused.pop("duplicate-report", 0) if retried else 0
    return accepted, refused


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

    Raises
    ------
    PrivateerError
        If the experiment is not there, its terms are not what they say, or nobody answers.
    """
    driver = _Driver(name, server, shuffler, parse_population(population), seed, cohort)
    console = Console(stderr=True)
    columns = (TextColumn("people"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("people", total=users)
        try:
            return asyncio.run(driver.run(users, concurrency, batch, bar, task))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit with 2."""
        self.exit(2, f"privateer: {message} (see privateer load --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="privateer load", description="Simulated people over HTTP.")
    parser.add_argument("name", metavar="NAME", help="experiment")
    parser.add_argument("--url", default=os.environ.get("PRIVATEER_URL", "http://127.0.0.1:8000"), help="server")
    shuffler = os.environ.get("PRIVATEER_SHUFFLER", "http://127.0.0.1:8001")
    parser.add_argument("--shuffler", default=shuffler, help="shuffler")
    parser.add_argument("--users", type=int, default=10_000, help="people")
    parser.add_argument("--concurrency", type=int, default=4, help="uploads under way at a time")
    parser.add_argument("--batch", type=int, default=100, help="people in one upload; 1 as real devices do")
    parser.add_argument("--population", default="peaks", help="its name, or a TOML file with a population section")
    parser.add_argument("--path", help="file of the population, for csv and adult")
    parser.add_argument("--set", action="append", default=[], metavar="population.KEY=VALUE", help="change the section")
    parser.add_argument("--cohort", default="", help="source of these people, who report on arms played before")
    parser.add_argument("--seed", type=int, default=0, help="of contexts and rewards")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _population(options: argparse.Namespace) -> dict[str, Any]:
    """The table that ``--population``, ``--path`` and ``--set`` make."""
    if options.population.endswith(".toml"):
        tables = read_tables(Path(options.population), [], "--population")
        if "population" not in tables:
            raise SpecError("the file has no population section", field="--population", remedy="add one")
    else:
        tables = {"population": {"name": options.population}}
    if options.path is not None:
        tables["population"]["path"] = options.path
    for setting in options.set:
        apply_setting(tables, setting)
    return dict(tables["population"])


def _checked(options: argparse.Namespace) -> argparse.Namespace:
    for name, value, most in (
        ("--users", options.users, 10**10),
        ("--concurrency", options.concurrency, 1000),
        ("--batch", options.batch, REPORTS_PER_BODY_MAX),
    ):
        if not 1 <= value <= most:
            raise SpecError(f"must be 1 to {most}", field=name, remedy="choose another number")
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line of the load driver; exits with 2 on an error of the user's."""
    try:
        options = _checked(_parser().parse_args(arguments))
        result = run_load(
            options.name,
            options.url,
            options.shuffler,
            users=options.users,
            population=_population(options),
            concurrency=options.concurrency,
            batch=options.batch,
            seed=options.seed,
            cohort=options.cohort,
        )
    except PrivateerError as error:
        print(f"privateer: {error}", file=sys.stderr)
        sys.exit(2)
    _show(result, options.json)


def _show(result: LoadResult, as_json: bool) -> None:
    figures = result.as_dict()
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        shown = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 100 else value
        print(f"{name:22} {f'{shown:,.0f}' if isinstance(shown, float) else shown}")
