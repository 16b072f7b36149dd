"""The driver of load runs: simulated participants follow policies and upload reports over HTTP."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privateer_client.participation import Participation
from privateer_core.answer.people import People
from privateer_core.arrays import Ints
from privateer_core.errors import Conflict, InputError, Unavailable
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.policies.policy import Arms, Decisions, Plays
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.keys import read_signing_key
from privateer_lab.environments import Environment, default_environment, environment_for
from privateer_lab.load.endpoints import ServerCounts
from privateer_lab.load.wire import Wire
from privateer_lab.simulation.scores import Score, draw_past, encode_contexts, scale_rewards, sum_rewards


@dataclass
class LoadResult(Score):
    """The outcome of a load run."""

    # people, not_asked: participants who chose, and those not invited to report, since no round was open
    people: int = 0
    not_asked: int = 0
    # accepted, refused: the reports that ``endpoint`` accepted, and the others by reason
    accepted: int = 0
    endpoint: str = "server"  # who took the reports: ``server`` or ``shuffler``, which holds them until a batch is full
    # the account of the experiment's participants at the end of the run, as far as server and run know; None: the
    # server did not say
    account: People | None = None
    refused: Counter[str] = field(default_factory=Counter)
    # versions, rounds: policies that participants followed, and those that asked for reports
    versions: int = 0
    rounds: int = 0
    over: bool = False  # whether the experiment is over
    facts: dict[str, float] = field(default_factory=dict)  # figures of the last policy by the true rewards
    # bytes_sent, messages_sent: the bodies of all uploads, and the sealed messages in them
    bytes_sent: int = 0
    messages_sent: int = 0
    # waits, waited: the number of answers with ``Retry-After``, and the seconds that participants waited for them
    waits: int = 0
    waited: float = 0.0
    seconds: float = 0.0

    @property
    def people_per_second(self) -> float:
        """Participants per second over the whole run."""
        return self.people / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures for ``--json``."""
        figures = {name: value for name, value in vars(self).items() if name not in ("played", "facts", "account")}
        del figures["people"]
        figures |= {"took_part": self.people - self.not_asked, "people": msgspec.to_builtins(self.account)}
        rates = ("regret", "uniform_regret", "best_constant_regret", "people_per_second")
        figures |= self.facts | {"refused": dict(self.refused), "reward_mean": self.reward / max(1, self.played.times)}
        return figures | {name: getattr(self, name) for name in rates}


LIMITS: Final = Limits(
    epsilon=inf,
    delta=0.5,
    local_epsilon=inf,
    honest_fraction=1.0,
    min_batch=1,
    arm_visibility="hidden",
    allow_central=True,
)
"""Simulated participants accept every promise that is kept."""
_MAX_UPLOAD_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.2
"""Seconds between requests for a policy."""
_POLICY_TIMEOUT_SECONDS: Final = 600.0
"""Longest time for the server to learn from a round, or for a shuffler to deliver it."""
_FILL_TIMEOUT_SECONDS: Final = 10.0
"""Longest time for an open round to close, after which it has lost reports."""
_SETTLE_TIMEOUT_SECONDS: Final = 60.0
"""Longest time for shuffler and server to count accepted reports."""
_IDLE_SECONDS: Final = 2.0
"""Seconds without a batch after which the reports at a shuffler are too few for a batch."""
_FULL_ROUND_REASONS: Final = ("round-closed", "round-unknown")
"""Refusals by a full round: other participants are invited instead."""
Advance: TypeAlias = Callable[[int], None]
"""Callback with the number of participants of an upload."""


