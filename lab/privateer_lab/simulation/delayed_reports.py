"""Simulations with delayed reports, which go to the round that is open when they are due."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Self, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.errors import RoundClosed
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Arms, Points, Policy
from privateer_core.primitives.contributions import merge_releases
from privateer_core.privacy.trust import TRUST, NoiseOrigin
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, parse_population
from privateer_lab.environments.environment import Delay
from privateer_lab.simulation.scores import SeededNoise, encode_contexts, scale_rewards
from privateer_lab.simulation.simulation import Simulation, draw_coins, draw_tiers_if_any
from privateer_server.rounds.earlier_policies import shares_by_policy
from privateer_server.rounds.schedule import PolicyMix, Step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DelayedReports:
    """Pending reports of n participants who have chosen."""

    due: Array  # shape (n,): when each reports, in participants who have arrived
    # of each participant: encoded context, (n, columns), coins, arm, its points, (n, points, d), scaled reward or
    # rewards, and the version of the deciding policy
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
        """The participants' decisions."""
        return Points(self.arms, self.points) if self.points.shape[1] else Arms(self.arms)

    def select(self, indices: NDArray[Any]) -> Self:
        """Return a subset by index."""
        return type(self)(*(values[indices] for values in vars(self).values()))

    def append(self, other: Self) -> Self:
        """Return these reports followed by others."""
        return type(self)(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))


class LateSimulation(Simulation):
    """A simulation with delays, whose time counts arrivals; ``n_lost`` reports before the end were in no round."""

    def __init__(self, spec: Spec, seed: int, environment: Environment | None = None) -> None:
        super().__init__(spec, seed, environment=environment)
        delay = find_report_delay(spec)
        assert delay is not None, "the spec has one"
        self.delay, self.now, self.n_lost = delay, 0.0, 0
        self._opening_times: list[float] = [0.0]
        self._policies: list[Any] = [self.step.policy]
        self._next_delays = np.zeros(0)
        self.pending = self._simulate_choices(self.step.policy, self._next_delays)

    def close_round(self) -> None:
        """Simulate until the round is full, and open the next; if too few report, they are lost, the policy stays."""
        step = self.step
        if not step.policy.cohort:
            self._drop_refused(step.policy)
            self._simulate_until_closed(step)
            if len(self.pending) < step.batch_size:
                self.n_lost += len(self.pending)
                self.pending = self.pending.select(np.arange(0))
                self.step = self.schedule.open_next_step(
                    step.state, step.policy.version + 1, self._seed(), is_inviting=False
                )
                return
        super().close_round()
        self._opening_times.append(self.now)
        self._policies.append(self.step.policy)

    def find_deciding_policies(self, step: Step) -> PolicyMix:
        """Return the expected share of reports on each policy's decisions, from the distribution of delays alone."""
        if step.policy.cohort or not step.policy.is_mixture:
            return ()
        positions = [index for index, policy in enumerate(self._policies) if not policy.cohort]
        opened = [self._opening_times[index] for index in positions]
        planned = self._count_planned(step.policy)
        ends = float(planned) if self.people >= planned else np.inf
        shares = shares_by_policy(opened, self._opening_times[-1], self.now, self.delay.cumulative_probability, ends)
        return [(self._policies[index], float(share)) for index, share in zip(positions, shares, strict=True) if share]

    def release(self, step: Step) -> Any:
        """Draw the release of a round; participants of sources report on the past without delay."""
        if step.policy.cohort:
            return super().release(step)
        order = np.argsort(self.pending.due, kind="stable")
        reporting, self.pending = (
            self.pending.select(order[: step.batch_size]),
            self.pending.select(order[step.batch_size :]),
        )
        return self._draw_release(step.policy, reporting)

    def _drop_refused(self, policy: Policy) -> None:
        """Drop reports that the round does not accept, which are not sent and cost nothing."""
        is_accepted = {
            int(version): policy.accepts_decisions_of(int(version)) for version in np.unique(self.pending.decided)
        }
        is_kept = np.array([is_accepted[version] for version in self.pending.decided.tolist()], bool)
        self.n_lost += len(is_kept) - int(is_kept.sum())
        self.pending = self.pending.select(np.flatnonzero(is_kept))

    def _simulate_until_closed(self, step: Step) -> None:
        """Simulate choices until the round's last report is due."""
        n_left = self._count_planned(step.policy) - self.people
        while True:
            coming = self._next_delays[:n_left]
            due_times = np.sort(np.concatenate([self.pending.due, self.people + np.arange(len(coming)) + coming]))
            closes = due_times[step.batch_size - 1] if len(due_times) >= step.batch_size else np.inf
            if self.people + len(coming) > closes or len(coming) == n_left:
                break
            n_more = min(n_left - len(coming), max(step.batch_size, len(coming)))
            self._next_delays = np.append(self._next_delays, self.delay.draw(n_more, self.rng))
        n_new = int(np.clip(np.floor(closes - self.people) + 1, 0, len(coming))) if np.isfinite(closes) else n_left
        n_previous = self.people
        delays, self._next_delays = coming[:n_new], self._next_delays[n_new:]
        self.pending = self.pending.append(self._simulate_choices(step.policy, n_previous + np.arange(n_new) + delays))
        if np.isfinite(closes):
            self.now = max(self.now, float(closes))

    def _count_planned(self, policy: Policy) -> int:
        """Return how many participants choose until a policy's rounds are over; those who measure gains come last."""
        table = self.spec.experiment
        return table.horizon if isinstance(policy, GainPolicy) else self.spec.learning.experiment.horizon

    def _simulate_choices(self, policy: Any, due_times: Array) -> DelayedReports:
        """Simulate the choice of a participant for each time at which a report is due."""
        raw = self.environment.contexts(self.people, len(due_times), self.rng)
        coins = draw_coins(self.rng, len(due_times))
        contexts = encode_contexts(raw, self.spec)
        decisions = policy.decide(contexts, coins)
        rewards = self.environment.rewards(raw, decisions, self.rng)
        self._count(len(due_times), decisions, self.environment.play(decisions, raw), rewards)
        decided = np.full(len(due_times), policy.version)
        points = decisions.points if isinstance(decisions, Points) else np.zeros((len(due_times), 0, 0))
        values = scale_rewards(rewards, self.spec, self.environment.before(raw, tuple(self.spec.reward.covariates)))
        return DelayedReports(due_times, contexts, coins, decisions.arms, points, values, decided)

    def _draw_release(self, policy: Any, reporting: DelayedReports) -> Any:
        """Simulate the release of reports made by several policies; a curator adds its noise once."""
        mechanism = cast(Any, policy.terms.mechanism)
        batches = self._contributions_by_policy(policy, reporting)
        if TRUST[policy.terms.model].noise is NoiseOrigin.DEVICES or (len(batches) == 1 and not mechanism.continues):
            return reduce(
                merge_releases, (analyzer.simulate(mechanism, batch, self.rng) for analyzer, batch in batches)
            )
        # A curator adds its noise once, to all parts.
        seeded, total = SeededNoise(self.rng), mechanism.start_total_after(*self.carried_total)
        for analyzer, batch in batches:
            total = mechanism.merge(total, analyzer.tally(mechanism, mechanism.randomize(batch, seeded).tobytes()))
        return self.release_total(mechanism, total, seeded)

    def _contributions_by_policy(self, policy: Any, reporting: DelayedReports) -> list[tuple[Any, Any]]:
        """Return contributions by deciding policy, if the round distinguishes policies."""
        coins = draw_coins(self.rng, len(reporting)) if policy.has_fresh_coins else reporting.coins
        versions = np.unique(reporting.decided) if policy.tells_age else [policy.version]
        by_version = {deciding_policy.version: deciding_policy for deciding_policy in self._policies}
        contributions = []
        for version in versions:
            rows = np.flatnonzero(reporting.decided == version) if policy.tells_age else np.arange(len(reporting))
            reports = reporting.select(rows)
            contribution = policy.contribute(reports.contexts, coins[rows], reports.decisions, reports.rewards)
            contribution = draw_tiers_if_any(policy, contribution, self.rng)
            contributions.append((policy.make_analyzer(by_version[int(version)]), contribution))
        return contributions

    @override
    def count_refused(self) -> dict[str, int]:
        return {RoundClosed.slug: self.n_lost} if self.n_lost else {}

    @override
    def facts(self) -> dict[str, float]:
        """Return the run's facts, and the number of reports that no round accepted."""
        return super().facts() | {"lost": self.n_lost}


