"""What learns in a bandit without context (paper 2), in rounds."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, layout
from privateer_core.coins import UNIT
from privateer_core.contributions import CellHits, KeyedSums
from privateer_core.result import Estimate, Ground, Result
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Learner, Step, must_agree
from privateer_server.algorithms.bandit.rules import (
    PER_REWARD,
    Evidence,
    kl_ucb,
    proxy,
    thompson,
    track,
    tsallis,
)

Array = NDArray[np.float64]
_THE_SAME: Final = ("algorithm", "experiment.arms", "experiment.retired", "reward")
_DRAWS: Final = 64
"""Draws of a batch's Thompson sampling: an arm has at least so small a share of a round, or none. A curator's noise is
the same for every share, so that a smaller one would tell nothing."""
_DRAWS_HIDDEN: Final = 16
"""Where reports hide the arm, what they say of a small share grows with its square."""


@dataclass(frozen=True)
class BanditState:
    """Rounds that were learned from, people who reported, and what they said; and whether the best arm is known."""

    rounds: int
    heard: int
    evidence: Evidence
    stopped: bool = False


class BanditLearner:
    """Rounds of whose people a share plays each arm."""

    state_type = BanditState
    repeats: ClassVar[bool] = False
    publishes_result: ClassVar[bool] = True
    growth: ClassVar[tuple[str, str]] = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: BanditSpec) -> None:
        self.spec = spec
        self.playable = np.array(spec.playable)
        self.finds_best = spec.algorithm.objective == "best-arm"

    def start(self, _seed: int) -> BanditState:
        """Return the state before any report."""
        return BanditState(0, 0, Evidence.none(self.spec.arm_count))

    def next(self, state: BanditState, version: int, seed: int) -> Step:
        """Return the next round: what did not open takes nobody's place."""
        batch = 0 if state.stopped else self.spec.turn("", state.heard).batch
        if not batch:
            return self.last(state, version, seed)
        choice = layout(seed, self.shares(state, batch, seed))
        terms = calibrate(self.spec.privacy, batch, self.spec.asked(choice))
        own = choice if self.spec.privacy.arm_in_key else None
        return Step(state, BanditPolicy(version, terms, own), batch, state.heard)

    def last(self, state: BanditState, version: int, seed: int) -> Step:
        """Return the step that asks nobody: everybody gets the arm of the highest estimate."""
        choice = layout(seed, np.eye(self.spec.arm_count)[self.leader(state)])
        terms = nobody_asked(self.spec.privacy, self.spec.asked(choice))
        return Step(state, BanditPolicy(version, terms, choice), 0, state.heard)

    def leader(self, state: BanditState) -> int:
        """Return the arm of the highest estimate."""
        return int(np.argmax(np.where(self.playable, state.evidence.means, -np.inf)))

    def shares(self, state: BanditState, batch: int, seed: int) -> Array:
        """Return the share of a round's people who play each arm; alike before anything is known of one."""
        evidence = state.evidence
        if not evidence.precision[self.playable].all():
            return np.asarray(self.playable / self.playable.sum())
        if self.finds_best:
            return track(evidence, self.playable, self.leader(state), batch)
        if self.spec.algorithm.host == "kl-ucb":
            return kl_ucb(evidence, self.playable, state.heard, batch)
        if self.spec.algorithm.host == "tsallis-inf":
            return self._tsallis(state, batch)
        draws = _DRAWS_HIDDEN if self.spec.privacy.arm_in_key else _DRAWS
        left = self.spec.experiment.horizon - state.heard
        return thompson(evidence, self.playable, draws, left, seed)

    def _tsallis(self, state: BanditState, batch: int) -> Array:
        """The learning rate is for losses as faint as reports make them: 2 / (c sqrt(t))."""
        evidence, people = state.evidence, state.heard + batch
        faint = math.sqrt(PER_REWARD * evidence.people.sum() / evidence.precision.sum())
        hidden = self.spec.privacy.arm_in_key
        least = 1 / (self.playable.sum() * people ** (1 / 3)) if hidden else 1 / UNIT
        return tsallis(evidence.losses, self.playable, 2 / (faint * math.sqrt(people)), least)

    def learn(self, state: BanditState, policy: BanditPolicy, release: KeyedSums | CellHits) -> BanditState:
        """Return the state with a round's release counted in."""
        shares = policy.layout.shares[0]
        people, sums, asked, hits = _of_keys(policy, release) if policy.fresh_coins else _of_groups(release)
        scores = release.gain * np.maximum(people, 1.0)
        proxies = asked * np.array([proxy(math.ceil(1000 * hit) / 1000) for hit in hits.tolist()])
        heavy = 1 if policy.terms.delta else 2  # Laplace noise has a heavier tail than normal noise
        precision, told = (
            np.where(people > 0, PER_REWARD * scores**2 / np.maximum(variance, 1.0), 0.0)
            for variance in (proxies + heavy * release.noise, asked * hits + release.noise)
        )
        losses = -sums / (2 * release.gain * np.maximum(shares, 1 / UNIT))
        evidence = state.evidence.and_(people, precision, told, (1 + sums / scores) / 2, losses)
        return self._after(state, evidence, release.reports)

    def _after(self, state: BanditState, evidence: Evidence, reports: int) -> BanditState:
        stopped = self.finds_best and self.sure(evidence)
        return replace(state, rounds=state.rounds + 1, heard=state.heard + reports, evidence=evidence, stopped=stopped)

    def sure(self, evidence: Evidence) -> bool:
        """Whether the best arm is known but for the failure that the spec allows."""
        return bool((evidence.lead(self.playable, self.spec.algorithm.failure)[1] > 0).all())

    def miss(self, state: BanditState, _policy: BanditPolicy, *, again: bool) -> BanditState:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: BanditState) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def changed(self, state: BanditState, before: BanditSpec) -> BanditState:
        """Return the state under the learner's spec: a longer horizon, and other arms where regret counts.

        Raises
        ------
        SpecError
            If arms differ, and what was learned is about all of them together.
        """
        if self.finds_best or self.spec.algorithm.host == "tsallis-inf":
            must_agree(before, self.spec, ("experiment.arms", "experiment.retired"))
        added = self.spec.arm_count - before.arm_count
        return replace(state, evidence=state.evidence.wider(added)) if added else state

    def begun(self, state: BanditState, before: BanditSpec) -> BanditState:
        """Return the state of a new experiment with the same arms: evidence stays, people count anew."""
        must_agree(before, self.spec, _THE_SAME)
        return replace(state, rounds=0, heard=0)

    def result(self, state: BanditState) -> Result | None:
        """Return every arm's mean reward with an interval that holds at all times, and the best one once it is known.

        Where regret counts the leader is recommended when the experiment is over.
        """
        if not state.heard:
            return None
        low, width = self.spec.reward.low, 2 * self.spec.reward.half_range
        means, radii = state.evidence.means, state.evidence.radii(self.spec.algorithm.failure)
        ends = [low + width * np.clip(value, 0.0, 1.0) for value in (means, means - radii, means + radii)]
        rows = zip(self.spec.options, *(values.tolist() for values in ends), strict=True)
        over = state.stopped or not self.spec.turn("", state.heard).batch
        best = self.leader(state) if state.stopped or (over and not self.finds_best) else None
        return Result(
            tuple(Estimate(*row) for row in rows),
            1 - self.spec.algorithm.failure,
            None if best is None else self.spec.options[best],
            over,
            ground=None if best is None else self._ground(best, means - radii, means + radii, known=state.stopped),
            ended=("its rule" if state.stopped else "its horizon") if over else None,
        )

    def _ground(self, best: int, low: Array, high: Array, *, known: bool) -> Ground:
        """Return what it rests on that an arm is best; intervals hold together, so one above all others is decided."""
        others = self.playable & (np.arange(len(low)) != best)
        apart = known or bool(low[best] > high[others].max(initial=-np.inf))
        return "decided against all other options" if apart else "ahead, and not decided"

    def describe(self, state: BanditState) -> dict[str, Any]:
        """Describe a state as JSON: the mean reward of every arm, from 0 to 1, and the people who told of it."""
        evidence = state.evidence
        rows = zip(self.spec.options, evidence.means.tolist(), evidence.people.tolist(), strict=True)
        arms = {name: {"mean": round(mean, 4), "people": round(people, 1)} for name, mean, people in rows}
        return {"rounds": state.rounds, "heard": state.heard, "stopped": state.stopped, "arms": arms}

    def figures(self, state: BanditState) -> dict[str, float]:
        """Return the people who reported, and whether the best arm is known."""
        return {"samples": state.heard, "stopped": float(state.stopped)}

    def bulk(self, first: Step) -> list[Bulk]:
        """Return the largest round."""
        return [Bulk(self.spec.largest_batch(), 1, first.policy.terms.mechanism.report_size)]


def _of_groups(release: Any) -> tuple[Array, ...]:
    """Return people, sums, reports asked and the probability of a score in them, of each arm that coins chose."""
    people = release.counts[0].astype(np.float64)
    return people, release.sums[0], people, np.ones(len(people))


def _of_keys(policy: BanditPolicy, release: KeyedSums | CellHits) -> tuple[Array, ...]:
    """Return the same where the arm is the key: everybody was asked about every arm, and most had nothing to say."""
    shares = policy.layout.shares[0]
    told = shares[policy.cells] > 0
    people, sums = np.zeros((2, len(shares)))
    people[policy.cells[told]] = shares[policy.cells[told]] * release.reports
    sums[policy.cells[told]] = release.sums[told, 0]
    hits = shares * release.hit_own + (1 - shares) * release.hit_other
    return people, sums, np.full(len(shares), float(release.reports)), hits


def learner(spec: BanditSpec) -> Learner:
    """Return the learner that a spec names."""
    return BanditLearner(spec)