class Driver:
    """Driver of simulated participants, who follow the newest policy in concurrent groups of one upload each."""

    def __init__(self, wire: Wire, population: dict[str, Any] | None, seed: int, cohort: str = "") -> None:
        self.wire, self.population, self.seed, self.cohort = wire, population, seed, cohort
        self.rng = np.random.default_rng([seed, 3])
        self.result = LoadResult()
        self.environment: Environment | None = None
        self._options: tuple[str, ...] = ()
        self.is_round_closed = self.is_over = False
        self._initial_counts: ServerCounts | None = None
        self._is_replacing = False

    async def run(
        self,
        users: int | None,
        concurrency: int,
        batch: int,
        on_progress: Advance,
        on_start: Callable[[], None] = lambda: None,
    ) -> LoadResult:
        """Simulate participants until all have taken part, the experiment is over, or too few are left for a round."""
        try:
            current = await self._fetch_next(None)
            self._initial_counts = await self.wire.counts()
            total = self._count_participants(current, users)
            on_start()
            while not self.is_over:
                n_answered = self._count_answered()
                await self._upload_groups(current, self._split_uploads(current, total, batch), concurrency, on_progress)
                current = await self._follow_next_round(current, total, self._count_answered() - n_answered)
        finally:
            self.result.bytes_sent = self.wire.bytes_sent
            self.result.waits, self.result.waited = self.wire.backoff.waits, self.wire.backoff.seconds
        return self.result

    async def wait_until_counted(self) -> None:
        """Wait until accepted reports are counted, or too few for a batch are left at the shuffler."""
        deadline, unchanged_since, previous = time.monotonic() + _SETTLE_TIMEOUT_SECONDS, time.monotonic(), -1
        while (counts := await self.wire.counts()) and self._initial_counts:
            n_pending = max(0, self.result.accepted - (counts.n_decided - self._initial_counts.n_decided))
            account, now = counts.people, time.monotonic()
            self.result.over = counts.status.is_over
            # Other clients may have reports there, so that only this run's own reports are known.
            is_held = account.held.at_shuffler is None
            self.result.account = account.with_shuffler(n_pending, account.unknown) if is_held else account
            unchanged_since, previous = (unchanged_since if n_pending == previous else now), n_pending
            is_closing = bool(account.held.in_open_round) and not account.held.needed
            is_still = n_pending < account.held.needed and now >= unchanged_since + _IDLE_SECONDS
            is_settled = not is_closing and (not n_pending or not is_held or is_still)
            if is_settled or now >= deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _count_participants(self, participation: Participation, users: int | None) -> int:
        """Return the number of participants, by default of the horizon's remaining invitations.

        With a public draw the participants may include only some of those drawn.
        """
        draw = participation.policy.draw
        if draw is None:
            self._is_replacing = users is None
            return self._count_invited(participation) if users is None else users
        if users is not None and users > (n := draw.people):
            raise InputError(f"the experiment has {n} people", field="--users", remedy=f"at most {n}")
        return users or draw.people

    def _count_invited(self, participation: Participation) -> int:
        """Return how many participants of the cohort the horizon still invites; 0 if the policy asks for no reports."""
        if self._initial_counts is None:
            raise Unavailable("the server does not say whom it still asks", field="--users", remedy="give a number")
        n_invited = self._initial_counts.people.not_asked + self._initial_counts.people.unknown
        source = participation.spec.source(self.cohort)
        horizon = participation.spec.experiment.horizon if source is None else source.participants
        return min(n_invited, horizon) if participation.is_report_requested or participation.is_turn_pending else 0

    def _count_remaining(self, n_participants: int) -> int:
        """Return the number of remaining participants; those refused by a full round are replaced."""
        n_full = sum(self.result.refused[reason] for reason in _FULL_ROUND_REASONS) if self._is_replacing else 0
        return n_participants + n_full - self.result.people

    def _split_uploads(self, participation: Participation, n_participants: int, batch: int) -> Iterator[int]:
        """Yield the sizes of a round's uploads, until it is closed."""
        if participation.is_turn_pending:
            return
        n_remaining = self._count_remaining(n_participants)
        if participation.policy.draw is not None:
            n_remaining = int(np.count_nonzero(participation.policy.draw.select_participants() < n_participants))
        elif participation.is_report_requested:
            n_remaining = min(n_remaining, participation.round.batch_size)
        max_size = max(1, min(batch, _MAX_UPLOAD_BYTES // participation.round.report_size))
        while n_remaining > 0 and not self.is_round_closed:
            size = min(max_size, n_remaining)
            n_remaining -= size
            yield size

    async def _upload_groups(self, current: Participation, sizes: Iterator[int], n: int, on_progress: Advance) -> None:
        """Upload the reports of groups of participants, ``n`` at a time; a full round refuses them."""
        self.is_round_closed = False

        async def work() -> None:
            for size in sizes:
                await self._upload_group(current, size)
                on_progress(size)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(n):
                tasks.create_task(work())

    async def _upload_group(self, current: Participation, size: int) -> None:
        """Play a group of people, upload their reports if any are asked for, and add up the outcome."""
        reports = self._simulate_reports(current, size)
        if not current.is_report_requested:
            self.result.not_asked += size
            return
        accepted, refused = await self.wire.send(current.header, b"".join(reports), size, current.round.endpoint)
        self.result.accepted += accepted
        self.result.refused.update(refused)
        self.result.messages_sent += size * current.round.messages
        # Later participants follow the next policy; those who are drawn for this round have no other.
        self.is_round_closed |= current.policy.draw is None and not refused.keys().isdisjoint(_FULL_ROUND_REASONS)

    def _simulate_reports(self, current: Participation, n_participants: int) -> list[bytes]:
        """Simulate choices and rewards of participants; return their sealed reports, if the round asks for them."""
        environment, coins = self._ensure_environment(current), current.draw_coins(n_participants)
        raw = environment.contexts(self.result.people, n_participants, self.rng)
        contexts = encode_contexts(raw, current.spec)
        decisions: Decisions
        if source := current.spec.source(self.cohort):
            arms, propensities = draw_past(source, environment, raw, len(current.spec.options), self.rng)
            decisions = Arms(arms)
        else:
            decisions = current.decide(contexts, coins)
        rewards = environment.rewards(raw, decisions, self.rng)
        self.result.people += n_participants
        if isinstance(decisions, Plays):
            return current.make_reports(contexts, coins, decisions, rewards) if current.is_report_requested else []
        self.result.add(environment.play(decisions, raw), sum_rewards(rewards, current.spec))
        values = scale_rewards(rewards, current.spec, environment.before(raw, tuple(current.spec.reward.covariates)))
        if not current.is_report_requested:
            return []
        if self.cohort:
            return current.make_past_reports(contexts, arms, values, propensities)
        return current.make_reports(contexts, coins, decisions, values, tiers=self._draw_tiers(current, n_participants))

    def _draw_tiers(self, current: Participation, n_participants: int) -> Ints | None:
        """Draw the tiers of participants by their expected shares; None if the experiment has no tiers."""
        mechanism = current.policy.terms.mechanism
        return mechanism.draw_tiers(n_participants, self.rng) if isinstance(mechanism, TieredSymbol) else None

    async def _follow_next_round(self, current: Participation, total: int, n_answered: int) -> Participation:
        """Return the next policy after a round with ``n_answered`` reports, unless no participants remain."""
        self.result.over = current.round.batch_size == 0
        if current.policy.draw is None:
            self.is_over = not current.is_turn_pending and self._count_remaining(total) <= 0
        else:
            is_short = n_answered < current.round.batch_size and not current.round.deadline
            self.is_over = is_short or self.result.over
        if self.is_over:
            return current
        # Refused or lost reports leave capacity in an open round, which more participants may fill.
        may_fill = current.policy.draw is None and not current.is_turn_pending and not self.is_round_closed
        return await self._fetch_next(current, may_fill)

    def _count_answered(self) -> int:
        """Return how many reports were accepted, or refused by a full round."""
        return self.result.accepted + self.result.refused["round-closed"]

    async def _fetch_next(self, old: Participation | None, may_fill: bool = False) -> Participation:
        """Fetch the policy after ``old``; on timeout return ``old``, and end the run unless ``may_fill``."""
        deadline = max(0.0, old.round.deadline - time.time()) if old else 0.0
        end_time = time.monotonic() + deadline + (_FILL_TIMEOUT_SECONDS if may_fill else _POLICY_TIMEOUT_SECONDS)
        while time.monotonic() < end_time:
            body = await self.wire.fetch_publication(old.header.digest if old else None)
            if body is not None:
                participation = self._join_version(body)
                if participation.round.is_shared:
                    participation.helper_key = await self.wire.fetch_helper_key()
                return participation
            await asyncio.sleep(_POLL_SECONDS)
        if old is None or not self.result.people:
            raise Unavailable("the server publishes no policy", field="--url", remedy="look at its log")
        self.is_over = not may_fill
        return old

    def _join_version(self, body: bytes) -> Participation:
        """Take part in a new version: note its round and facts, and what its policy is expected to earn."""
        participation = Participation(body, self.wire.name, LIMITS, self.cohort, is_paused=self.wire.is_paused)
        environment = self._ensure_environment(participation)
        self.result.versions += 1
        self.result.rounds += participation.round.batch_size > 0
        self.result.endpoint = participation.round.endpoint
        self.result.facts = environment.facts(participation.policy)
        no_contexts = environment.contexts(self.result.people, 0, self.rng)
        decisions = participation.decide(encode_contexts(no_contexts, participation.spec), participation.draw_coins(0))
        if isinstance(decisions, Plays):
            expected_rewards = environment.play(decisions, no_contexts)
            self.result.add(expected_rewards, expected_rewards.expected)
        return participation

    def _ensure_environment(self, participation: Participation) -> Environment:
        """Make the environment at the first version; refuse later versions with other arms."""
        if self.environment is None:
            population = self.population or default_environment(participation.spec)
            self.environment = environment_for(participation.spec, self.seed, population)
            self._options = participation.spec.options
        if participation.spec.options != self._options:
            detail = "an arm was added while people took part, and they are simulated for the others"
            raise Conflict(detail, field="NAME", remedy="start the load again")
        return self.environment


class Interruption(KeyboardInterrupt):
    """The interruption of a run by Ctrl-C; ``result`` is its partial result."""

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
    on_start: Callable[[], None] = lambda: None,
    on_progress: Callable[[LoadResult], None] = lambda _: None,
) -> LoadResult:
    """Simulate participants of an experiment over HTTP; only shuffled reports need the shuffler.

    users: the number of participants; the rest of a drawn population never answers. None: those whom the horizon still
        invites, or the whole population.
    population, cohort: None is the default population of the experiment; empty, its own source.
    sender_key: file of a private key that the services trust with several participants' reports at once.
    attestation_secret: the secret that the issuer of upload tokens shares with the application's backend.
    on_start, on_progress: called once the population is known to be compatible; after each upload, with the result.
    """
    console = Console(stderr=True)
    columns = (TextColumn("people"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    sender = read_signing_key(sender_key, "--sender-key") if sender_key else None

    async def drive() -> tuple[LoadResult, bool]:
        start, is_complete = time.perf_counter(), True
        async with Wire.open(name, server, shuffler, concurrency, sender, issuer, attestation_secret) as wire:
            driver = Driver(wire, population, seed, cohort)

            def advance(n_participants: int) -> None:
                bar.advance(task, n_participants)
                on_progress(driver.result)

            try:
                await driver.run(users, concurrency, batch, advance, on_start)
            except asyncio.CancelledError:  # by Ctrl-C
                is_complete = False
            driver.result.seconds = time.perf_counter() - start
            if is_complete:
                await driver.wait_until_counted()
        return driver.result, is_complete

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("people", total=users)
        try:
            result, is_finished = asyncio.run(drive())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    if not is_finished:
        raise Interruption(result) if result.people else KeyboardInterrupt
    return result
