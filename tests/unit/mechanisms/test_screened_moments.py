"""A participant's influence on the moments that a curator releases of selected features, and refused mechanisms."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from privateer_core.errors import OutOfRange, SpecError
from privateer_core.mechanisms.screened_moments import GRID, SENSITIVITY, ScreenedMoments
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import SecondMoments
from privateer_lab.simulation.scores import SeededNoise

ARMS, FEATURES = 2, 3
BOX = Ball("max", 1.0, ARMS + FEATURES + 1)
CORNERS = np.array(
    [
        [*np.eye(ARMS)[arm], *features, value]
        for arm in range(ARMS)
        for features in product((-1.0, 0.4, 1.0), repeat=FEATURES)
        for value in (-1.0, 0.3, 1.0)
    ]
)


def of_one(mechanism: ScreenedMoments, record: np.ndarray):
    return of_many(mechanism, record[None])


def of_many(mechanism: ScreenedMoments, records: np.ndarray):
    bounded_vectors = BoundedVectors(np.zeros(len(records), np.uint32), records)
    return mechanism.add(mechanism.empty(), mechanism.randomize(bounded_vectors, SeededNoise(0)))


def test_records_are_rounded_so_that_no_mean_moves() -> None:
    """Features and values of less than half a step count, in records and in simulated ones; false alarms: 1e-6."""
    mechanism = ScreenedMoments.without_noise(SecondMoments(BOX, arms=ARMS, kept_features=(0, 1, 2), screened=0))
    record = np.array([0.0, 1.0, 0.3 / GRID, -0.45 / GRID, 0.5, 0.7 / GRID])
    people = 40_000
    bounded_vectors = BoundedVectors(np.zeros(people, np.uint32), np.tile(record, (people, 1)))
    rows = mechanism.randomize(bounded_vectors, SeededNoise(1)).astype(float)
    assert np.abs(rows.mean(axis=0) / GRID - record).max() < 5.5 * 0.5 / people**0.5 / GRID
    assert (rows[:, :ARMS] == [0, GRID]).all()
    release = mechanism.release(of_many(mechanism, bounded_vectors.values), SeededNoise(1))
    for moments in (release.moments, mechanism.simulate(bounded_vectors, np.random.default_rng(2)).moments):
        off = ~np.eye(len(record), dtype=bool)
        steps = 0.5 / GRID * (np.abs(record)[:, None] + np.abs(record) + 1 / GRID)
        assert (np.abs(moments / people - np.outer(record, record))[off] <= 5.5 * (steps / people**0.5)[off]).all()


@pytest.mark.parametrize("chosen", [[], [1], [1, 2]])
def test_no_pair_of_people_is_farther_apart_than_the_sensitivity(chosen: list[int]) -> None:
    """The largest distance in standard deviations of the noise equals the claimed sensitivity."""
    screened_moments = ScreenedMoments(BOX, ARMS, (0,), len(chosen), (), 0.5 if chosen else 0.0, 2.0)
    upper = np.triu_indices(screened_moments.width + 1)
    blocks = (
        np.array([screened_moments.select_block(of_one(screened_moments, record), chosen)[upper] for record in CORNERS])
        / GRID**2
    )
    scaled = screened_moments.standard_deviation * blocks / np.sqrt(screened_moments.variances[upper])
    farthest = max(float(np.linalg.norm(scaled - row, axis=1).max()) for row in scaled)
    assert SENSITIVITY * 0.999 < farthest <= SENSITIVITY


@pytest.mark.parametrize("predicted", [(), (300, -512, 200)])
def test_scores_move_by_no_more_than_the_scale_has_room_for(predicted: tuple[int, ...]) -> None:
    """A feature may rise while another falls: twice a score's change, which is twice a record's."""
    screened_moments = ScreenedMoments(BOX, ARMS, (0,), 1, predicted, 0.5, 2.0)
    rng = np.random.default_rng(2)
    base = of_many(screened_moments, rng.choice([-1.0, 1.0], (60, BOX.coordinates)))
    totals = (base.merge_with(of_one(screened_moments, record)) for record in CORNERS)
    scores = np.array([screened_moments.score_features(total)[1:] for total in totals], np.int64)
    ranges = max(float(np.ptp(scores - row, axis=1).max()) for row in scores)
    max_change = 0.5 * screened_moments.scale
    assert 0.4 * max_change < ranges <= max_change


def test_scores_are_of_the_residual_after_prediction() -> None:
    """The residual of a value that equals a predicted feature is 0."""
    rng = np.random.default_rng(3)
    features = rng.choice([-1.0, 1.0], (400, FEATURES))
    records = np.column_stack([np.tile([1.0, 0.0], (400, 1)), features, 0.5 * features[:, 0] + 0.25 * features[:, 1]])
    plain = ScreenedMoments.without_noise(SecondMoments(BOX, arms=ARMS, kept_features=(0,), screened=1))
    predicted = ScreenedMoments.without_noise(
        SecondMoments(BOX, arms=ARMS, kept_features=(0,), screened=1, predicted=(0.0, 0.0, 0.5))
    )
    bounded_vectors = BoundedVectors(np.zeros(400, np.uint32), records)
    for moments in (plain, predicted):
        assert moments.simulate(bounded_vectors, rng).chosen.tolist() == [1]
    scores = predicted.score_features(of_many(predicted, records))
    assert scores[0] < 0.2 * scores[1]


def test_a_curator_holds_people_to_the_box() -> None:
    screened = ScreenedMoments.instances()["screened"]
    good = np.array([GRID, 0, -GRID, GRID, 0, 5, GRID], np.int8)
    assert screened.parse(good.tobytes()).tolist() == [good.tolist()]
    for place, value in ((0, 0), (1, GRID), (0, 1), (1, -GRID), (2, -128), (6, -128)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(OutOfRange):
            screened.parse(bad.tobytes())


@pytest.mark.parametrize(
    "changes",
    [
        {"kept": (1, 0)}, {"kept": (0, 0)}, {"kept": (3,)}, {"kept": (-1,)}, {"kept": (), "screened": 0},
        {"screened": 3}, {"predicted": (1, 2)}, {"predicted": (1, 2, 5000)}, {"choice": 0.0},
        {"choice": 5e-324}, {"choice": 1e-12}, {"choice": float("nan")},
        {"standard_deviation": 0.0}, {"standard_deviation": float("nan")}, {"arms": 0}, {"arms": 6},
        {"ball": Ball("l2", 1.0, 6)}, {"ball": Ball("max", 2.0, 6)},
    ],
)  # fmt: skip
def test_impossible_mechanisms_are_refused(changes: dict[str, object]) -> None:
    good = {"ball": BOX, "arms": ARMS, "kept": (0,), "screened": 1, "choice": 0.5, "standard_deviation": 2.0}
    ScreenedMoments(**good)  # type: ignore[arg-type]
    with pytest.raises(SpecError):
        ScreenedMoments(**good | changes)  # type: ignore[arg-type]


def test_a_release_does_not_unfold_all_products() -> None:
    """A release of a few of many features takes a small part of the memory of the sums themselves."""
    screened_moments = ScreenedMoments(Ball("max", 1.0, 2 + 600 + 1), 2, (5,), 2, (100, -50, 300), 0.5, 2.0)
    total = screened_moments.empty()
    tracemalloc.start()
    screened_moments.release(total, SeededNoise(4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * total.sums.nbytes
