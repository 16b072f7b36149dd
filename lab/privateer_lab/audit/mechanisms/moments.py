"""Attacks on a curator's releases that choose features: as a whole, and part by part."""

import math
from dataclasses import replace
from itertools import permutations
from typing import Any, Final

import numpy as np

from privateer_core.accounting.events import Choice
from privateer_core.mechanisms.screened_moments import GRID, Moments, ScreenedMoments
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import SecondMoments
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, noise_part, outcome_part
from privateer_lab.audit.law import Law, NormalLaw
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import Coins, Maker, Target, mechanism_case, model_of, releases

_ARMS, _FEATURES = 2, 4
_DELTA = 1e-6
_BEYOND = 9.0
"""Values are so far beyond the box: protection must not depend on what an application hands over."""
_OTHERS = 40
"""Others, whom the adversary knows: a person moves scores of opposite signs only if there is something to move."""
_EPSILON: Final = 3.0
"""The epsilon of a choice that is attacked: large enough to prove that half the noise breaks it."""
_CHOICES, _BOTH, _BLOCKS = 3_000, 2_000, 1_000
_PART_FEATURES: Final = 5
_FAR: Final = 60
"""People who decide a choice that is not attacked: so many make it certain."""
_PREDICTED: Final = (-512, 0)
"""Half a value less than nothing of everybody, so that a person moves a score by half as much again."""
_FINE: Final = 16.0
_SPREAD: Final = 2.0
"""Standard deviations of its noise by which neighbours move a kind of number."""
_WIDTH: Final = 5
"""Numbers in a row of the block: arm, two kept features, a chosen one, and the value."""
_UPPER: Final = np.triu_indices(_WIDTH)


def moment_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Return attacks on choices and blocks, by scores alone, and less what is predicted.

    factor: divides the noise: a planted defect.
    """
    box = Ball("max", 1.0, _ARMS + _FEATURES + 1)
    cases = []
    for name, kept, screened, predicted in (
        ("block of moments", (0, 2), 0, ()),
        ("choice and block", (0,), 2, ()),
        ("choice of the rest", (0,), 1, (0.2, -0.1, 0.3)),
    ):
        question = SecondMoments(box, arms=_ARMS, kept=kept, screened=screened, predicted=predicted)
        mechanism = ScreenedMoments.calibrated(question, 1.0, _DELTA)
        made = mechanism if factor == 1.0 else mechanism.weaker(factor)
        target = Target(made, (_person(1.0), _person(-1.0)), _person(1.0, 1.0), _OTHERS)
        case = mechanism_case(name, releases, target, (1.0, _DELTA), max(500, samples // 40))
        claim = mechanism.released
        assert claim is not None
        cases.append(replace(case, event=claim))
    return cases


def _person(value: float, sign: float = -1.0) -> Maker:
    """Return somebody whose features are at the ends of their bounds, each ``sign`` times the one before."""

    def make(coins: Coins) -> BoundedVectors:
        features = sign ** np.arange(_FEATURES)
        record = np.concatenate([[1.0, 0.0], features, [value]])
        return BoundedVectors(coins, np.tile(_BEYOND * record, (len(coins), 1)))

    return make


def moment_parts() -> list[MechanismPart]:
    """Return the parts of a release."""
    first, second = (_FAR + 2, _FAR + 1, 0, 0), (3 * _FAR, _FAR + 2, _FAR + 1, 0)
    return [
        _choice_part("the first of two choices", _mechanism(), first, 0),
        _choice_part("the second of two choices", _mechanism(), second, 1),
        _choice_part("a choice less what is predicted", _mechanism(1, _PREDICTED), first, 0),
        _both_part(),
        *_block_parts(),
    ]


def _mechanism(screened: int = 2, predicted: tuple[int, ...] = ()) -> ScreenedMoments:
    return ScreenedMoments(Ball("max", 1.0, 2 + _PART_FEATURES), 1, (0,), screened, predicted, _EPSILON, 1.0)


def _total(mechanism: ScreenedMoments, records: list[tuple[Any, float]]) -> Moments:
    """Return the sums of people, each with features and a value; all have the one arm."""
    made = np.array([[1.0, *features, value] for features, value in records])
    rows = mechanism.randomize(BoundedVectors(np.zeros(len(made), np.uint32), made), SecureNoise())
    return mechanism.add(mechanism.empty(), mechanism.parse(rows.tobytes()))


def _others(weights: tuple[int, ...]) -> list[tuple[Any, float]]:
    """Return everybody else: each candidate, a feature after the first, scores as so many people."""
    return [((0.0, *(float(k < weight) for weight in weights)), 1.0) for k in range(max(weights))]


def _choice_part(name: str, mechanism: ScreenedMoments, weights: tuple[int, ...], at: int) -> MechanismPart:
    """Return the choice between two close candidates, whose scores a person moves apart as far as a person can.

    Their difference goes from 3/4 of the range of losses to -1/4 of it: there half the noise proves most.
    """
    features = np.zeros(_PART_FEATURES)
    features[[at + 1, at + 2]] = 1.0, -1.0
    totals = [_total(mechanism, [*_others(weights), (sign * features, 1.0)]) for sign in (1.0, -1.0)]
    outcomes, order = _sequences(mechanism, totals)
    ends, alone = np.array(order)[:, at], np.zeros((2, _PART_FEATURES))
    np.add.at(alone.T, ends, outcomes.chances.T)

    def score(seen: Integers) -> Scores:
        return Outcomes(alone).score(ends[seen])

    part = _sequence_part(name, mechanism, totals, outcomes, order, Choice(4 * mechanism._most / mechanism.scale))
    return replace(part, score=score)


def _both_part() -> MechanismPart:
    """Return two choices among three likely candidates: neither may follow from the other's randomness."""
    mechanism = _mechanism()
    totals = [_total(mechanism, [*_others((2, 1, 1, 0)), ((0.0, 1.0, sign, 0.0, 0.0), 1.0)]) for sign in (1.0, 0.0)]
    outcomes, order = _sequences(mechanism, totals)
    return replace(_sequence_part("both choices together", mechanism, totals, outcomes, order, None), count=_BOTH)


