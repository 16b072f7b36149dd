"""Attacks on mechanisms of bounded vectors, and on their parts."""

import math
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Pure, ShuffledBits
from privateer_core.mechanisms import VectorMechanism
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import GRID, Ball
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, build_part
from privateer_lab.audit.law import BinomialLaw, Law, NormalLaw, UniformLaw
from privateer_lab.audit.mechanisms.keyed import PUBLIC_COIN, response_part

BALL, BOX = Ball("l2", 1.0, 4), Ball("max", 1.0, 4)
DELTA = 1e-6
N_PARTICIPANTS = 60
"""Honest participants of a shuffled batch."""
_EPSILON_OF_TWO_MESSAGES = 1.74
"""Local epsilon of each of two messages that keeps (1, .05) in a batch of this size, rounded down."""
_LENGTH_FACTOR = 9.0
"""Length of vectors in radii of the ball: protection must not depend on the application's values."""
_CUBE: Final = Ball("max", 1.0, 3)
_N_SYMBOLS, _N_NOISES, _N_BIT_SUMS = 6_000, 4_000, 12_000
_SAMPLER: Final = "SubsetResponse.randomize"


def vector_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of vectors."""
    cases = [case for ball in (BALL, BOX) for case in _normal_cases(ball, samples)]
    for epsilon, ball, count in ((1.0, BALL, samples), (4.0, BALL, samples // 4), (1.0, BOX, samples // 4)):
        symbol = VectorSymbol.calibrated(ball, epsilon, 11)
        name = f"{2 * symbol.directions} symbols in {ball.norm}"
        cases.append(views.mechanism_case(name, views.attack_reports, build_target(symbol), (epsilon, 0.0), count))
    return [*cases, *_shuffled_cases(samples)]


def build_target(mechanism: VectorMechanism) -> views.Target:
    """Build the target of two neighbours at opposite ends of a diagonal, with all others in the middle."""
    ball = mechanism.ball
    end = _LENGTH_FACTOR * ball.bound / (1.0 if ball.norm == "max" else math.sqrt(ball.coordinates))
    return views.Target(
        mechanism, (_make_constant(ball, end), _make_constant(ball, -end)), _make_constant(ball, 0.0), N_PARTICIPANTS
    )


def _make_constant(ball: Ball, value: float | NDArray[np.float64]) -> views.Contributor:
    """Make contributors with the coordinates of a vector, or with the same value in all coordinates."""

    def make_contribution(coins: views.Coins) -> BoundedVectors:
        return BoundedVectors(coins, np.full((len(coins), ball.coordinates), value))

    return make_contribution


def _normal_cases(ball: Ball, samples: int) -> list[Case]:
    """Build attacks on the normal noise of devices and of a curator."""
    claim = (1.0, DELTA)
    device, curator = (build_target(kind.calibrated(ball, *claim)) for kind in (GaussianVectors, CentralVectors))
    return [
        views.mechanism_case(f"vectors in {ball.norm}", views.attack_reports, device, claim, 4 * samples),
        views.mechanism_case(f"release in {ball.norm}", views.attack_releases, curator, claim, max(2000, samples // 4)),
    ]


def _shuffled_cases(samples: int) -> list[Case]:
    """Build the cases that attack shuffled batches: permuted, with two messages, and summed."""
    bits = BitVectors.calibrated(BOX, 1.0, 0.01, N_PARTICIPANTS)
    direction = VectorSymbol(BALL, amplified_local_epsilon(1.0, 0.01, 16 / 3, N_PARTICIPANTS, 8.0), 8, 3, 11)
    several = VectorSymbol(BALL, _EPSILON_OF_TWO_MESSAGES, 8, 3, 11, repeats=2)
    count = max(2000, samples // 20)
    return [
        views.mechanism_case("permuted batch", views.attack_batches, build_target(direction), (1.0, 0.01), 2 * count),
        views.mechanism_case(
            "permuted batch, two messages", views.attack_batches, build_target(several), (1.0, 0.05), count
        ),
        views.mechanism_case("summed batch", views.attack_batches, build_target(bits), (1.0, 0.01), count),
    ]


def vector_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of vectors."""
    fair, unfair = BitVectors(_CUBE, 2, 64, 0.5, 1), BitVectors(_CUBE, 2, 80, 0.2, 1)
    single, several = VectorSymbol(_CUBE, 2.0, 8, 3, 11), VectorSymbol(_CUBE, 1.0, 4, 1, 11, repeats=2)
    return [
        response_part(
            "one of one's own symbols", single, single.response.symbols, partial(_make_corners, _CUBE), _SAMPLER
        ),
        *_message_parts(several),
        _coins_part(several),
        *_normal_parts(),
        _bits_part("fair bits", fair),
        _bits_part("unfair bits", unfair),
    ]


def _make_corners(ball: Ball, neighbour: int, count: int) -> BoundedVectors:
    """Return contributions beyond one corner of the box (neighbour 0), or beyond the opposite corner."""
    values = np.full((count, ball.coordinates), _LENGTH_FACTOR * (1 - 2 * neighbour))
    return BoundedVectors(np.full(count, PUBLIC_COIN, np.uint32), values)


