"""A curator's sums of values at rows and second moments of rows: the farthest participants, and refused records."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.accounting.accountant import account
from privateer_core.errors import InputError, OutOfRange, SpecError
from privateer_core.mechanisms.vectors.row_sums import RECORD_GRID, RowSums
from privateer_core.policies.policy import Arms
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.row_ball import JOINT, RowBall, second_moments
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import linear_spec

Array = NDArray[np.float64]
PROMISE = (1.0, 1e-6)
SHARES = (0.0, 0.1, 0.2, 0.3, 1 / 3)
KINDS = (*SHARES, JOINT)


def max_distance(mechanism: RowSums, records: Any) -> float:
    """Return the largest distance of two records' vectors, among those that a server accepts, in grid points."""
    records = mechanism.parse(records.tobytes())
    vectors = np.stack([mechanism.add(mechanism.empty(), records[[row]]).sums for row in range(len(records))])
    points = vectors.astype(np.float64)
    squares = np.square(points).sum(axis=1)
    return float(np.sqrt((squares[:, None] + squares - 2 * points @ points.T).max()))


def records_of(mechanism: RowSums, seed: int) -> Any:
    """Return records of rows of all lengths in a few directions, and of extreme and other values."""
    rng, dimension = np.random.default_rng(seed), mechanism.ball.dimension
    records = np.zeros(400, mechanism.parse(b"").dtype)
    directions = rng.normal(size=(6, dimension))
    directions[0], directions[1] = np.eye(1, dimension), directions[0] + 0.3 * directions[2]
    directions = directions[rng.integers(6, size=len(records))] * rng.choice([1, 1, 1.3], (len(records), dimension))
    lengths = rng.choice([0.0, 0.05, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0, 1.0, 1.0], len(records))
    rows = directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths[:, None]
    records["arm"] = rng.integers(mechanism.ball.arms, size=len(records))
    records["value"] = RECORD_GRID * rng.choice([-1, 1, 1, -0.5, 0], len(records))
    records["row"] = np.trunc(RECORD_GRID * rows)
    records[:2] = [(0, RECORD_GRID, [RECORD_GRID] + [0] * (dimension - 1))] * 2
    records["value"][1] = -RECORD_GRID
    return records


@pytest.mark.parametrize("share", KINDS)
@pytest.mark.parametrize("dimension", [1, 2, 3, 8])
def test_no_two_records_are_farther_apart_than_claimed_and_two_are_almost(dimension: int, share: float) -> None:
    """Two-sided: never below the farthest pair of what a server accepts, and within 1 % of it."""
    mechanism = RowSums(RowBall(2, dimension, share), 0.0)
    distances = [max_distance(mechanism, records_of(mechanism, seed)) for seed in range(4)]
    assert 0.99 * mechanism.ball.sensitivity < min(distances)
    assert max(distances) <= mechanism.ball.sensitivity


def climb(ball: RowBall, seed: int) -> float:
    """Return the largest distance that a search from a random pair of participants of one arm leads to."""
    rng, step = np.random.default_rng(seed), 0.5

    def distance(pair: Array) -> float:
        rows = pair[:, :-1] / np.maximum(1.0, np.linalg.norm(pair[:, :-1], axis=1, keepdims=True))
        parts = ball.split_rows(rows, np.clip(pair[:, -1], -1, 1))
        return math.sqrt(sum(float(np.square(part[0] - part[1]).sum()) for part in parts))

    pair = rng.normal(size=(2, ball.dimension + 1))
    largest = distance(pair)
    for _ in range(1500):
        moved = pair + step * rng.normal(size=pair.shape)
        if (moved_distance := distance(moved)) > largest:
            pair, largest = moved, moved_distance
        else:
            step = max(1e-4, 0.99 * step)
    return largest


@pytest.mark.parametrize("share", KINDS)
def test_a_search_leads_to_the_claimed_distance_and_not_beyond(share: float) -> None:
    ball = RowBall(1, 2, share)
    largest = max(climb(ball, seed) for seed in range(6))
    assert 0.99 * ball.sensitivity * ball.step < largest <= ball.sensitivity * ball.step


