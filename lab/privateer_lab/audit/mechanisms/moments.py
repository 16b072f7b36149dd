"""Attacks on a curator's releases that choose features, and on their parts."""

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
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, build_part
from privateer_lab.audit.law import Law, NormalLaw, Scores
from privateer_lab.audit.views import Coins, Contributor, Target, attack_releases, mechanism_case, model_for

_ARMS, _FEATURES = 2, 4
_DELTA = 1e-6
_BOX_FACTOR = 9.0
"""Size of values in bounds of the box: protection must not depend on the application's values."""
_N_OTHERS = 40
"""Number of other participants, whom the adversary knows; without them scores of opposite signs do not change."""
_EPSILON: Final = 3.0
"""Epsilon of an attacked choice, so large that half the noise is proved broken."""
_N_DRAWS, _N_PAIRS, _N_BLOCKS = 3_000, 2_000, 1_000
_PART_FEATURES: Final = 5
_N_DECIDERS: Final = 60
"""Participants who make a choice certain that is not attacked."""
_PREDICTED_HALF: Final = (-512, 0)
"""Predicted values of minus one half, so that a participant changes a score by half as much again."""
_CHOICE_EPSILON: Final = 16.0
_N_DEVIATIONS: Final = 2.0
"""Difference of neighbours in a kind of number, in standard deviations of its noise."""
_BLOCK_SIZE: Final = 5
"""Numbers in a row of the block: arm, two kept features, a chosen one, and the value."""
_UPPER: Final = np.triu_indices(_BLOCK_SIZE)


