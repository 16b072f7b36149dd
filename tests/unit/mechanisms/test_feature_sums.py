"""A curator's sums about all features: the farthest participants, free counts, and records that are refused."""

import math
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.errors import InputError, OutOfRange, SpecError
from privateer_core.mechanisms.feature_sums import GRID, FeatureSums
from privateer_core.primitives.contributions import FeatureValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.primitives.questions import FeatureMeans
from privateer_lab.simulation.scores import SeededNoise

SIZES = (1, 3, 2, 5)
PROMISE = (1.0, 1e-6)


def question_of(below: float = 1.0, *, counts_arms: bool = False, seed: int = 0) -> FeatureMeans:
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(SIZES)))
    edges = np.minimum(np.rint(np.cumsum(shares)[:-1] * UNIT), UNIT).astype(np.uint32)
    return FeatureMeans(SlotLayout(0, edges[None]), 3, SIZES, counts_arms=counts_arms, below=below)


def blank_records(mechanism: FeatureSums, count: int) -> Any:
    """Return records of the first arm and answers, with the value 0."""
    return mechanism.parse(bytes(mechanism.report_size * count))


def records_of(mechanism: FeatureSums) -> Any:
    """Return records of all arms and extreme values, with few and with many equal answers, and random ones."""
    rng, rows = np.random.default_rng(1), []
    ends = (-math.ceil(mechanism.below * GRID), 0, GRID)
    for arm, value, answer in product(range(mechanism.arms), ends, range(2)):
        rows.append((arm, value, [min(answer, size - 1) for size in mechanism.sizes]))
    for _ in range(150):
        value = ends[0] + int(rng.integers(GRID - ends[0] + 1))
        rows.append((int(rng.integers(mechanism.arms)), value, [int(rng.integers(size)) for size in mechanism.sizes]))
    return np.array([(arm, value, answers) for arm, value, answers in rows], blank_records(mechanism, 0).dtype)


def max_distance(mechanism: FeatureSums) -> float:
    """Return the largest distance of two records' vectors, among those that a server accepts."""
    records = mechanism.parse(records_of(mechanism).tobytes())
    vectors = [mechanism.add(mechanism.empty(), records[[row]]).sums.astype(float) for row in range(len(records))]
    squares = np.array([vector @ vector for vector in vectors])
    products = np.stack(vectors) @ np.stack(vectors).T
    return float(np.sqrt((squares[:, None] + squares - 2 * products).max()))


@pytest.mark.parametrize("counts_arms", [False, True])
@pytest.mark.parametrize("below", [0.01, 0.1, 0.3, 0.5, 0.8, 1.0])
def test_no_two_participants_are_farther_apart_than_claimed_and_two_are_almost(below: float, counts_arms: bool) -> None:
    """Two-sided: never below the farthest pair, and within 1 % of it."""
    for seed in range(8):
        mechanism = FeatureSums.with_noise(question_of(below, counts_arms=counts_arms, seed=seed), 1.0)
        assert 0.99 * mechanism.sensitivity <= max_distance(mechanism) <= mechanism.sensitivity


@pytest.mark.parametrize("seed", range(30))
def test_any_scales_of_a_server_are_covered(seed: int) -> None:
    """A device computes the claim from the scales that a server sends: no scales are farther than it says."""
    rng = np.random.default_rng(seed)
    values, counts = (tuple(int(scale) for scale in rng.integers(0, 40, len(SIZES))) for _ in range(2))
    mechanism = FeatureSums(3, SIZES, (1, *values[1:]), counts, bool(seed % 2), float(rng.uniform(0.01, 1)), 300.0)
    assert max_distance(mechanism) <= mechanism.sensitivity


def test_planted_values_in_the_ball_of_old_are_farther_apart() -> None:
    """Planted: a server that takes values below their bound."""
    mechanism = FeatureSums.with_noise(question_of(0.05), 1.0)
    wide = msgspec.structs.replace(mechanism, below=1.0)
    assert max_distance(wide) > 1.2 * mechanism.sensitivity


@pytest.mark.parametrize(("below", "ratio"), [(1.0, 4.0), (0.5, 2.26), (0.25, 2.23), (0.01, 2.22)])
def test_the_noise_of_values_is_that_of_the_farthest_participants(below: float, ratio: float) -> None:
    """The squared sensitivity for values of length 1: (1 + b)^2, or 2 and the counts where that is more."""
    mechanism = FeatureSums.with_noise(question_of(below), 1.0)
    squared = (mechanism.sensitivity / GRID) ** 2 / sum(scale**2 for scale in mechanism.value_scales)
    assert max(2.0, (1 + below) ** 2) * 0.999 < squared <= ratio * 1.001


