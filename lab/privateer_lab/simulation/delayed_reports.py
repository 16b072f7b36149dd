"""People who report some time after they have chosen, to the round that is open then."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Self, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.errors import RoundClosed
from privateer_core.policies.decisions import Arms, Points
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.primitives.contributions import merged
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, population_of
from privateer_lab.environments.environment import Delay
from privateer_lab.simulation.devices import SeededNoise, scaled, scaled_rewards
from privateer_lab.simulation.simulation import Simulation
from privateer_server.rounds.late_reports import shares_by_policy
from privateer_server.rounds.loop import Decided, Step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DelayedReports:
    """People who have chosen and not yet reported, n of them."""

    due: Array  # shape (n,): when each reports, in people who have come
    # what each keeps: encoded context, (n, columns), coins, arm, points of it, (n, points, d), scaled reward or
    # rewards, and the version that decided
    contexts: Array
    coins: NDArray[np.uint32]
    arms: NDArray[np.int64]
    points: Array
    rewards: Array
    decided: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.due)

    @property
    def decisions(self) -> Arms:
        """What was decided for them."""
        return Points(self.arms, self.points) if self.points.shape[1] else Arms(self.arms)

    def at(self, places: NDArray[Any]) -> Self:
        """Return those at some places."""
        return type(self)(*(values[places] for values in vars(self).values()))

    def and_(self, others: Self) -> Self:
        """Return all together."""
        return type(self)(
            *(np.concatenate(pair) for pair in zip(vars(self).values(), vars(others).values(), strict=True))
        )


class LateSimulation(Simulation):
    """A simulation with delays. Time is counted in people who have come.

    now: the time.
    lost: reports that no round took. A rest that reports after the last round is out of reach instead.
    """

    def __init__(self, spec: Spec, seed: int, environment: Environment | None = None) -> None:
        super().__init__(spec, seed, one_by_one=True, environment=environment)
        delay = delay_of(spec)
        assert delay is not None, "the spec has one"
        self.delay = delay
        self.now, self.lost = 0.0, 0
        self._opened: list[float] = [0.0]
        self._policies: list[Any] = [self.step.policy]
        self._ahead = np.zeros(0)
        self.waiting = self._chosen(self.step.policy, self._ahead)

    def close_round(self) -> None:
        """Have people choose and report until the open round has its reports, and open the next one.

        If so many do not come, the last policy stands and what was reported to the open round is lost.
        """
        step = self.step
        if not step.policy.cohort:
            self._forget(step.policy)
            self._wait_for(step)
            if len(self.waiting) < step.batch:
                self.lost += len(self.waiting)
                self.waiting = self.waiting.at(np.arange(0))
                self.step = self.schedule.follow(step.state, step.policy.version + 1, self._seed(), asks=False)
                return
        super().close_round()
        self._opened.append(self.now)
        self._policies.append(self.step.policy)

    def decided(self, step: Step) -> Decided:
        """Return how many reports are expected on the decisions of each policy, from the law of the delays alone."""
        if step.policy.cohort or not step.policy.mixes:
            return ()
        own = [place for place, policy in enumerate(self._policies) if not policy.cohort]
        opened = [self._opened[place] for place in own]
        planned = self._planned(step.policy)
        ends = float(planned) if self.people >= planned else np.inf
        shares = shares_by_policy(opened, self._opened[-1], self.now, self.delay.at_most, ends)
        return [(self._policies[place], float(share)) for place, share in zip(own, shares, strict=True) if share]

    def release(self, step: Step) -> Any:
        """Draw the release of a round; people of sources report on the past at once."""
        if step.policy.cohort:
            return super().release(step)
        order = np.argsort(self.waiting.due, kind="stable")
        reporting, self.waiting = self.waiting.at(order[: step.batch]), self.waiting.at(order[step.batch :])
        return self._released(step.policy, reporting)

    def _forget(self, policy: Policy) -> None:
        """Drop reports that the round does not take: nothing is sent, and nothing is paid."""
        taken = {int(version): policy.takes(int(version)) for version in np.unique(self.waiting.decided)}
        kept = np.array([taken[version] for version in self.waiting.decided.tolist()], bool)
        self.lost += len(kept) - int(kept.sum())
        self.waiting = self.waiting.at(np.flatnonzero(kept))

    def _wait_for(self, step: Step) -> None:
        """Have people choose until the round's last report comes."""
        left = self._planned(step.policy) - self.people
        while True:
            coming = self._ahead[:left]
            due = np.sort(np.concatenate([self.waiting.due, self.people + np.arange(len(coming)) + coming]))
            closes = due[step.batch - 1] if len(due) >= step.batch else np.inf
            if self.people + len(coming) > closes or len(coming) == left:
                break
            more = min(left - len(coming), max(step.batch, len(coming)))
            self._ahead = np.append(self._ahead, self.delay.draw(more, self.rng))
        choosing = int(np.clip(np.floor(closes - self.people) + 1, 0, len(coming))) if np.isfinite(closes) else left
        first = self.people
        delays, self._ahead = coming[:choosing], self._ahead[choosing:]
        self.waiting = self.waiting.and_(self._chosen(step.policy, first + np.arange(choosing) + delays))
        if np.isfinite(closes):
            self.now = max(self.now, float(closes))

    def _planned(self, policy: Policy) -> int:
        """Return how many people choose until a policy's rounds are over: who measures the gain comes last."""
        table = self.spec.experiment
        return table.horizon if isinstance(policy, GainPolicy) else self.spec.learning.experiment.horizon

    def _chosen(self, policy: Any, due: Array) -> DelayedReports:
        """Have as many people choose now as there are times at which they report."""
        raw = self.environment.contexts(self.people, len(due), self.rng)
        coins = self.rng.integers(0, 2**32, len(due), dtype=np.uint32)
        contexts = scaled(raw, self.spec)
        decisions = policy.decide(contexts, coins)
        rewards = self.environment.rewards(raw, decisions, self.rng)
        self._count(len(due), decisions, self.environment.play(decisions, raw), rewards)
        decided = np.full(len(due), policy.version)
        points = decisions.points if isinstance(decisions, Points) else np.zeros((len(due), 0, 0))
        values = scaled_rewards(rewards, self.spec, self.environment.before(raw, tuple(self.spec.reward.adjust)))
        return DelayedReports(due, contexts, coins, decisions.arms, points, values, decided)

    def _released(self, policy: Any, reporting: DelayedReports) -> Any:
        """Draw what is released of these people's reports."""
        mechanism = cast(Any, policy.terms.mechanism)
        parts = self._parts(policy, reporting)
        if not TRUST[policy.terms.model].curated or (len(parts) == 1 and not mechanism.continues):
            return reduce(merged, (analyzer.simulate(mechanism, made, self.rng) for analyzer, made in parts))
        # A curator adds its noise once, to all parts.
        seeded, total = SeededNoise(self.rng), mechanism.resume(*self.left)
        for analyzer, made in parts:
            total = mechanism.merge(total, analyzer.tally(mechanism, mechanism.randomize(made, seeded).tobytes()))
        return self.settle(mechanism, total, seeded)

    def _parts(self, policy: Any, reporting: DelayedReports) -> list[tuple[Any, Any]]:
        """Return what people contribute, by the policies whose decisions must be told apart."""
        coins = reporting.coins
        if policy.fresh_coins:
            coins = self.rng.integers(0, 2**32, len(reporting), dtype=np.uint32)
        versions = np.unique(reporting.decided) if policy.tells_age else [policy.version]
        by_version = {one.version: one for one in self._policies}
        parts = []
        for version in versions:
            some = np.flatnonzero(reporting.decided == version) if policy.tells_age else np.arange(len(reporting))
            few = reporting.at(some)
            made = policy.contribute(few.contexts, coins[some], few.decisions, few.rewards)
            parts.append((policy.analyzer(by_version[int(version)]), made))
        return parts

    @override
    def refused(self) -> dict[str, int]:
        return {RoundClosed.slug: self.lost} if self.lost else {}

    @override
    def facts(self) -> dict[str, float]:
        """Return what the run has found, and the reports that no round took."""
        return super().facts() | {"lost": self.lost}


