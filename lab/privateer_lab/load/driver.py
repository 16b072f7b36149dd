"""Simulated people who take part over HTTP, round after round, with a progress bar."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
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
from privateer_lab.load.endpoints import ServerCounts
from privateer_lab.load.result import LoadResult
from privateer_lab.load.wire import Wire
from privateer_lab.simulation.devices import arms_before, received, scaled, scaled_rewards

LIMITS: Final = Limits(
    epsilon=math.inf, delta=0.5, local_epsilon=math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True
)
"""Simulated people accept every promise that is kept."""
_UPLOAD_BYTES: Final = 1 << 20
_BREATH: Final = 0.2
"""Seconds between questions, so that a server that is away is not asked all the time."""
_PATIENCE: Final = 600.0
"""Seconds that the server may take to learn from a round, or a shuffler to deliver it."""
_FILL: Final = 10.0
"""Seconds after which a round that is still open has lost reports."""
_COUNTING: Final = 60.0
"""Seconds that a shuffler and the server may take to count what was accepted."""
_STILL: Final = 2.0
"""Seconds without a batch after which the reports at a shuffler are too few for one."""
_FULL: Final = ("round-closed", "round-unknown")
"""Reasons of people who came to a round that was full: others are asked in their place."""
Advance: TypeAlias = Callable[[int], None]
"""Is called with the number of people who have just taken part."""


class Driver:
    """People in groups of one upload, some groups at a time, who follow the newest policy round by round.

    wire: the experiment's services.
    population: the table of a spec that names the people; None: those that fit the experiment.
    seed: seeds the environment, contexts and rewards.
    cohort: the source of these people; empty for the experiment's own people.
    """

    def __init__(self, wire: Wire, population: dict[str, Any] | None, seed: int, cohort: str = "") -> None:
        self.wire, self.population, self.seed, self.cohort = wire, population, seed, cohort
        self.rng = np.random.default_rng([seed, 3])
        self.result = LoadResult()
        self.environment: Environment | None = None
        self._options: tuple[str, ...] = ()
        self.closed = self.ended = False
        self._at_start: ServerCounts | None = None
        self._is_replacing = False

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
            self._at_start = await self.wire.counts()
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

    async def settle(self) -> None:
        """Wait until what was accepted is counted, or so little waits at the shuffler that no batch comes of it."""
        latest, since, before = time.monotonic() + _COUNTING, time.monotonic(), -1
        while (counts := await self.wire.counts()) and self._at_start:
            waiting = max(0, self.result.accepted - (counts.n_decided - self._at_start.n_decided))
            people, now = counts.people, time.monotonic()
            self.result.over = counts.status not in ("open", "paused", "draining")
            # Others may have reports there, so that no more is known than what this run has sent.
            is_held = people.held.at_shuffler is None
            self.result.account = people.with_shuffler(waiting, people.unknown) if is_held else people
            since, before = (since if waiting == before else now), waiting
            is_closing = bool(people.held.in_open_round) and not people.held.needed
            is_still = waiting < people.held.needed and now >= since + _STILL
            is_settled = not is_closing and (not waiting or not is_held or is_still)
            if is_settled or now >= latest:
                return
            await asyncio.sleep(_BREATH)

    def _people(self, part: Participation, users: int | None) -> int:
        """Return how many people there are, by default those whom the horizon still asks.

        Only some of those whom a public draw asks may be among them.
        """
        draw = part.policy.draw
        if draw is None:
            self._is_replacing = users is None
            return self._asked(part) if users is None else users
        if users is not None and users > draw.people:
            people = draw.people
            raise InputError(f"the experiment has {people} people", field="--users", remedy=f"at most {people}")
        return users or draw.people

    def _asked(self, part: Participation) -> int:
        """Return how many people of this cohort the horizon still asks, where its policy asks anybody."""
        if self._at_start is None:
            raise Unavailable("the server does not say whom it still asks", field="--users", remedy="give a number")
        asked = self._at_start.people.not_asked + self._at_start.people.unknown
        source = part.spec.source(self.cohort)
        most = part.spec.experiment.horizon if source is None else source.people
        return min(asked, most) if part.asks or part.waits else 0

    def _left(self, people: int) -> int:
        """Return how many are to come; the horizon asks others instead of those who came to a full round."""
        n_full = sum(self.result.refused[reason] for reason in _FULL) if self._is_replacing else 0
        return people + n_full - self.result.people

    def _groups(self, part: Participation, people: int, batch: int) -> Iterator[int]:
        """Yield the sizes of the uploads of the people who answer a round, until it is closed."""
        if part.waits:
            return
        left = self._left(people)
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
            self.result.not_asked += people
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
        if part.policy.draw is None:
            self.ended = not part.waits and self._left(people) <= 0
        else:
            is_short = answered < part.round.batch and not part.round.deadline
            self.ended = is_short or self.result.over
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

    name, server, shuffler: the experiment, and its services; the shuffler only if its reports are shuffled.
    users: how many people there are: of those whom the experiment draws from its population, the others never answer.
        None: those whom the horizon still asks, or the whole population.
    population, seed: the table of a spec that names the people, None: those that fit the experiment; and the seed of
        contexts and rewards.
    concurrency, batch: uploads under way at a time, and people in one; real devices send 1.
    cohort: the source to which these people belong; empty for the experiment's own people.
    sender_key: file of a private key that the services trust with several people's reports at once.
    issuer, attestation_secret: the issuer of upload tokens, if reports need some, and what the application's backend
        shares with it.
    begins: is called before anybody takes part, once the experiment is known and these people fit it.
    each: is called with what is counted so far, whenever people have taken part.
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
            if whole:
                await driver.settle()
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
