"""The partition bandit, tight: one signed symbol a person, and posteriors that children inherit."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer.contributions import KeyedSums
from privateer.experiment import Spec, next_turn
from privateer.policies.partition import DEPTH_MAX, PartitionPolicy
from privateer.privacy.terms import calibrate
from privateer.slots import UNIT, Layout
from privateer_server.learners.cohorts import Estimates, inherited, pooled

_ROOT_VARIANCE: Final = 0.25
_EXPLORATION: Final = 0.5
"""Thompson sampling draws with this share of the posterior's standard deviation."""
_FLOOR: Final = 0.02
"""Least share of the slots for an active arm, so that no run is stuck on an unlucky start."""
_DROP: Final = 2.0
"""Standard deviations of a difference at which an arm is dropped (practical)."""
_BIAS_DROP: Final = 2.0
_SPLIT: Final = 0.25
_CHILD_SPREAD: Final = 1.2
_POOL: Final = 100.0
"""Reports with which the average over keys counts in a key's own share of scored reports."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


@dataclass(frozen=True)
class PartitionState:
    """What the server knows of the bins.

    Attributes
    ----------
    rounds, seen
        Closed rounds, and people who reported.
    depths, paths
        Shape (bins,): the bins, as in `PartitionPolicy`, in order.
    active
        Shape (bins, arms): arms not dropped yet.
    precision, moment
        Shape (bins, arms): posterior precision, and precision times mean, of mass * (2 mean reward - 1).
    heaviest
        Shape (bins,): largest weight that a single report has had in ``moment``, over arms.
    cohort
        Whose reports ``precision`` and ``moment`` are made of.
    earlier
        What earlier cohorts told; None if there were none. The estimates proper are `pooled` of both.
    """

    rounds: int
    seen: int
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    precision: NDArray[np.float64]
    moment: NDArray[np.float64]
    heaviest: NDArray[np.float64]
    cohort: str = ""
    earlier: Estimates | None = None

    @property
    def estimates(self) -> Estimates:
        """What is known from all cohorts."""
        own = Estimates(self.precision, self.moment)
        return own if self.earlier is None else pooled(own, self.earlier)


class PartitionLearner:
    """Algorithm 2 of paper 1 with public arms and one signed symbol (docs/learning.md explains the departures)."""

    state_type = PartitionState

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.proved = spec.algorithm.confidence == "proved"

    def start(self) -> PartitionState:
        """One bin, all arms."""
        arms = self.spec.arm_count
        prior = 0.0 if self.proved else 1.0 / _ROOT_VARIANCE
        return PartitionState(
            rounds=0,
            seen=0,
            depths=np.zeros(1, np.int64),
            paths=np.zeros(1, np.int64),
            active=np.ones((1, arms), bool),
            precision=np.full((1, arms), prior),
            moment=np.zeros((1, arms)),
            heaviest=np.zeros(1),
            cohort=next_turn(self.spec, None).cohort,
        )

    def policy(self, state: PartitionState, version: int, batch: int, seed: int, cohort: str = "") -> PartitionPolicy:
        """Bins with several active arms ask their people; slots are shared out by Thompson sampling.

        At the end (``batch`` 0) every bin plays its best arm.
        """
        active = state.active if batch else _best_only(state)
        bins = np.flatnonzero(active.sum(axis=1) > 1)
        # Of a source's people, those have something to tell whose arm their slot asks about.
        telling = float(self._behaviour(cohort).mean())
        undecided = telling * float((0.5 ** state.depths[bins]).sum())
        key_share = telling * float(np.max(0.5 ** state.depths[bins], initial=0.0))
        terms = calibrate(self.spec.privacy_of(cohort), batch or self.spec.privacy.min_batch, undecided, key_share)
        return PartitionPolicy(
            version=version,
            dimension=self.spec.dimension,
            depths=state.depths,
            paths=state.paths,
            active=active,
            bins=bins,
            layout=Layout(seed, self._thresholds(state, bins)),
            terms=replace(terms, batch=batch),
            cohort=cohort,
        )

    def _behaviour(self, cohort: str) -> NDArray[np.float64]:
        """Share of a source's people who played each arm, (arms,); 1 for people who play what their slot says."""
        source = self.spec.source(cohort)
        return np.ones(self.spec.arm_count) if source is None else np.array(source.shares, dtype=np.float64)

    def _thresholds(self, state: PartitionState, bins: NDArray[np.int64]) -> NDArray[np.uint32]:
        active = state.active[bins]
        if self.proved:
            shares = np.asarray(active / np.maximum(1, active.sum(axis=1, keepdims=True)), dtype=np.float64)
        else:
            known = state.estimates
            shares = best_chances(known.mean[bins], _EXPLORATION / np.sqrt(known.precision[bins]), active)
            spread = _FLOOR * active
            shares = np.asarray(spread + shares * (1 - spread.sum(axis=1, keepdims=True)), dtype=np.float64)
        edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
        # Rounding must not leave a slot to a dropped last arm.
        last = active.shape[1] - 1 - active[:, ::-1].argmax(axis=1)
        return np.where(np.arange(active.shape[1] - 1)[None, :] >= last[:, None], np.uint32(UNIT), edges)

    def learn(self, state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Update posteriors by inverse variance, drop arms, split bins.

        A source's estimates are in proportion to the share of its people who played the arm, eq. (26) with weights by
        inverse variance. Its people may be elsewhere than the experiment's own: their mass in a bin is common to the
        bin's arms, so differences of a cohort's estimates are scaled and do not turn. Levels of two cohorts are never
        compared: see `pooled`.
        """
        if policy.cohort != state.cohort:
            state = self._turned(state, policy.cohort)
        precision, moment, heaviest = state.precision.copy(), state.moment.copy(), state.heaviest.copy()
        variance = self._variance(release, policy.depths[policy.bins])[:, None]
        # A curator's noise is added once to a sum: a report bears its share of it.
        gain = release.gain * self._behaviour(policy.cohort)
        weight = gain / (variance + release.noise / np.maximum(1, release.counts))
        precision[policy.bins] += gain * weight * release.counts
        moment[policy.bins] += weight * release.sums
        heaviest[policy.bins] = np.maximum(heaviest[policy.bins], np.max(weight, axis=1, initial=0.0))
        state = replace(
            state,
            rounds=state.rounds + 1,
            seen=state.seen + release.reports,
            precision=precision,
            moment=moment,
            heaviest=heaviest,
        )
        state = replace(state, active=self._surviving(state))
        return self._split(state)

    def _turned(self, state: PartitionState, cohort: str) -> PartitionState:
        """The state as another cohort's turn finds it.

        Where it must be proved, estimates begin anew, and what was decided stands.
        """
        zero = np.zeros_like(state.precision)
        fresh = replace(state, cohort=cohort, precision=zero, moment=zero)
        if self.proved:
            return replace(fresh, heaviest=np.zeros_like(state.heaviest))
        return replace(fresh, earlier=state.estimates)

    def _variance(self, release: KeyedSums, depths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Variance of one report's score at each key: estimated from the hits, or bounded where it must be proved."""
        if self.proved:
            mass = self._mass(depths)
            return np.asarray(mass * max(0.0, release.hit_own - release.hit_other) + release.hit_other)
        if not len(depths):
            return np.ones(0)
        reports = max(1, release.reports)
        floor = max(release.hit_other / 4, 1 / reports)
        pooled = max(floor, float(release.hits.mean()) / reports)
        return np.asarray(np.maximum(floor, (release.hits + _POOL * pooled) / (release.reports + _POOL)))

    def _mass(self, depths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Share of people in bins of these depths: exact for uniform contexts, under ``proved`` an upper bound."""
        bound = self.spec.algorithm.density_bound if self.proved else 1.0
        return np.asarray(np.minimum(1.0, bound * 0.5**depths))

    def _surviving(self, state: PartitionState) -> NDArray[np.bool_]:
        """Active arms less those that another arm beats by more than chance and the bin's width explain."""
        known = state.estimates
        mean = known.mean
        if self.proved:
            radius = self._proved_radius(state)
            best = np.where(state.active, mean - radius, -np.inf).max(axis=1, keepdims=True)
            gap = best - (mean + radius)
        else:
            variance = 1 / known.precision
            leader = np.where(state.active, mean, -np.inf).argmax(axis=1)[:, None]
            spread = np.sqrt(variance + np.take_along_axis(variance, leader, axis=1))
            gap = np.take_along_axis(mean, leader, axis=1) - mean - _DROP * spread
        return np.asarray(state.active & ~(gap > self._bias(state.depths)[:, None]))

    def _bias(self, depths: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far two arms' differences may move within a bin, in units of the estimates."""
        d = self.spec.dimension
        if self.proved:
            levels = depths[:, None] + d - 1 - np.arange(d)[None, :]
            diameter = np.sqrt((0.25 ** (levels // d)).sum(axis=1))
            # 2 f - 1 moves by 2 L diameter per arm; a difference of two arms by twice that.
            return np.asarray(4 * self.spec.algorithm.lipschitz * diameter * self._mass(depths))
        return _BIAS_DROP * 2.0 ** (-depths / d) * self._mass(depths)

    def _proved_radius(self, state: PartitionState) -> NDArray[np.float64]:
        """Freedman's bound for a weighted sum of bounded martingale differences, by union over looks, bins and arms.

        The n-th round may spend failure * 6 / (pi n)^2, shared by the at most 2^depth bins of a depth and their arms;
        a bin of depth s gets the share 2^-(2s+1), which sums to at most 1 over a tree.
        """
        looks = self.spec.algorithm.failure * 6 / (math.pi * max(1, state.rounds)) ** 2
        share = looks * 0.5 ** (2.0 * state.depths + 1) / self.spec.arm_count
        log = np.log(2 / share)[:, None]
        precision = np.where(state.precision > 0, state.precision, 1.0)
        radius = np.sqrt(2 * log / precision) + 2 * log * state.heaviest[:, None] / (3 * precision)
        return np.where(state.precision > 0, radius, np.inf)

    def _split(self, state: PartitionState) -> PartitionState:
        """Halve undecided bins whose arms are known better than the bin is narrow."""
        if self.proved:
            radius = np.where(state.active, self._proved_radius(state), 0.0).max(axis=1)
            ready = 2 * radius < self._bias(state.depths)
        else:
            known = state.estimates
            leader = np.where(state.active, known.mean, -np.inf).argmax(axis=1)[:, None]
            precision = np.take_along_axis(known.precision, leader, axis=1)[:, 0]
            width = np.sqrt(2 / precision) / (2 * self._mass(state.depths))
            ready = width < _SPLIT * 2.0 ** (-state.depths / self.spec.dimension)
        ready &= (state.active.sum(axis=1) > 1) & (state.depths < DEPTH_MAX)
        return self._halved(state, ready) if ready.any() else state

    def _halved(self, state: PartitionState, ready: NDArray[np.bool_]) -> PartitionState:
        copies = np.repeat(np.arange(len(ready)), 1 + ready)
        fresh = ready[copies]
        second = np.concatenate([[False], copies[1:] == copies[:-1]])
        depths = state.depths[copies] + fresh
        paths = np.where(fresh, 2 * state.paths[copies] + second, state.paths[copies])
        own, earlier = self._inherited(state, copies, fresh, depths)
        return replace(
            state,
            depths=depths,
            paths=paths,
            active=state.active[copies],
            precision=own.precision,
            moment=own.moment,
            heaviest=np.where(fresh, 0.0, state.heaviest[copies]),
            earlier=earlier,
        )

    def _inherited(
        self, state: PartitionState, copies: NDArray[np.int64], fresh: NDArray[np.bool_], depths: NDArray[np.int64]
    ) -> tuple[Estimates, Estimates | None]:
        """Own and earlier estimates of bins of which the ``fresh`` are halves, with their new ``depths``."""
        own, new = Estimates(state.precision[copies], state.moment[copies]), fresh[:, None]
        if self.proved:
            return Estimates(np.where(new, 0.0, own.precision), np.where(new, 0.0, own.moment)), None
        before = own.precision if state.earlier is None else own.precision + state.earlier.precision[copies]
        scale = self._mass(depths) * 2.0 ** (-depths / self.spec.dimension)
        after = 1 / (1 / before / 4 + (_CHILD_SPREAD * scale[:, None]) ** 2)

        def halved(part: Estimates) -> Estimates:
            half = inherited(part, before, after)
            precision, moment = np.where(new, half.precision, part.precision), np.where(new, half.moment, part.moment)
            return Estimates(precision, moment)

        if state.earlier is None:
            return halved(own), None
        return halved(own), halved(Estimates(state.earlier.precision[copies], state.earlier.moment[copies]))

    def describe(self, state: PartitionState) -> dict[str, Any]:
        """The state for people: estimates of each active arm's mean reward with standard errors, bin by bin.

        The scale takes contexts for uniform; where they are not, read the order of the arms and not the distance.
        """
        mass = self._mass(state.depths)[:, None]
        low, high = self.spec.reward.low, self.spec.reward.high
        known = state.estimates
        error = np.sqrt(1 / np.where(known.precision > 0, known.precision, np.nan))
        means = low + (high - low) * (known.mean / mass + 1) / 2
        errors = (high - low) * error / mass / 2
        names = self.spec.experiment.arms
        rows = [
            {
                "depth": int(state.depths[b]),
                "path": int(state.paths[b]),
                "arms": {
                    names[k]: {"mean": _rounded(means[b, k]), "standard_error": _rounded(errors[b, k])}
                    for k in np.flatnonzero(state.active[b])
                },
            }
            for b in range(len(state.depths))
        ]
        return {"rounds": state.rounds, "seen": state.seen, "bins": rows}


def best_chances(
    mean: NDArray[np.float64], deviation: NDArray[np.float64], active: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Chance that each arm's independent normal draw is the largest, shape (bins, arms); rows sum to 1."""
    draws = mean[:, :, None] + deviation[:, :, None] * _NODES[None, None, :]
    below = np.ones_like(draws)
    for rival in range(mean.shape[1]):
        beaten = ndtr((draws - mean[:, rival, None, None]) / deviation[:, rival, None, None])
        beaten[:, rival] = 1.0
        below *= np.where(active[:, rival, None, None], beaten, 1.0)
    chances = (below @ _WEIGHTS) * active
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _best_only(state: PartitionState) -> NDArray[np.bool_]:
    best = np.where(state.active, state.estimates.mean, -np.inf).argmax(axis=1)
    return np.asarray(np.arange(state.active.shape[1])[None, :] == best[:, None])


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None
