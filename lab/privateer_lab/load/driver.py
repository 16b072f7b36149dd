"""Simulated people who take part over HTTP, round after round, with a progress bar."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privateer_client.participation import Participation
from privateer_core.errors import Conflict, InputError, Unavailable
from privateer_core.policies.decisions import Arms, Decisions, Plays
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.keys import read_signing_key
from privateer_lab.environments import Environment, default_environment, environment_for
from privateer_lab.load.endpoints import counted_by
from privateer_lab.load.wire import Wire
from privateer_lab.simulation.devices import arms_before, received, scaled, scaled_rewards
from privateer_lab.simulation.scores import Score

LIMITS: Final = Limits(
    epsilon=math.inf, delta=0.5, local_epsilon=math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True
)
"""Simulated people accept every promise that is kept."""
USERS: Final = 10_000
"""People who take part if nobody says how many, and the experiment does not draw them from so many."""
_UPLOAD_BYTES: Final = 1 << 20
_BREATH: Final = 0.2
"""Seconds between questions, so that a server that is away is not asked all the time."""
_PATIENCE: Final = 600.0
"""Seconds that the server may take to learn from a round, or a shuffler to deliver it."""
_FILL: Final = 10.0
"""Seconds after which a round that is still open has lost reports."""
Advance: TypeAlias = Callable[[int], None]
"""Is called with the number of people who have just taken part."""


@dataclass
class LoadResult(Score):
    """The outcome of a load run.

    Attributes
    ----------
    people, accepted, refused
        People who took part, the reports that ``endpoint`` accepted, and the others by reason.
    endpoint
        Who took the reports: ``server`` or ``shuffler``, which holds them until a batch is full.
    counted
        Reports of the experiment, anybody's, that the server had counted at the end of the run; None: it did not say.
    versions, rounds
        Policies that people followed, and those that asked for reports.
    over
        Whether the experiment has come to its end.
    waits_for
        People whom the open round misses, if it waits for them.
    facts
        What only the truth says of the last policy.
    bytes_sent, messages_sent
        The bodies of all uploads, and the sealed messages in them.
    waits, waited
        How often a service said with ``Retry-After`` when to come again, and the seconds that people waited then.
    """

    people: int = 0
    accepted: int = 0
    endpoint: str = "server"
    counted: int | None = None
    refused: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    rounds: int = 0
    over: bool = False
    waits_for: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    messages_sent: int = 0
    waits: int = 0
    waited: float = 0.0
    seconds: float = 0.0

    @property
    def people_per_second(self) -> float:
        """Rate over the whole run."""
        return self.people / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures for ``--json``."""
        kept = {name: value for name, value in vars(self).items() if name not in ("played", "facts")}
        figures = {"people": self.people, **kept}
        rates = ("regret", "uniform_regret", "best_constant_regret", "people_per_second")
        mean = self.reward / max(1, self.played.times)
        return (
            figures
            | self.facts
            | {"refused": dict(self.refused), "reward_mean": mean}
            | {name: getattr(self, name) for name in rates}
        )


