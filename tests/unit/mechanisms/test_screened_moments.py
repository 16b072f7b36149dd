"""How far a person moves what a curator releases about chosen features, and what mechanisms are refused."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from privateer_core.errors import OutOfRange, SpecError
from privateer_core.mechanisms.screened_moments import GRID, SENSITIVITY, ScreenedMoments
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import SecondMoments
from privateer_lab.simulation.devices import SeededNoise

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
    made = BoundedVectors(np.zeros(len(records), np.uint32), records)
    return mechanism.add(mechanism.empty(), mechanism.randomize(made, SeededNoise(0)))


def test_records_are_rounded_so_that_no_mean_moves() -> None:
    """Features and values of less than half a step count, in records and in simulated ones; false alarms: 1e-6."""
    mechanism = ScreenedMoments.exact(SecondMoments(BOX, arms=ARMS, kept=(0, 1, 2), screened=0))
    record = np.array([0.0, 1.0, 0.3 / GRID, -0.45 / GRID, 0.5, 0.7 / GRID])
    people = 40_000
    made = BoundedVectors(np.zeros(people, np.uint32), np.tile(record, (people, 1)))
    rows = mechanism.randomize(made, SeededNoise(1)).astype(float)
    assert np.abs(rows.mean(axis=0) / GRID - record).max() < 5.5 * 0.5 / people**0.5 / GRID
    assert (rows[:, :ARMS] == [0, GRID]).all()
    release = mechanism.release(of_many(mechanism, made.values), SeededNoise(1))
    for moments in (release.moments, mechanism.simulate(made, np.random.default_rng(2)).moments):
        off = ~np.eye(len(record), dtype=bool)
        steps = 0.5 / GRID * (np.abs(record)[:, None] + np.abs(record) + 1 / GRID)
        assert (np.abs(moments / people - np.outer(record, record))[off] <= 5.5 * (steps / people**0.5)[off]).all()


@pytest.mark.parametrize("chosen", [[], [1], [1, 2]])
def test_no_pair_of_people_is_farther_apart_than_the_sensitivity(chosen: list[int]) -> None:
    """Distances in standard deviations of the noise, times that of the claim; some pair is as far apart."""
    one = ScreenedMoments(BOX, ARMS, (0,), len(chosen), (), 0.5 if chosen else 0.0, 2.0)
    upper = np.triu_indices(one.width + 1)
    blocks = np.array([one.block(of_one(one, record), chosen)[upper] for record in CORNERS]) / GRID**2
    scaled = one.standard_deviation * blocks / np.sqrt(one.variances[upper])
    farthest = max(float(np.linalg.norm(scaled - row, axis=1).max()) for row in scaled)
    assert SENSITIVITY * 0.999 < farthest <= SENSITIVITY


@pytest.mark.parametrize("predicted", [(), (300, -512, 200)])
def test_scores_move_by_no_more_than_the_scale_has_room_for(predicted: tuple[int, ...]) -> None:
    """One feature may rise while another falls: twice a score's own change, which is twice a record's."""
    one = ScreenedMoments(BOX, ARMS, (0,), 1, predicted, 0.5, 2.0)
    rng = np.random.default_rng(2)
    base = of_many(one, rng.choice([-1.0, 1.0], (60, BOX.coordinates)))
    scores = np.array([one.scores(base.merged(of_one(one, record)))[1:] for record in CORNERS], np.int64)
    ranges = max(float(np.ptp(scores - row, axis=1).max()) for row in scores)
    room = 0.5 * one.scale
    assert 0.4 * room < ranges <= room


def test_what_is_not_predicted_is_what_is_scored() -> None:
    """Nothing is left of a value that equals a feature once it is predicted."""
    rng = np.random.default_rng(3)
    features = rng.choice([-1.0, 1.0], (400, FEATURES))
    records = np.column_stack([np.tile([1.0, 0.0], (400, 1)), features, 0.5 * features[:, 0] + 0.25 * features[:, 1]])
    plain = ScreenedMoments.exact(SecondMoments(BOX, arms=ARMS, kept=(0,), screened=1))
    less = ScreenedMoments.exact(SecondMoments(BOX, arms=ARMS, kept=(0,), screened=1, predicted=(0.0, 0.0, 0.5)))
    made = BoundedVectors(np.zeros(400, np.uint32), records)
    for one in (plain, less):
        assert one.simulate(made, rng).chosen.tolist() == [1]
    scores = less.scores(of_many(less, records))
    assert scores[0] < 0.2 * scores[1]


def test_a_curator_holds_people_to_the_box() -> None:
    one = ScreenedMoments.instances()["screened"]
    good = np.array([GRID, 0, -GRID, GRID, 0, 5, GRID], np.int8)
    assert one.parse(good.tobytes()).tolist() == [good.tolist()]
    for place, value in ((0, 0), (1, GRID), (0, 1), (1, -GRID), (2, -128), (6, -128)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(OutOfRange):
            one.parse(bad.tobytes())


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
    """A server has room for what it holds: a release of a few of many features takes a small part of that beside it."""
    one = ScreenedMoments(Ball("max", 1.0, 2 + 600 + 1), 2, (5,), 2, (100, -50, 300), 0.5, 2.0)
    held = one.empty()
    tracemalloc.start()
    one.release(held, SeededNoise(4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * held.sums.nbytes