def moment_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Build attacks on choices and on blocks, predictions subtracted; ``factor`` divides the noise, as a defect."""
    box = Ball("max", 1.0, _ARMS + _FEATURES + 1)
    cases = []
    for name, kept_features, screened, predicted in (
        ("block of moments", (0, 2), 0, ()),
        ("choice and block", (0,), 2, ()),
        ("choice of the rest", (0,), 1, (0.2, -0.1, 0.3)),
    ):
        question = SecondMoments(box, arms=_ARMS, kept_features=kept_features, screened=screened, predicted=predicted)
        mechanism = ScreenedMoments.calibrated(question, 1.0, _DELTA)
        weakened = mechanism if factor == 1.0 else mechanism.with_less_noise(factor)
        target = Target(
            weakened,
            (_make_contributor(1.0), _make_contributor(-1.0)),
            _make_contributor(1.0, 1.0),
            _N_OTHERS,
        )
        case = mechanism_case(name, attack_releases, target, (1.0, _DELTA), max(500, samples // 40))
        claim = mechanism.release_event
        assert claim is not None
        cases.append(replace(case, event=claim))
    return cases


def _make_contributor(value: float, sign: float = -1.0) -> Contributor:
    """Build the contributor whose features are at their bounds, each ``sign`` times the feature before it."""

    def make_contribution(coins: Coins) -> BoundedVectors:
        features = sign ** np.arange(_FEATURES)
        record = np.concatenate([[1.0, 0.0], features, [value]])
        return BoundedVectors(coins, np.tile(_BOX_FACTOR * record, (len(coins), 1)))

    return make_contribution


def moment_parts() -> list[MechanismPart]:
    """Return the parts of a release."""
    first, second = (_N_DECIDERS + 2, _N_DECIDERS + 1, 0, 0), (3 * _N_DECIDERS, _N_DECIDERS + 2, _N_DECIDERS + 1, 0)
    return [
        _choice_part("the first of two choices", _make_mechanism(), first, 0),
        _choice_part("the second of two choices", _make_mechanism(), second, 1),
        _choice_part("a choice less what is predicted", _make_mechanism(1, _PREDICTED_HALF), first, 0),
        _joint_choice_part(),
        *_block_parts(),
    ]


def _make_mechanism(screened: int = 2, predicted: tuple[int, ...] = ()) -> ScreenedMoments:
    return ScreenedMoments(Ball("max", 1.0, 2 + _PART_FEATURES), 1, (0,), screened, predicted, _EPSILON, 1.0)


def _sum_records(mechanism: ScreenedMoments, records: list[tuple[Any, float]]) -> Moments:
    """Return the sums of participants with these features and values, who all have the one arm."""
    values = np.array([[1.0, *features, value] for features, value in records])
    rows = mechanism.randomize(BoundedVectors(np.zeros(len(values), np.uint32), values), SecureNoise())
    return mechanism.add(mechanism.empty(), mechanism.parse(rows.tobytes()))


def _make_crowd(weights: tuple[int, ...]) -> list[tuple[Any, float]]:
    """Return the records of other participants, who give each candidate feature its weight as score."""
    return [((0.0, *(float(k < weight) for weight in weights)), 1.0) for k in range(max(weights))]


def _choice_part(name: str, mechanism: ScreenedMoments, weights: tuple[int, ...], index: int) -> MechanismPart:
    """Return the choice between two close candidates as a part; the target changes their scores as much as possible.

    Their difference goes from 3/4 of the range of losses to -1/4 of it: there half the noise proves most.
    """
    features = np.zeros(_PART_FEATURES)
    features[[index + 1, index + 2]] = 1.0, -1.0
    totals = [_sum_records(mechanism, [*_make_crowd(weights), (sign * features, 1.0)]) for sign in (1.0, -1.0)]
    order, sequence_probabilities = _sequence_probabilities(mechanism, totals)
    ends, probabilities = np.array(order)[:, index], np.zeros((2, _PART_FEATURES))
    np.add.at(probabilities.T, ends, sequence_probabilities.T)

    def score(sequences: Integers) -> Scores:
        return Outcomes(probabilities).score(ends[sequences])

    part = _build_sequence_part(name, mechanism, totals, Choice(4 * mechanism._max_score / mechanism.scale))
    return replace(part, score=score)


def _joint_choice_part() -> MechanismPart:
    """Return two choices among three likely candidates as a part: their randomness must be independent."""
    mechanism = _make_mechanism()
    totals = [
        _sum_records(mechanism, [*_make_crowd((2, 1, 1, 0)), ((0.0, 1.0, sign, 0.0, 0.0), 1.0)]) for sign in (1.0, 0.0)
    ]
    return replace(_build_sequence_part("both choices together", mechanism, totals, None), count=_N_PAIRS)


def _sequence_probabilities(mechanism: ScreenedMoments, totals: list[Moments]) -> tuple[list[tuple[int, ...]], Scores]:
    """Return all sequences of choices, and their exact probabilities, (2, sequences)."""
    order = list(permutations(mechanism.candidates.tolist(), mechanism.screened))
    return order, np.array([[_sequence_probability(mechanism, total, chosen) for chosen in order] for total in totals])


def _sequence_probability(mechanism: ScreenedMoments, total: Moments, chosen: tuple[int, ...]) -> float:
    """Compute the probability that the mechanism picks these candidates in this order."""
    scores = mechanism.score_features(total) / mechanism.scale
    remaining, probability = mechanism.candidates.tolist(), 1.0
    for candidate in chosen:
        probability /= sum(math.exp(scores[other] - scores[candidate]) for other in remaining)
        remaining.remove(candidate)
    return probability


def _build_sequence_part(
    name: str, mechanism: ScreenedMoments, neighbour_totals: list[Moments], event: Choice | None
) -> MechanismPart:
    """Build the test of the sampler that picks a sequence of candidates."""
    order, probabilities = _sequence_probabilities(mechanism, neighbour_totals)
    indices, outcomes = {chosen: k for k, chosen in enumerate(order)}, Outcomes(probabilities, event)

    def observe(neighbour: int, count: int) -> Integers:
        choices = (mechanism.release(neighbour_totals[neighbour], SecureNoise()).chosen.tolist() for _ in range(count))
        return np.array([indices[tuple(chosen)] for chosen in choices])

    return build_part(name, mechanism, model_for(attack_releases), "draw_choice", observe, outcomes, _N_DRAWS)


def _block_parts() -> list[MechanismPart]:
    """Return each kind of number in the block as a part, after a certain choice."""
    parts = []
    for name, tested in _block_kinds().items():
        mechanism = _block_mechanism(1.0)
        event = _block_noise(mechanism, tested).event
        parts.append(_block_part(name, _block_mechanism(event.sensitivity / _N_DEVIATIONS), tested))  # type: ignore[union-attr]
    return parts


def _block_mechanism(standard_deviation: float) -> ScreenedMoments:
    return ScreenedMoments(Ball("max", 1.0, 2 + _PART_FEATURES), 1, (0, 1), 1, (), _CHOICE_EPSILON, standard_deviation)


def _block_kinds() -> dict[str, tuple[int, ...]]:
    """List the kinds of coordinates of a block of moments, with their indices in its upper triangle."""
    row, column = _UPPER
    last = _BLOCK_SIZE - 1
    masks = {
        "squares of coordinates": (row == column) & (row < last),
        "products of coordinates": (row < column) & (column < last),
        "products with the value": (row < column) & (column == last),
        "the square of the value": row == last,
    }
    return {f"block, {name}": tuple(np.flatnonzero(mask).tolist()) for name, mask in masks.items()}


def _block_totals(mechanism: ScreenedMoments) -> list[Moments]:
    """Return sums of others with the third feature, and a target with all features and the value, or with zeros."""
    others = [((0.0, 0.0, 1.0, 0.0, 0.0), 1.0)] * _N_DECIDERS
    return [_sum_records(mechanism, [*others, (np.full(_PART_FEATURES, end), end)]) for end in (1.0, 0.0)]


def _block_noise(mechanism: ScreenedMoments, tested: tuple[int, ...]) -> Noise:
    exact = np.array([mechanism.select_block(total, [2])[_UPPER] for total in _block_totals(mechanism)])
    laws: tuple[Law, ...] = tuple(NormalLaw(float(sigma)) for sigma in _certified_deviations(mechanism)[_UPPER])
    return Noise(laws, tested, exact)


def _certified_deviations(mechanism: ScreenedMoments) -> Scores:
    """Return the standard deviations that the proof requires, against which the mechanism's own are tested."""
    lengths = np.append(np.full(_BLOCK_SIZE - 1, math.sqrt(1 + len(mechanism.kept) + mechanism.screened)), 1.0)
    factors = np.where(np.eye(_BLOCK_SIZE, dtype=bool), math.sqrt(2), 1.0)
    return np.asarray(mechanism.standard_deviation * GRID**2 * np.outer(lengths, lengths) * factors)


def _block_part(name: str, mechanism: ScreenedMoments, tested: tuple[int, ...]) -> MechanismPart:
    """Build the test of the noise in the tested coordinates of a block of moments."""
    totals, noise = _block_totals(mechanism), _block_noise(mechanism, tested)

    def observe(neighbour: int, count: int) -> Integers:
        moments = (mechanism.release(totals[neighbour], SecureNoise()).moments[_UPPER] for _ in range(count))
        return np.asarray(np.rint(np.array(list(moments)) * GRID**2), np.int64)

    sampler = "RoundedNormal.draw"
    return build_part(name, mechanism, model_for(attack_releases), sampler, observe, noise, _N_BLOCKS)