def test_planted_residuals_of_one_length_are_farther_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a short row's residual is as long as another's, so that second moments are not free."""
    mechanism = RowSums(RowBall(2, 3, 0.3), 0.0)
    monkeypatch.setattr(
        "privateer_core.primitives.row_ball.RowBall.residual_directions",
        lambda _, rows: rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-100),
    )
    assert max_distance(mechanism, records_of(mechanism, 0)) > 1.02 * mechanism.ball.sensitivity


def test_planted_joint_reports_with_longer_products_are_farther_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: products have three quarters of a joint report's squared length, instead of two thirds."""
    mechanism = RowSums(RowBall(2, 3, JOINT), 0.0)
    monkeypatch.setattr("privateer_core.primitives.row_ball.MOMENT_SCALE", 0.5)
    monkeypatch.setattr("privateer_core.primitives.row_ball.PRODUCT_SCALE", math.sqrt(0.75))
    assert max_distance(mechanism, records_of(mechanism, 0)) > 1.05 * mechanism.ball.sensitivity


def people_of(features: dict[str, Any], link: str, statistic: str) -> tuple[RowSums, Any]:
    """Return the mechanism of a first round, and records of 1,500 people, some with equal contexts."""
    spec: Any = linear_spec("central", features, link=link, report_statistic=statistic)
    policy: Any = Schedule(spec).open(1).policy
    rng = np.random.default_rng(2)
    contexts = rng.random((1500, spec.dimension))
    contexts[::3] = np.rint(contexts[::3])
    contexts[1::2] = contexts[::2]
    rewards, arms = rng.integers(0, 2, 1500).astype(float), Arms(np.repeat(rng.integers(0, 2, 750), 2))
    contributions = policy.contribute(contexts, np.zeros(1500, np.uint32), arms, rewards)
    return policy.mechanism, policy.mechanism.randomize(contributions, SeededNoise(3))


NUMBERS = {f"x{index}": {"low": 0.0, "high": 1.0} for index in range(4)}
ANSWERS = {f"q{index}": {"levels": ["no", "yes"]} for index in range(6)}
LEVELS = {"x": {"low": 0.0, "high": 1.0}, "country": {"levels": ["a", "b", "c", "d", "e"]}}


@pytest.mark.parametrize("statistic", ["residual", "joint"])
@pytest.mark.parametrize("link", ["identity", "logistic"])
@pytest.mark.parametrize("features", [NUMBERS, ANSWERS, LEVELS], ids=["numbers", "answers", "levels"])
def test_real_people_are_almost_as_far_apart_as_claimed(features: dict[str, Any], link: str, statistic: str) -> None:
    """Two-sided: a first round's policy expects 1/2, so that two people of one context have opposite residuals."""
    mechanism, records = people_of(features, link, statistic)
    assert 0.99 * mechanism.ball.sensitivity < max_distance(mechanism, records) <= mechanism.ball.sensitivity


def test_the_noise_of_a_residual_is_that_of_residuals_alone() -> None:
    """Second moments cost nothing; a ball of length 1 has noise of 4 / (1 - share) for a residual."""
    for share in SHARES:
        ball = RowBall(2, 5, share)
        assert (ball.sensitivity * ball.step) ** 2 / (1 - share) == pytest.approx(4, rel=1e-4)


@pytest.mark.parametrize("share", [0.3, JOINT])
def test_a_calibration_keeps_its_promise_and_little_less_noise_breaks_it(share: float) -> None:
    mechanism = RowSums.calibrated(RowBall(2, 5, share), *PROMISE)
    event = mechanism.release_event
    assert event is not None
    assert 0.99e-6 < account(event).delta(1.0) + mechanism.sampling <= 1e-6
    planted = mechanism.with_less_noise(1.01).release_event
    assert planted is not None
    assert account(planted).delta(1.0) > 1e-6


def test_a_record_is_short_and_the_curator_makes_the_vector() -> None:
    """A row of length .5: its residual is 2 % shorter than that of a row of length 1."""
    mechanism = RowSums(RowBall(3, 2, 0.3), 0.0)
    row = np.array([[0.3, 0.4]])
    contributions = RowValues(np.zeros(1, np.uint32), np.array([2]), row, np.array([-0.5]))
    records = mechanism.randomize(contributions, SeededNoise(1))
    assert len(records.tobytes()) == mechanism.report_size == 1 + 2 + 2 * 2
    sums = mechanism.release(mechanism.add(mechanism.empty(), records), SeededNoise(2)).sums
    assert not sums[:4].any()
    length = math.sqrt(4 - 3 / 7 * 0.75**2) - 1
    assert sums[4:6] == pytest.approx(-0.5 * math.sqrt(0.7) * length * np.array([0.6, 0.8]), abs=2e-4)
    assert sums[6:] == pytest.approx(math.sqrt(0.3) * second_moments(row)[0], abs=2e-4)
    assert length == pytest.approx(0.939, abs=1e-3)