def test_counts_of_usual_values_are_free() -> None:
    """Without counts the sums of values have the same noise; at b = 1 counts have no more."""
    mechanism = FeatureSums.with_noise(question_of(), 1.0)
    uncounted = msgspec.structs.replace(mechanism, count_scales=(0,) * len(SIZES))
    assert mechanism.sensitivity == pytest.approx(uncounted.sensitivity, rel=1e-9)
    assert mechanism.count_scales == (0, *mechanism.value_scales[1:]), "everybody gives the single answer"


def test_a_calibration_keeps_its_promise_and_little_less_noise_breaks_it() -> None:
    mechanism = FeatureSums.calibrated(question_of(0.3), *PROMISE)
    event = mechanism.release_event
    assert event is not None
    assert 0.99e-6 < account(event).delta(1.0) + mechanism.sampling <= 1e-6
    planted = mechanism.with_less_noise(1.01).release_event
    assert planted is not None
    assert account(planted).delta(1.0) > 1e-6


def test_a_record_is_short_and_the_curator_makes_the_vector() -> None:
    mechanism = FeatureSums(3, SIZES, (2, 3, 4, 5), (0, 1, 2, 3))
    contributions = FeatureValues(np.zeros(1, np.uint32), np.array([2]), np.array([[0, 1, 1, 4]]), np.array([0.5]))
    records = mechanism.randomize(contributions, SeededNoise(1))
    assert len(records.tobytes()) == mechanism.report_size == 1 + 2 + len(SIZES)
    release = mechanism.release(mechanism.add(mechanism.empty(), records), SeededNoise(2))
    values, counts = np.zeros((3, 11)), np.zeros(11)
    values[2, [0, 2, 5, 10]], counts[[0, 2, 5, 10]] = 0.5 * np.array([2, 3, 4, 5]), [0, 1, 2, 3]
    assert release.sums.tolist() == [*values.ravel(), *counts]


@pytest.mark.parametrize(
    ("field", "value"), [("arm", 3), ("value", GRID + 1), ("value", -GRID // 2 - 1), ("answers", [0, 3, 0, 0])]
)
def test_a_record_out_of_range_is_refused(field: str, value: Any) -> None:
    mechanism = FeatureSums(3, SIZES, (2, 3, 4, 5), (0, 1, 2, 3), below=0.5)
    records = blank_records(mechanism, 1).copy()
    assert len(mechanism.parse(records.tobytes())) == 1
    records[field] = value
    with pytest.raises(OutOfRange):
        mechanism.parse(records.tobytes())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused_without_an_echo(value: float) -> None:
    mechanism, zeros = FeatureSums(3, SIZES, (2, 3, 4, 5), (0, 1, 2, 3)), np.zeros(2, np.int64)
    values = np.array([0.123456, value])
    contributions = FeatureValues(zeros.astype(np.uint32), zeros, np.zeros((2, 4), np.int64), values)
    with pytest.raises(InputError) as refused:
        mechanism.randomize(contributions, SeededNoise(1))
    assert "0.123" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arms": 0}, "sizes"), ({"sizes": (1, 3, 0, 5)}, "sizes"), ({"sizes": (1, 3)}, "sizes"),
        ({"value_scales": (0, 0, 0, 0)}, "sizes"), ({"value_scales": (1, 1, 1, -1)}, "sizes"),
        ({"count_scales": (0, 0, 0, 1 << 17)}, "sizes"), ({"arms": 1 << 18}, "sizes"),
        ({"below": 0.0}, "below"), ({"below": 1.01}, "below"), ({"below": math.nan}, "below"),
        ({"standard_deviation": 255.0}, "standard_deviation"), ({"standard_deviation": math.nan}, "standard_deviation"),
        ({"standard_deviation": 2.0**41}, "standard_deviation"),
    ],
)  # fmt: skip
def test_sums_that_there_are_not_are_refused(changes: dict[str, Any], field: str) -> None:
    mechanism = FeatureSums(3, SIZES, (2, 3, 4, 5), (0, 1, 2, 3), standard_deviation=300.0)
    with pytest.raises(SpecError) as refused:
        msgspec.structs.replace(mechanism, **changes).__post_init__()
    assert refused.value.field == field