class Driver:
    """People in groups of one upload, some groups at a time, who follow the newest policy round by round.

    Parameters
    ----------
    wire
        The experiment's services.
    population
        The table of a spec that names the people; None: those that fit the experiment.
    seed
        Seeds the environment, contexts and rewards.
    cohort
        The source of these people; empty for the experiment's own people.
    """

    def __init__(self, wire: Wire, population: dict[str, Any] | None, seed: int, cohort: str = "") -> None:
        self.wire, self.population, self.seed, self.cohort = wire, population, seed, cohort
        self.rng = np.random.default_rng([seed, 3])
        self.result = LoadResult()
        self.environment: Environment | None = None
        self._options: tuple[str, ...] = ()
        self.closed = self.ended = False

    async def run(
        self,
        users: int | None,
        concurrency: int,
        batch: int,
        progress: Advance,
        begins: Callable[[], None] = lambda: None,
    ) -> LoadResult:
        """Have people take part until all have, or the experiment is over, or it waits for people who are not there."""
        try:
            part = await self._next(None)
            people = self._people(part, users)
            begins()
            while not self.ended:
                answered = self._answered()
                await self._answer(part, self._groups(part, people, batch), concurrency, progress)
                part = await self._after(part, people, self._answered() - answered)
        finally:
            self.result.bytes_sent = self.wire.sent
            self.result.waits, self.result.waited = self.wire.patience.waits, self.wire.patience.seconds
        return self.result

    def _people(self, part: Participation, users: int | None) -> int:
        """Return how many people there are; only some of those whom a public draw asks may be among them."""
        draw = part.policy.draw
        if draw is None:
            return users or USERS
        if users is not None and users > draw.people:
            people = draw.people
            raise InputError(f"the experiment has {people} people", field="--users", remedy=f"at most {people}")
        return users or draw.people

    def _groups(self, part: Participation, people: int, batch: int) -> Iterator[int]:
        """Yield the sizes of the uploads of the people who answer a round, until it is closed."""
        if part.waits:
            return
        left = people - self.result.people
        if part.policy.draw is not None:
            left = int(np.count_nonzero(part.policy.draw.asked() < people))
        elif part.asks:
            left = min(left, part.round.batch)
        most = max(1, min(batch, _UPLOAD_BYTES // part.round.report_size))
        while left > 0 and not self.closed:
            group = min(most, left)
            left -= group
            yield group

    async def _answer(self, part: Participation, groups: Iterator[int], concurrency: int, progress: Advance) -> None:
        """Have groups of people upload their reports; those who come to a full round are turned away."""
        self.closed = False

        async def work() -> None:
            for people in groups:
                await self._group(part, people)
                progress(people)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(work())

    async def _group(self, part: Participation, people: int) -> None:
        reports = self._play(part, people)
        if not part.asks:
            self.result.refused["not-asked"] += people
            return
        accepted, refused = await self.wire.send(part.header, b"".join(reports), people, part.round.endpoint)
        self.result.accepted += accepted
        self.result.refused.update(refused)
        self.result.messages_sent += people * part.round.messages
        # Whoever comes next follows the next policy; those who are drawn for this round have no other.
        if part.policy.draw is None and not {"round-closed", "round-unknown"}.isdisjoint(refused):
            self.closed = True

    def _play(self, part: Participation, people: int) -> list[bytes]:
        """Have people choose and be rewarded; return their sealed reports, if the round asks for them."""
        environment, coins = self._environment(part), part.coins(people)
        raw = environment.contexts(self.result.people, people, self.rng)
        contexts = scaled(raw, part.spec)
        decisions = self._decisions(part, contexts, coins)
        rewards = environment.rewards(raw, decisions, self.rng)
        self.result.people += people
        if isinstance(decisions, Plays):
            return part.reports(contexts, coins, decisions, rewards) if part.asks else []
        self.result.add(environment.play(decisions, raw), received(rewards, part.spec))
        values = scaled_rewards(rewards, part.spec, environment.before(raw, tuple(part.spec.reward.adjust)))
        if not part.asks:
            return []
        if self.cohort:
            return part.recorded(contexts, decisions.arms, values)
        return part.reports(contexts, coins, decisions, values)

    def _decisions(self, part: Participation, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Decisions:
        """Return what people play now, or what those of a source have played before."""
        source = part.spec.source(self.cohort)
        if source is None:
            return part.decide(contexts, coins)
        return Arms(arms_before(source, len(part.spec.options), len(contexts), self.rng))

    async def _after(self, part: Participation, people: int, answered: int) -> Participation:
        """Follow the policy after a round that so many people have answered, unless nobody is left to do so."""
        self.result.over = part.round.batch == 0
        missing = part.round.batch - answered
        if part.policy.draw is None:
            self.ended = not part.waits and self.result.people >= people
        elif missing > 0 and not part.round.deadline:
            self.result.waits_for, self.ended = missing, True
        else:
            self.ended = self.result.over
        if self.ended:
            return part
        # Reports that were refused or lost leave room in a round that is still open, which more people may fill.
        fills = part.policy.draw is None and not part.waits and not self.closed
        return await self._next(part, fills)

    def _answered(self) -> int:
        """Return how many reports were accepted, or came when the round was full."""
        return self.result.accepted + self.result.refused["round-closed"]

    async def _next(self, old: Participation | None, fills: bool = False) -> Participation:
        """Fetch the policy after ``old``; return ``old`` if none comes in time, and end the run unless it fills."""
        deadline = max(0.0, old.round.deadline - time.time()) if old else 0.0
        latest = time.monotonic() + deadline + (_FILL if fills else _PATIENCE)
        while time.monotonic() < latest:
            body = await self.wire.fetch(old.header.digest if old else None)
            if body is not None:
                return self._join(body)
            await asyncio.sleep(_BREATH)
        if old is None or not self.result.people:
            raise Unavailable("the server publishes no policy", field="--url", remedy="look at its log")
        self.ended = not fills
        return old

    def _join(self, body: bytes) -> Participation:
        part = Participation(body, self.wire.name, LIMITS, self.cohort, is_paused=self.wire.is_paused)
        environment = self._environment(part)
        self.result.versions += 1
        self.result.rounds += part.round.batch > 0
        self.result.endpoint = part.round.endpoint
        self.result.facts = environment.facts(part.policy)
        nobody = environment.contexts(self.result.people, 0, self.rng)
        decisions = part.decide(scaled(nobody, part.spec), part.coins(0))
        if isinstance(decisions, Plays):
            played = environment.play(decisions, nobody)
            self.result.add(played, played.expected)
        return part

    def _environment(self, part: Participation) -> Environment:
        if self.environment is None:
            population = self.population or default_environment(part.spec)
            self.environment = environment_for(part.spec, self.seed, population)
            self._options = part.spec.options
        if part.spec.options != self._options:
            detail = "an arm was added while people took part, and they are simulated for the others"
            raise Conflict(detail, field="NAME", remedy="start the load again")
        return self.environment


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run; ``result`` is what was known then."""

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
            driver.result.counted = await counted_by(wire.http, wire.server, wire.name)
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