def test_the_curator_makes_a_joint_report_in_the_block_of_its_arm() -> None:
    """A record of the size of a residual's; the device without it sent 4 bytes for each of 15 coordinates."""
    mechanism, row = RowSums(RowBall(3, 2, JOINT), 0.0), np.array([[0.3, 0.4]])
    contributions = RowValues(np.zeros(1, np.uint32), np.array([1]), row, np.array([-0.5]))
    records = mechanism.randomize(contributions, SeededNoise(1))
    assert len(records.tobytes()) == mechanism.report_size == 1 + 2 + 2 * 2
    sums = mechanism.release(mechanism.add(mechanism.empty(), records), SeededNoise(2)).sums
    assert len(sums) == 15
    assert not sums[[*range(5), *range(10, 15)]].any()
    assert sums[5:8] == pytest.approx(math.sqrt(1 / 3) * np.array([0.09, 0.12 * math.sqrt(2), 0.16]), abs=2e-4)
    assert sums[8:10] == pytest.approx(math.sqrt(2 / 3) * -0.5 * row[0], abs=2e-4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arm", 3), ("value", RECORD_GRID + 1), ("value", -RECORD_GRID - 1), ("row", [RECORD_GRID, 1]),
        ("row", [-RECORD_GRID, -RECORD_GRID]), ("row", [-(1 << 15), 0]),
    ],
)  # fmt: skip
def test_a_record_out_of_range_is_refused(field: str, value: Any) -> None:
    mechanism = RowSums(RowBall(3, 2, 0.3), 0.0)
    records = mechanism.parse(bytes(mechanism.report_size)).copy()
    assert len(mechanism.parse(records.tobytes())) == 1
    records[field] = value
    with pytest.raises(OutOfRange):
        mechanism.parse(records.tobytes())


def test_records_of_long_rows_are_accepted_however_they_are_rounded() -> None:
    mechanism = RowSums(RowBall(2, 9, 0.3), 0.0)
    rows = np.random.default_rng(1).normal(size=(2000, 9)) * 10.0 ** np.arange(-2, 3).repeat(400)[:, None]
    zeros = np.zeros(2000, np.int64)
    contributions = RowValues(zeros.astype(np.uint32), zeros, rows, np.full(2000, 9.0))
    records = mechanism.parse(mechanism.randomize(contributions, SeededNoise(1)).tobytes())
    assert (records["value"] == RECORD_GRID).all()
    assert np.linalg.norm(records["row"].astype(float), axis=1).max() > 0.999 * RECORD_GRID


@pytest.mark.parametrize(("row", "value"), [([0.123456, math.nan], 0.0), ([0.123456, 0.0], math.inf)])
def test_what_is_no_number_is_refused_without_an_echo(row: list[float], value: float) -> None:
    mechanism, zero = RowSums(RowBall(2, 2, 0.3), 0.0), np.zeros(1, np.int64)
    with pytest.raises(InputError) as refused:
        mechanism.randomize(RowValues(zero.astype(np.uint32), zero, np.array([row]), np.array([value])), SeededNoise(1))
    assert "0.123" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"share": 0.34}, "share"), ({"share": -0.1}, "share"), ({"share": math.nan}, "share"),
        ({"share": 0.99}, "share"), ({"share": JOINT, "arms": 1, "dimension": 1500}, "dimension"),
        ({"arms": 0}, "dimension"), ({"arms": 1 << 17}, "dimension"), ({"dimension": 0}, "dimension"),
        ({"dimension": 2000}, "dimension"),
    ],
)  # fmt: skip
def test_vectors_that_there_are_not_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        msgspec.structs.replace(RowBall(2, 3, 0.3), **changes).__post_init__()
    assert refused.value.field == field
