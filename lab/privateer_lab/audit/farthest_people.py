"""The farthest people: how far apart the contributions of two people are, beside the distance that noise is for."""

import itertools
import math
from collections.abc import Iterator
from functools import singledispatch
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Gaussian, Pure
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms import FeatureSums, Mechanism, RowSums, ScreenedMoments
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.shared_votes import SharedVotes
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.primitives import public_coins
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import Contributions, FeatureValues, KeyedValues, RowValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import FeatureMeans
from privateer_core.primitives.row_ball import JOINT, RowBall, joint_reports
from privateer_core.privacy.trust import NoiseOrigin
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule

Array = NDArray[np.float64]
_PEOPLE: Final = 400
_DIRECTIONS: Final = 6
_PROMISE: Final = (1.0, 1e-6)
_BELOW: Final = (1.0, 0.5, 0.25, 0.1, 0.01)
_SHARES: Final = (0.0, 0.1, 0.2, 0.3, 1 / 3, JOINT)
_COUNTED_BEFORE: Final = 0.1
"""Share of counts in the squared length of a vector of all answers, when noise was for a ball."""


class Distance(NamedTuple):
    """How far apart two people are, in lengths of a value of 1: by the noise before and now, and by a search."""

    name: str
    before: float | None  # for which noise was before records had a shape; None: as now
    claimed: float
    farthest: float

    @property
    def row(self) -> dict[str, Any]:
        """The distances, and the variance of noise before over the present one."""
        row = {key: value for key, value in self._asdict().items() if value is not None}
        return row | ({"saved": (self.before / self.claimed) ** 2} if self.before else {})


def iterate_distances() -> Iterator[Distance]:
    """Yield people's distances for curators in all algorithms' first rounds, and for further sums by parameter."""
    befores: dict[str, float] = {}
    mechanisms = list_curators()
    for below in _BELOW:
        name = f"feature-sums, values from -{below:g}"
        mechanisms[name], befores[name] = _answers(below), _ball_of_answers(below)
    for share in _SHARES:
        name = "row-sums, joint" if share == JOINT else f"row-sums, share {share:.3g}"
        mechanisms[name] = RowSums.calibrated(RowBall(2, 3, share), *_PROMISE)
        befores[name] = 2.0 / _length(mechanisms[name])
    mechanisms["gaussian-vectors, joint"] = GaussianVectors.calibrated(Ball("joint", 1.0, 9), *_PROMISE)
    befores["gaussian-vectors, joint"] = 2.0
    for name, mechanism in mechanisms.items():
        claimed, farthest = (_compute_unit_length(mechanism) * distance for distance in measure_distances(mechanism))
        yield Distance(name, befores.get(name), claimed, farthest)


def list_curators() -> dict[str, Mechanism]:
    """Return the mechanisms of first rounds of every algorithm under a curator, with their noise."""
    mechanisms: dict[str, Mechanism] = {}
    for name in ALGORITHMS:
        for label, spec in algorithm(name).spec.instances().items():
            if spec.privacy.trust.noise is NoiseOrigin.CURATOR and not name.startswith("paper"):
                terms = Schedule(spec).open(1).policy.terms
                mechanisms[f"{name}, {label}"] = terms.mechanism
    return mechanisms