_DAY_SECONDS: Final = 86_400


def expected_pending(spec: Spec) -> float:
    """Return the people expected in the population's delay, or else in the conversion window; 0 if it is unknown."""
    section = parse_population(spec)
    if section is None or section.delay is not None or not section.late or _have_repeat_visits(spec):
        return 0.0
    return spec.experiment.n_choices_in_window or 0.0


def find_report_delay(spec: Spec) -> Delay | None:
    """Return the delay of simulated reports, the population's or that of the window; None without a delay."""
    section = parse_population(spec)
    if section is not None and section.delay is not None:
        return section.delay
    waiting = expected_pending(spec)
    return Delay(law="fixed", mean=waiting) if waiting else None


def describe_assumptions(spec: Spec) -> list[str]:
    """Describe the simulation's assumptions about tiers and about a conversion window; empty without both."""
    pairs = zip(spec.privacy.tier_names, spec.privacy.tier_shares, strict=False)
    shares = [f"{share:.0%} {f'{name!r} at ' if name else ''}epsilon {epsilon:g}" for name, (epsilon, share) in pairs]
    tiers = [f"People take tiers by privacy.tiers.share: {', '.join(shares)}."] if shares else []
    return tiers + _describe_window(spec)


def _describe_window(spec: Spec) -> list[str]:
    """Describe the simulation's assumption about a conversion window; empty without one."""
    section, window = parse_population(spec), spec.experiment.conversion_window_seconds
    if section is None or not window:
        return []
    days = window / _DAY_SECONDS
    time = f"{days:,.3g} {'day' if days == 1 else 'days'}"
    text = f"Devices report {time} after choosing (experiment.conversion_window_seconds)."
    if section.delay is not None:
        return [f"{text} Simulated reports come as late as population.delay says instead."]
    if not section.late:
        return [f"{text} A round waits for its people, so that costs time and no regret; it is not simulated."]
    if _have_repeat_visits(spec):
        return [f"{text} That is not simulated where people come back: reports come at once, and regret looks lower."]
    arrivals = spec.experiment.arrivals_per_day
    if arrivals is None:
        return [
            f"{text} Nobody can know how many people choose in between, and what that costs. Reports are simulated at "
            "once: regret looks lower than it will be. Set experiment.arrivals_per_day to the people you expect a day."
        ]
    pending = f"{expected_pending(spec):,.0f}"
    return [
        f"{text} At experiment.arrivals_per_day = {arrivals:g} people a day, {pending} choose in between: "
        f"population.delay is fixed at {pending} people."
    ]


def _have_repeat_visits(spec: Spec) -> bool:
    return isinstance(spec, ArmsSpec) and spec.experiment.reports_per_person > 1