def _message_parts(mechanism: VectorSymbol) -> list[MechanismPart]:
    """Return each message as a part, and both messages; an outcome is a direction of neighbour 0, 1 or neither."""
    subset_share = mechanism.chosen / mechanism.response.symbols
    p_other = (1 - mechanism.response.gain) * subset_share
    p_own = mechanism.response.gain + p_other
    probabilities = np.array([[p_own, p_other, 1 - p_own - p_other], [p_other, p_own, 1 - p_own - p_other]])

    def observe_messages(neighbour: int, count: int) -> Integers:
        reports = mechanism.randomize(_make_corners(_CUBE, neighbour, count), SecureNoise())
        rows = mechanism.parse(reports.tobytes())
        neighbour_values = [_make_corners(_CUBE, end, len(rows)).values for end in (0, 1)]
        sets = [mechanism.own_symbols(BoundedVectors(rows["slot"], values)) for values in neighbour_values]
        named = [(symbols == rows["symbol"].astype(np.int64)[:, None]).any(axis=1) for symbols in sets]
        return np.where(named[0], 0, np.where(named[1], 1, 2)).reshape(count, 2)

    def observe_combination(weights: tuple[int, int], neighbour: int, count: int) -> Integers:
        return np.asarray(observe_messages(neighbour, count) @ weights)

    single = Outcomes(probabilities, Pure(mechanism.epsilon))
    pair_probabilities = np.array([np.outer(row, row).ravel() for row in probabilities])
    pairs = Outcomes(pair_probabilities, Pure(mechanism.local_epsilon))
    model, parts = views.model_for(views.attack_batches), []
    for name, weights, outcomes in (
        ("the symbol of message 1 of 2", (1, 0), single),
        ("the symbol of message 2 of 2", (0, 1), single),
        ("both messages together", (3, 1), pairs),
    ):
        observe = partial(observe_combination, weights)
        parts.append(build_part(name, mechanism, model, _SAMPLER, observe, outcomes, _N_SYMBOLS))
    return parts


def _coins_part(mechanism: VectorSymbol) -> MechanismPart:
    """Return the coins of the second message as a part: they must be independent of the first message's coins."""

    def observe(neighbour: int, count: int) -> Integers:
        contribution = _make_corners(_CUBE, neighbour, count)
        contribution = BoundedVectors(SecureNoise().words(count).astype(np.uint32), contribution.values)
        reports = mechanism.parse(mechanism.randomize(contribution, SecureNoise()).tobytes())["slot"].reshape(count, 2)
        return np.ascontiguousarray(reports[:, ::-1]).astype("<u4").view(np.uint8).astype(np.int64)

    laws: tuple[Law, ...] = (UniformLaw(256),) * 8
    noise = Noise(laws, (0, 1, 2, 3), np.zeros((2, 8), np.int64))
    name, sampler = "coins of message 2 of 2", "VectorSymbol.randomize"
    return build_part(name, mechanism, views.model_for(views.attack_batches), sampler, observe, noise, _N_SYMBOLS)


def _normal_parts() -> list[MechanismPart]:
    """Return the rounded normal noise of a device and of a release as parts; three coordinates are an observation."""
    size, sampler = _CUBE.coordinates, "RoundedNormal.draw"
    deviation, ends = GRID * size**0.5, GRID * np.array([[1], [-1]]) * np.ones(size, np.int64)
    device, curator = GaussianVectors(_CUBE, deviation), CentralVectors(_CUBE, deviation)
    noise = Noise((NormalLaw(deviation),) * size, tuple(range(size)), ends)

    def observe_device(neighbour: int, count: int) -> Integers:
        reports = device.randomize(_make_corners(_CUBE, neighbour, count), SecureNoise())
        return device.parse(reports.tobytes()).astype(np.int64)

    def observe_release(neighbour: int, count: int) -> Integers:
        wide = msgspec.structs.replace(curator, ball=Ball("max", 1.0, count * size))
        exact = wide.randomize(_make_corners(wide.ball, neighbour, 1), SecureNoise())
        release = wide.release(wide.add(wide.empty(), exact), SecureNoise())
        return np.rint(release.sums / wide.ball.step).astype(np.int64).reshape(count, size)

    return [
        build_part(f"noise of a {place}", mechanism, views.model_for(attack), sampler, observe, noise, _N_NOISES)
        for place, mechanism, attack, observe in (
            ("device", device, views.attack_reports, observe_device),
            ("release", curator, views.attack_releases, observe_release),
        )
    ]


def _bits_part(name: str, mechanism: BitVectors) -> MechanismPart:
    """Return the part that tests the sum of a participant's bits in each coordinate."""
    size, bits = mechanism.ball.coordinates, mechanism.bits
    ends = mechanism.levels * np.array([[1], [0]]) * np.ones(size, np.int64)
    noise = Noise((BinomialLaw(bits, mechanism.probability),) * size, tuple(range(size)), ends)

    def observe(neighbour: int, count: int) -> Integers:
        reports = mechanism.randomize(_make_corners(mechanism.ball, neighbour, count), SecureNoise())
        return np.array([mechanism.add(mechanism.empty(), mechanism.parse(row.tobytes())).sums for row in reports])

    event = ShuffledBits(bits, mechanism.probability, mechanism.levels, size)
    model = views.model_for(views.attack_batches)
    return build_part(name, mechanism, model, "draw_binomial", observe, noise, _N_BIT_SUMS, event=event, delta=0.01)
