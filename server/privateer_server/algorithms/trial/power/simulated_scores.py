"""The power of a trial whose shares of arms adapt: its statistics are simulated, look by look, in many runs at once.

Formulas take shares as planned. Where an allocation rule starves an arm, that arm's estimate stays as poor as few
people make it. Here normal numbers take the place of hits; everything after them, weights, scores, allocation and
boundaries, is what the learner itself uses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import override

from privateer_server.algorithms.trial.allocation import allocated
from privateer_server.algorithms.trial.confidence_sequence import ConfidenceSequence
from privateer_server.algorithms.trial.evidence.averages import average
from privateer_server.algorithms.trial.evidence.epochs import (
    Epoch,
    PlannedEpoch,
    TrialDesign,
    common_weights,
    contrast_variances,
)
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.value_sums import PlannedValues
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, information
from privateer_server.algorithms.trial.treatment_effects import half_widths, weight_of

Array = NDArray[np.float64]

RUNS: Final = 2000
"""Simulated trials: a power of .8 has a standard error of .009; three such, about a line, find an effect."""
_ROUGH: Final = 300
"""Trials of each step of a search for where to look closely."""
_ROWS: Final = 64_000
"""Most segments that all trials have together; fewer trials are simulated where each has many."""
_FEWEST: Final = 200
_HALVINGS: Final = 5
_LARGEST: Final = 1e4
_AROUND: Final = (0.88, 1.0, 1.14)
"""Between these multiples of what the rough search finds, the normal quantile of the power is close to a line."""
_SEED: Final = 5


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """A trial before its first person, in plain numbers, equal to another with the same: a cache knows it."""

    # rule, floor: how shares adapt, and the least share of an arm
    rule: str
    floor: float
    rate: float  # mean reward under the control, in (0, 1)
    design: TrialDesign  # level, people and shares planned; every segment of it is simulated
    epochs: tuple[PlannedEpoch, ...]  # as their mechanisms will be calibrated
    strict: bool = False  # whether intervals are those of a confidence sequence
    # the part of people who are asked about everybody, as about one segment, where some are
    everybody: "AdaptivePlan | None" = None
    waiting: float = 0.0  # how many of these people choose between somebody's choice and the report on it

    @property
    def _key(self) -> tuple[object, ...]:
        design = self.design
        arrays = (tuple(design.arms.tolist()), tuple(design.segments.tolist()))
        facts = (design.alpha, design.people, design.counted, design.hit, self.strict, self.waiting)
        beside = self.everybody._key if self.everybody else ()
        return (self.rule, self.floor, self.rate, *facts, *arrays, self.epochs, beside)

    @override
    def __hash__(self) -> int:
        return hash(self._key)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdaptivePlan) and self._key == other._key

    def of(self, share: float) -> "AdaptivePlan":
        """Return the plan for one segment of this share alone."""
        return replace(self, design=replace(self.design, segments=np.array([share])), everybody=None)

    def larger(self, times: float) -> "AdaptivePlan":
        """Return the plan with so many times the people, who randomize as they do."""
        epochs = tuple(replace(epoch, people=epoch.people * times) for epoch in self.epochs)
        beside = self.everybody.larger(times) if self.everybody else None
        design = replace(self.design, people=self.design.people * times)
        return replace(self, design=design, epochs=epochs, everybody=beside)

    @property
    def times(self) -> tuple[float, ...]:
        """Information fractions of the looks."""
        return information(np.cumsum([epoch.people for epoch in self.epochs]), self.design.people)


@dataclass(frozen=True)
class SimulatedScores:
    """Scores of simulated trials at every look, and what the trials cost."""

    # times, alpha: information fractions of the looks, and the level
    times: tuple[float, ...]
    alpha: float
    # segments, average: shape (looks, runs, J, K) and (looks, runs, K)
    segments: Array
    average: Array
    half_widths: Array  # shape (runs, J, K), of intervals at the end; nan where there is none
    # mean reward that people did not get for want of the best arm of their segment, of all of a trial together
    lost: float

    def power(self, scores: Array) -> Array:
        """Return the share of the runs, axis 0 of what follows the looks, that cross a boundary at some look."""
        return np.asarray(self._crossed(scores).any(axis=0).mean(axis=0))

    def decided(self, scores: Array) -> Array:
        """Return the mean share of the people after which a boundary is crossed; all where none is."""
        crossed = self._crossed(scores)
        ends = np.array(self.times)[crossed.argmax(axis=0)]
        return np.asarray(np.where(crossed.any(axis=0), ends, 1.0).mean(axis=0))

    def _crossed(self, scores: Array) -> NDArray[np.bool_]:
        critical = critical_values(self.times, self.alpha)
        return np.asarray(np.abs(np.nan_to_num(scores)) > critical.reshape(-1, *(1,) * (scores.ndim - 1)))


def simulated(plan: AdaptivePlan, effects: Array, runs: int = RUNS, seed: int = _SEED) -> SimulatedScores:
    """Simulate the statistics of a plan.

    effects (J, K): of the treatments, on the scale of rewards from 0 to 1. Two calls with one seed use the same normal
        numbers.
    """
    size, treatments = effects.shape
    design = replace(plan.design, segments=np.tile(plan.design.segments, runs))
    means = np.concatenate([np.zeros((size, 1)), effects], axis=1) + plan.rate
    rates, rng = np.tile(np.clip(means, 0.0, 1.0), (runs, 1)), np.random.default_rng(seed)
    evidence, common, line = (
        TrialEvidence.begin(design),
        Sums.none(design),
        ConfidenceSequence.begin(design) if plan.strict else None,
    )
    shares, dropped = np.tile(design.arms, (len(rates), 1)), np.zeros(rates.shape, bool)
    averages, crossed, policies, lost = [], [], [shares], 0.0
    for look, planned in enumerate(plan.epochs):
        decided = _decided(plan, look)
        mixed = np.asarray(sum(part * policies[version] for version, part in enumerate(decided) if part))
        epoch = replace(_drawn(design, planned, rates, mixed, rng), trials=runs)
        evidence = evidence.add(epoch)
        missed = rates.max(axis=1) - (mixed * rates).sum(axis=1)
        lost += planned.people * float(design.segments @ missed) / runs
        if line:
            line = line.add(epoch)
            crossed.append(np.where(line.p_value <= design.alpha, np.inf, 0.0))
        if size > 1:
            common = common.add(epoch, _weights(design, epoch, runs))
            averages.append(_average(common, design, runs))
        if planned is not plan.epochs[-1]:
            dropped, shares = allocated(evidence, dropped, plan.rule, plan.floor, runs)
            policies.append(shares)
    scores = (np.array(crossed) if crossed else evidence.scores).reshape(-1, runs, size, treatments)
    average = np.array(averages) if averages else scores[:, :, 0]
    widths = half_widths(evidence).reshape(runs, size, treatments)
    found = SimulatedScores(plan.times, design.alpha, scores, average, widths, lost)
    return _joined(plan, plan.everybody, found, effects, seed + 1) if plan.everybody else found


def _decided(plan: AdaptivePlan, look: int) -> Array:
    """Return which part of an epoch's reports each policy so far decided, (look + 1,).

    Report i in the order of choices has the last policy that was there when i people less those waiting had reported.
    """
    ends = np.cumsum([0.0, *(epoch.people for epoch in plan.epochs)])
    begins = ends[: look + 1] + plan.waiting * (np.arange(look + 1) > 0)
    there = np.clip([*begins, np.inf], ends[look], ends[look + 1])
    return np.asarray(np.diff(there) / (ends[look + 1] - ends[look]))


def _joined(
    plan: AdaptivePlan, beside: AdaptivePlan, summed: SimulatedScores, effects: Array, seed: int
) -> SimulatedScores:
    """Add the scores of people who are asked about everybody to those of the sum over segments, as a look does."""
    whole = plan.design.segments @ effects / plan.design.segments.sum()
    direct = simulated(beside, whole[None], summed.average.shape[1], seed)
    weight = weight_of(TrialEvidence.begin(plan.design), TrialEvidence.begin(beside.design))
    average = np.asarray(np.sqrt(weight) * direct.average + np.sqrt(1 - weight) * summed.average)
    return replace(summed, average=average, lost=summed.lost + direct.lost)


def _drawn(design: TrialDesign, planned: PlannedEpoch, rates: Array, shares: Array, rng: np.random.Generator) -> Epoch:
    """Draw the hits of an epoch, with the means and variances of counts."""
    n, p = planned.people, design.segments[:, None]
    if design.counted:
        likely = planned.keep * p * rates + planned.other
        likely_not = planned.keep * p * (1 - rates) + planned.other
    else:
        # Hits are public slots: others' answers are as often positive as negative.
        likely = design.hit / 2 + planned.keep * p * (rates - 0.5)
        likely_not = design.hit - likely
    if planned.values:
        return _drawn_values(
            planned, planned.values, shares, (planned.keep * p, likely, likely + likely_not), rates, rng
        )
    positive, negative = (
        n * shares * part + np.sqrt(n * shares * part + planned.noise) * rng.standard_normal(rates.shape)
        for part in (likely, likely_not)
    )
    return Epoch(n, positive, positive + negative, planned.keep, planned.other, planned.noise, shares)


def _drawn_values(
    planned: PlannedEpoch,
    told: PlannedValues,
    shares: Array,
    hit: tuple[Array, Array, Array],
    rates: Array,
    rng: np.random.Generator,
) -> Epoch:
    """Draw how many hits there are, what their values sum up to, and squares that tell the variance planned.

    Noise of a curator is drawn in what hits count above their mean; that of their number hardly matters beside it.

    hit: per person: a segment's own hits, the sum of values, and all hits.
    """
    own, value, each = hit
    many, mean, spread = planned.people * shares * each, value / each, told.hit_variance(own, each, rates)
    hits = np.maximum(many + np.sqrt(many + told.parts.count * planned.noise) * rng.standard_normal(many.shape), 1.0)
    varied = np.sqrt(many * spread + planned.noise * told.parts.noise_about(mean))
    values = hits * mean + varied * rng.standard_normal(many.shape)
    facts = (planned.keep, planned.other, planned.noise, shares)
    return Epoch(planned.people, values, hits, *facts, hits * spread + np.square(values) / hits, told.parts)


def _weights(design: TrialDesign, epoch: Epoch, runs: int) -> Array:
    """Return the weights of an epoch in sums over the segments of each run."""
    planned, actual = contrast_variances(design, epoch)
    planned = np.broadcast_to(planned, actual.shape)
    found = common_weights(_across(planned, runs), _across(actual, runs))
    size, treatments = len(found), planned.shape[1]
    return np.asarray(found.reshape(size, runs, treatments).swapaxes(0, 1).reshape(actual.shape))


def _average(sums: Sums, design: TrialDesign, runs: int) -> Array:
    """Return scores of average effects, (runs, K)."""
    beside = sums.changed(lambda rows: _across(rows, runs))
    return average(beside, design).scores.reshape(runs, -1)


def _across(rows: Array, runs: int) -> Array:
    """Return rows (runs J, K, ...), the segments of each run, as (J, runs K, ...): runs side by side."""
    apart = rows.reshape(runs, -1, *rows.shape[1:]).swapaxes(0, 1)
    return apart.reshape(len(apart), -1, *rows.shape[2:])


@lru_cache(maxsize=256)
def least_effect(plan: AdaptivePlan, arm: int, power: float, guess: float) -> float:
    """Return the least effect of one treatment alone that is found with this probability.

    It is one upwards; downwards only where rewards cannot rise so far.

    plan: of one segment. Of several the average effect is meant, where all have the same effect.
    arm: the treatment, from 0.
    guess: what formulas find for planned shares.

    Returns
    -------
    The effect's size, on the scale of rewards from 0 to 1; infinite if neither rewards of 1 nor of 0 are told from
    those of the control.
    """

    def least(sign: int, most: float) -> float:
        return _solved(
            lambda effect, runs: _found(plan, arm, sign * effect, runs)[0], power, guess / 2, most, runs_of(plan)
        )

    upwards = least(1, 1 - plan.rate)
    return upwards if np.isfinite(upwards) else least(-1, plan.rate)


def people_times(plan: AdaptivePlan, arm: int, power: float, effect: float, guess: float) -> float:
    """Return how many times the people it takes to find an effect with this probability; infinite if above 10,000."""

    def found(times: float, runs: int) -> float:
        return _found(plan.larger(times), arm, effect, runs)[0]

    return _solved(found, power, guess / 4, max(_LARGEST, guess), runs_of(plan))


@lru_cache(maxsize=256)
def power_of(plan: AdaptivePlan, arm: int, effect: float) -> tuple[float, float]:
    """Return the probability that an effect is found, and the mean share of the people until it is.

    One plan is simulated here and three in a search: with twice the trials the standard error is .006.
    """
    return _found(plan, arm, effect, 2 * runs_of(plan))


def runs_of(plan: AdaptivePlan) -> int:
    """Return how many trials are simulated."""
    return max(_FEWEST, min(RUNS, _ROWS // len(plan.design.segments)))


def _solved(found: Callable[[float, int], float], power: float, low: float, most: float, runs: int) -> float:
    """Return where a rising probability is ``power``, from ``low`` or less to ``most``; infinite if it is nowhere."""
    low = high = min(low, most)
    while found(high, _ROUGH) < power:
        if high >= most:
            return float("inf")
        low, high = high, min(2 * high, most)
    low = low if low < high else high / 8
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if found(middle, _ROUGH) >= power else (middle, high)
    at = np.minimum(high * np.array(_AROUND), most)
    quantiles = ndtri(np.clip([found(float(one), runs) for one in at], 0.5 / runs, 1 - 0.5 / runs))
    if quantiles[-1] <= quantiles[0]:
        return float(high)
    slope, start = np.polyfit(np.log(at), quantiles, 1)
    solved = float(np.exp((ndtri(power) - start) / slope))
    return solved if solved <= most else float("inf")


def _found(plan: AdaptivePlan, arm: int, effect: float, runs: int) -> tuple[float, float]:
    effects = np.zeros((len(plan.design.segments), len(plan.design.arms) - 1))
    effects[:, arm] = effect
    found = simulated(plan, effects, runs)
    return float(found.power(found.average)[arm]), float(found.decided(found.average)[arm])