def _sequences(mechanism: ScreenedMoments, totals: list[Moments]) -> tuple[Outcomes, list[tuple[int, ...]]]:
    """Return the exact chances of what may be chosen, one after the other."""
    order = list(permutations(mechanism.candidates.tolist(), mechanism.screened))
    return Outcomes(np.array([[_chance(mechanism, total, chosen) for chosen in order] for total in totals])), order


def _chance(mechanism: ScreenedMoments, total: Moments, chosen: tuple[int, ...]) -> float:
    scores = mechanism.scores(total) / mechanism.scale
    left, chance = mechanism.candidates.tolist(), 1.0
    for one in chosen:
        chance /= sum(math.exp(scores[other] - scores[one]) for other in left)
        left.remove(one)
    return chance


def _sequence_part(
    name: str,
    mechanism: ScreenedMoments,
    totals: list[Moments],
    outcomes: Outcomes,
    order: list[tuple[int, ...]],
    event: Choice | None,
) -> MechanismPart:
    places = {chosen: k for k, chosen in enumerate(order)}

    def observe(who: int, count: int) -> Integers:
        made = (mechanism.release(totals[who], SecureNoise()).chosen.tolist() for _ in range(count))
        return np.array([places[tuple(chosen)] for chosen in made])

    return outcome_part(name, mechanism, model_of(releases), "choose", observe, outcomes, _CHOICES, event)


def _block_parts() -> list[MechanismPart]:
    """Return each kind of number in the block as a part; the choice before them is certain."""
    found = []
    for name, own in _kinds().items():
        made = _block_mechanism(1.0)
        kept = _noise(made, own).event
        found.append(_block_part(name, _block_mechanism(kept.sensitivity / _SPREAD), own))  # type: ignore[union-attr]
    return found


def _block_mechanism(deviation: float) -> ScreenedMoments:
    return ScreenedMoments(Ball("max", 1.0, 2 + _PART_FEATURES), 1, (0, 1), 1, (), _FINE, deviation)


def _kinds() -> dict[str, tuple[int, ...]]:
    row, column = _UPPER
    last = _WIDTH - 1
    of = {
        "squares of coordinates": (row == column) & (row < last),
        "products of coordinates": (row < column) & (column < last),
        "products with the value": (row < column) & (column == last),
        "the square of the value": row == last,
    }
    return {f"block, {name}": tuple(np.flatnonzero(here).tolist()) for name, here in of.items()}


def _block_totals(mechanism: ScreenedMoments) -> list[Moments]:
    """Return sums in which all have the third feature, and the person has all features and the value, or nothing."""
    others = [((0.0, 0.0, 1.0, 0.0, 0.0), 1.0)] * _FAR
    return [_total(mechanism, [*others, (np.full(_PART_FEATURES, end), end)]) for end in (1.0, 0.0)]


def _noise(mechanism: ScreenedMoments, own: tuple[int, ...]) -> Noise:
    exact = np.array([mechanism.block(total, [2])[_UPPER] for total in _block_totals(mechanism)])
    laws: tuple[Law, ...] = tuple(NormalLaw(float(one)) for one in _certified(mechanism)[_UPPER])
    return Noise(laws, own, exact)


def _certified(mechanism: ScreenedMoments) -> Scores:
    """Return the standard deviations that the proof asks for; those that the mechanism computes are attacked."""
    lengths = np.append(np.full(_WIDTH - 1, math.sqrt(1 + len(mechanism.kept) + mechanism.screened)), 1.0)
    twice = np.where(np.eye(_WIDTH, dtype=bool), math.sqrt(2), 1.0)
    return np.asarray(mechanism.standard_deviation * GRID**2 * np.outer(lengths, lengths) * twice)


def _block_part(name: str, mechanism: ScreenedMoments, own: tuple[int, ...]) -> MechanismPart:
    totals, noise = _block_totals(mechanism), _noise(mechanism, own)

    def observe(who: int, count: int) -> Integers:
        made = (mechanism.release(totals[who], SecureNoise()).moments[_UPPER] for _ in range(count))
        return np.asarray(np.rint(np.array(list(made)) * GRID**2), np.int64)

    sampler = "RoundedNormal.draw"
    return noise_part(name, mechanism, model_of(releases), sampler, observe, noise, _BLOCKS)