_DAY: Final = 86_400


def waiting_of(spec: Spec) -> float:
    """Return how many people choose in the spec's conversion window; 0 where nobody knows, or none is simulated.

    The population's ``delay`` is what it says, whatever the window.
    """
    section = population_of(spec)
    if section is None or section.delay is not None or not section.late or _return(spec):
        return 0.0
    return spec.experiment.waiting or 0.0


def delay_of(spec: Spec) -> Delay | None:
    """Return the delay of simulated reports, the population's or that of the window; None: they come at once."""
    section = population_of(spec)
    if section is not None and section.delay is not None:
        return section.delay
    waiting = waiting_of(spec)
    return Delay(law="fixed", mean=waiting) if waiting else None


def assumed(spec: Spec) -> list[str]:
    """Say what a simulation assumes about a conversion window; nothing without one."""
    section, window = population_of(spec), spec.experiment.conversion_window
    if section is None or not window:
        return []
    days = window / _DAY
    said = f"Devices report {days:,.3g} {'day' if days == 1 else 'days'} after choosing (experiment.conversion_window)."
    if section.delay is not None:
        return [f"{said} Simulated reports come as late as population.delay says instead."]
    if not section.late:
        return [f"{said} A round waits for its people, so that costs time and no regret; it is not simulated."]
    if _return(spec):
        return [f"{said} That is not simulated where people come back: reports come at once, and regret looks lower."]
    arrivals = spec.experiment.arrivals
    if arrivals is None:
        unknown = (
            "Nobody can know how many people choose in between, and what that costs. Reports are simulated at once:"
        )
        remedy = "regret looks lower than it will be. Set experiment.arrivals to the people you expect a day."
        return [f"{said} {unknown} {remedy}"]
    waiting = f"{waiting_of(spec):,.0f}"
    return [
        f"{said} At experiment.arrivals = {arrivals:g} people a day, {waiting} choose in between: population.delay is "
        f"fixed at {waiting} people."
    ]


def _return(spec: Spec) -> bool:
    return isinstance(spec, ArmsSpec) and spec.experiment.reports_per_person > 1