def _answers(below: float) -> FeatureSums:
    thresholds = np.array([[public_coins.UNIT // 2, 3 * public_coins.UNIT // 4]], np.uint32)
    question = FeatureMeans(SlotLayout(0, thresholds), 3, (1, 8, 5), counts_arms=True, below=below)
    return FeatureSums.calibrated(question, *_PROMISE)


def _ball_of_answers(below: float) -> float:
    """Return the distance of values that noise was for when vectors were only known to be in a ball."""
    diameter = math.sqrt(2) * (below + math.sqrt(1 - below**2)) if below**2 < 0.5 else 2.0
    return diameter / math.sqrt(1 - _COUNTED_BEFORE)


def _length(mechanism: Any) -> float:
    """Return the length of a value of 1 in the vectors of rows."""
    return 1.0 if mechanism.ball.is_joint else math.sqrt(1 - mechanism.ball.share)


def _compute_unit_length(mechanism: Any) -> float:
    """Return what a unit of `measure_distances` is in lengths of a value of 1."""
    match mechanism:
        case CellPairs() | CentralSums() if mechanism.scale:
            return float(mechanism.scale)
        case FeatureSums():
            return math.sqrt(mechanism.value_noise) / mechanism.standard_deviation
        case RowSums():
            return mechanism.ball.step / _length(mechanism)
        case GaussianVectors() | CentralVectors():
            return float(mechanism.ball.step)
    return 1.0


def measure_distances(mechanism: Mechanism, seed: int = 0) -> tuple[float, float]:
    """Return the distance of two people that a mechanism's noise hides, and the largest among 400 people.

    Both are in L2, or in L1 where noise is Laplace noise, in the units in which noise has its standard deviation or
    scale. People are extreme ones, who go the way of reports: a mechanism rounds, encodes, parses and adds them up.
    """
    contributions: Any = _draw_contributions(mechanism, np.random.default_rng(seed))
    subject: Any = mechanism
    if isinstance(subject, GaussianVectors):  # whose reports have noise
        points = subject.ball.round_to_grid(contributions.values, SeededNoise(seed)).astype(np.float64)
    else:
        reports = subject.parse(subject.randomize(contributions, SeededNoise(seed)).tobytes())
        totals = (subject.add(subject.empty(), report) for report in np.split(reports, _PEOPLE))
        points = np.stack([_whiten(subject, total) for total in totals])
    event: Any = mechanism.release_event or mechanism.report_event
    if isinstance(event, Pure):
        return event.epsilon, max(float(np.abs(points - point).sum(axis=1).max()) for point in points)
    noise = event if isinstance(event, Gaussian) else event.events[-1]  # choices come first
    claimed = subject.ball.sensitivity if isinstance(subject, RowSums) else noise.sensitivity
    squares = np.square(points).sum(axis=1)
    farthest = float(np.sqrt((squares[:, None] + squares - 2 * points @ points.T).max()))
    return claimed, farthest


@singledispatch
def _whiten(_mechanism: Any, total: Any) -> Array:
    """Return a total as a vector, in units in which noise is alike in all coordinates."""
    return np.asarray(total.sums, np.float64)


@_whiten.register
def _(mechanism: CentralSums, total: Any) -> Array:
    return np.concatenate([total.sums.ravel() / UNIT, total.hits.ravel()]) / (mechanism.scale or 1.0)


@_whiten.register
def _(mechanism: CellPairs, total: Any) -> Array:
    return np.asarray(total.cells.ravel() / (mechanism.unit * mechanism.scale))


@_whiten.register
def _(mechanism: SharedVotes, total: Any) -> Array:
    cells = total.cells.ravel() / mechanism.unit
    return np.append(cells, total.reports - cells.sum()) / (mechanism.server_noise.scale or 1.0)


@_whiten.register
def _(mechanism: ScreenedMoments, total: Any) -> Array:
    chosen = mechanism.candidates[: mechanism.screened].tolist()
    deviations = mechanism._noise_deviations / mechanism.standard_deviation
    block = mechanism.select_block(total, chosen) / deviations
    return np.asarray(block[np.triu_indices(len(block))])


@singledispatch
def _draw_contributions(mechanism: Any, rng: np.random.Generator) -> Contributions:
    """Return contributions of people with keys, or with vectors, whose values are mostly extreme."""
    coins = rng.integers(0, 2**32, _PEOPLE, dtype=np.uint32)
    if hasattr(mechanism, "layout"):
        keys, values = rng.integers(-1, mechanism.layout.keys, _PEOPLE), rng.choice([0.0, 1.0, 0.3], _PEOPLE)
        return KeyedValues(coins, keys, np.zeros_like(keys), values, rng.choice([0.0, 1.0, 0.7], _PEOPLE))
    ball = mechanism.ball
    if ball.norm == "joint":
        dimension = next(d for d in itertools.count(1) if d * (d + 3) // 2 == ball.coordinates)
        return BoundedVectors(coins, joint_reports(_draw_rows(dimension, rng), rng.choice([-1.0, 1.0], _PEOPLE)))
    corners = ball.bound * rng.choice([-1.0, 1.0], (_PEOPLE, ball.coordinates))
    corners[1::2] = -corners[::2]
    return BoundedVectors(coins, corners)


@_draw_contributions.register
def _(mechanism: ScreenedMoments, rng: np.random.Generator) -> Contributions:
    corners = rng.choice([-1.0, 1.0], (_PEOPLE, mechanism.ball.coordinates))
    corners[1::2, mechanism.arms : -1] = -corners[::2, mechanism.arms : -1]
    return BoundedVectors(np.zeros(_PEOPLE, np.uint32), corners)


@_draw_contributions.register
def _(mechanism: FeatureSums, rng: np.random.Generator) -> Contributions:
    people, answers = np.arange(_PEOPLE), rng.integers(mechanism.sizes, size=(_PEOPLE, len(mechanism.sizes)))
    answers[1::4] = answers[::4]  # the same answers as another's, and then none of them
    answers[2::4] = (answers[::4] + 1) % np.array(mechanism.sizes)
    values = rng.choice([-mechanism.below, 1.0], _PEOPLE)
    values[::4], values[1::4], values[2::4] = 1.0, -mechanism.below, 1.0
    return FeatureValues(np.zeros(_PEOPLE, np.uint32), people // 2 % mechanism.arms, answers, values)


@_draw_contributions.register
def _(mechanism: RowSums, rng: np.random.Generator) -> Contributions:
    ball, values = mechanism.ball, rng.choice([-1.0, 1.0, 1.0, 0.5], _PEOPLE)
    arms = rng.integers(ball.arms, size=_PEOPLE)
    return RowValues(np.zeros(_PEOPLE, np.uint32), arms, _draw_rows(ball.dimension, rng), values)


def _draw_rows(dimension: int, rng: np.random.Generator) -> Array:
    """Draw rows in a few directions and of several lengths, half of them longer than 1."""
    directions = rng.normal(size=(_DIRECTIONS, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = rng.choice([1.5, 1.5, 1.0, 0.9, 0.7, 0.3], _PEOPLE)
    return np.asarray(directions[rng.integers(_DIRECTIONS, size=_PEOPLE)] * lengths[:, None])
