"""Simulated people of an experiment with arms, over HTTP."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.errors import Unavailable
from privateer.population import Population as PopulationSpec
from privateer_client.participation import Participation
from privateer_lab.environments import Population, population_for
from privateer_lab.load.limits import LIMITS, Progress
from privateer_lab.load.wire import TRIES, Wire


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


class PeopleDriver:
    """People in groups of one upload, some groups at a time, each following the newest policy."""

    def __init__(self, wire: Wire, population: PopulationSpec, seed: int, cohort: str) -> None:
        self.wire, self.cohort = wire, cohort
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

    async def run(self, users: int, concurrency: int, batch: int, progress: Progress) -> LoadResult:
        """Have ``users`` people take part, ``batch`` an upload."""
        self.left = users
        await self._follow(None)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._work(batch, progress))
        finally:
            self._finish()
        return self.result

    async def _work(self, batch: int, progress: Progress) -> None:
        while self.left > 0:
            part = self._current()
            if part.waits or (part.asks and self.room <= 0):
                await self._follow(part)
                continue
            people = min(batch, self.left, self.room if part.asks else batch)
            self.left -= people
            self.room -= people
            await self._group(people)
            progress(people)

    async def _group(self, people: int) -> None:
        part = self._current()
        contexts, slots, arms, rewards = self._play(part, people)
        if not part.asks:
            self.result.refused["not-asked"] += people
            return
        sealed = b"".join(
            part.recorded(contexts, arms, rewards) if self.cohort else part.reports(contexts, slots, arms, rewards)
        )
        accepted, refused = await self.wire.send(part.header, sealed, people, part.round.model)
        self.result.accepted += accepted
        self.result.refused.update(refused)
        if refused.get("round-closed") or refused.get("round-unknown"):
            await self._follow(part)

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

    async def _follow(self, old: Participation | None) -> None:
        """Fetch the policy; after ``old``, wait until it is another, or until the round must have lost reports."""
        async with self.fetching:
            if self.part is not old:
                return
            for attempt in range(TRIES):
                body = await self.wire.fetch(old.header.digest if old else None)
                if body is not None:
                    self._join(body)
                    return
                if old is not None and self.room <= 0:
                    # Reports that were refused or lost left room in the round.
                    self.room = old.round.batch
                    return
                await asyncio.sleep(min(1.0, 0.02 * 2**attempt))
            raise Unavailable("the server publishes no policy", field="--url", remedy="look at its log")

    def _join(self, body: bytes) -> None:
        self.part = Participation(body, self.wire.name, LIMITS, self.cohort)
        self.room = self.part.round.batch
        self.result.versions += 1
        if self.people is None:
            spec = self.part.spec.model_copy(update={"population": self.wanted})
            self.people = population_for(spec, self.seed)

    def _finish(self) -> None:
        if not self.by_arm.size:
            return
        self.result.uniform_regret = self.best - float(self.by_arm.mean())
        self.result.best_constant_regret = self.best - float(np.max(self.by_arm))
