"""Attacks on mechanisms of bounded vectors: as a whole, and part by part."""

import math
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
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, noise_part, outcome_part
from privateer_lab.audit.law import BinomialLaw, Law, NormalLaw, UniformLaw
from privateer_lab.audit.mechanisms.keyed import COIN
from privateer_lab.audit.views import (
    Coins,
    Maker,
    Target,
    batches,
    log_likelihood,
    mechanism_case,
    model_of,
    releases,
    reports,
)

BALL, BOX = Ball("l2", 1.0, 4), Ball("max", 1.0, 4)
SIDED: Final = Ball("l2", 1.0, 4, below=0.1)
DELTA = 1e-6
PEOPLE = 60
"""Honest people of a shuffled batch."""
_OF_TWO = 1.74
"""The local epsilon of each of two messages that keeps (1, .05) in such a batch, rounded down."""
_BEYOND = 9.0
"""Vectors are so much longer than the ball: protection must not depend on what an application hands over."""
_BALL: Final = Ball("max", 1.0, 3)
_SYMBOLS, _NOISE, _BITS = 6_000, 4_000, 12_000
_SUBSETS: Final = "SubsetResponse.randomize"


def vector_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of vectors."""
    cases = [case for ball in (BALL, BOX) for case in _normal_cases(ball, samples)]
    for epsilon, ball, count in ((1.0, BALL, samples), (4.0, BALL, samples // 4), (1.0, BOX, samples // 4)):
        symbol = VectorSymbol.calibrated(ball, epsilon, 11)
        name = f"{2 * symbol.directions} symbols in {ball.norm}"
        cases.append(mechanism_case(name, reports, target(symbol), (epsilon, 0.0), count))
    return [*cases, _sided_case(samples), *_shuffled_cases(samples)]


def target(mechanism: VectorMechanism) -> Target:
    """Return two people at opposite ends of a diagonal, as far apart as any; everybody else is in the middle."""
    ball = mechanism.ball
    end = _BEYOND * ball.bound / (1.0 if ball.norm == "max" else math.sqrt(ball.coordinates))
    return Target(mechanism, (_maker(ball, end), _maker(ball, -end)), _maker(ball, 0.0), PEOPLE)


def _maker(ball: Ball, value: float) -> Maker:
    def make(coins: Coins) -> BoundedVectors:
        return BoundedVectors(coins, np.full((len(coins), ball.coordinates), value))

    return make


def _normal_cases(ball: Ball, samples: int) -> list[Case]:
    """Return attacks on the normal noise of devices and of a curator."""
    claim = (1.0, DELTA)
    device, curator = (target(kind.calibrated(ball, *claim)) for kind in (GaussianVectors, CentralVectors))
    return [
        mechanism_case(f"vectors in {ball.norm}", reports, device, claim, 4 * samples),
        mechanism_case(f"release in {ball.norm}", releases, curator, claim, max(2000, samples // 4)),
    ]


def _sided_case(samples: int) -> Case:
    """Return an attack on a curator's noise for vectors that are hardly negative, of two as far apart as any."""
    ball, side = SIDED, math.sqrt(1 - SIDED.below**2)
    ends = np.array([[side, -ball.below, 0.0, 0.0], [-ball.below, side, 0.0, 0.0]])

    def maker(end: NDArray[np.float64]) -> Maker:
        return lambda coins: BoundedVectors(coins, np.tile(end, (len(coins), 1)))

    curator = CentralVectors.calibrated(ball, 1.0, DELTA)
    people = Target(curator, (maker(ends[0]), maker(ends[1])), _maker(ball, 0.0), PEOPLE)
    return mechanism_case("release, hardly negative", releases, people, (1.0, DELTA), max(2000, samples // 4))


def _shuffled_cases(samples: int) -> list[Case]:
    bits = BitVectors.calibrated(BOX, 1.0, 0.01, PEOPLE)
    direction = VectorSymbol(BALL, amplified_local_epsilon(1.0, 0.01, 16 / 3, PEOPLE, 8.0), 8, 3, 11)
    several = VectorSymbol(BALL, _OF_TWO, 8, 3, 11, repeats=2)
    count = max(2000, samples // 20)
    return [
        mechanism_case("permuted batch", batches, target(direction), (1.0, 0.01), 2 * count),
        mechanism_case("permuted batch, two messages", batches, target(several), (1.0, 0.05), count),
        mechanism_case("summed batch", batches, target(bits), (1.0, 0.01), count),
    ]


def vector_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of vectors."""
    fair, unfair = BitVectors(_BALL, 2, 64, 0.5, 1), BitVectors(_BALL, 2, 80, 0.2, 1)
    return [
        _symbol_part("one of one's own symbols", VectorSymbol(_BALL, 2.0, 8, 3, 11)),
        *_message_parts(VectorSymbol(_BALL, 1.0, 4, 1, 11, repeats=2)),
        _coins_part(VectorSymbol(_BALL, 1.0, 4, 1, 11, repeats=2)),
        _device_part(),
        _curator_part(),
        _bits_part("fair bits", fair),
        _bits_part("unfair bits", unfair),
    ]


def _people(ball: Ball, who: int, count: int) -> BoundedVectors:
    """Return what people contribute who are beyond one corner of the box, or beyond the one opposite."""
    values = np.full((count, ball.coordinates), _BEYOND * (1 - 2 * who))
    return BoundedVectors(np.full(count, COIN, np.uint32), values)


def _symbol_part(name: str, mechanism: VectorSymbol) -> MechanismPart:
    symbols = mechanism.response.symbols
    rows = np.zeros(symbols, mechanism.randomize(_people(_BALL, 0, 1), SecureNoise()).dtype)
    rows["slot"], rows["symbol"] = COIN, np.arange(symbols)
    likely = np.exp([log_likelihood(mechanism, _people(_BALL, who, symbols), rows) for who in (0, 1)])

    def observe(who: int, count: int) -> Integers:
        sent = mechanism.randomize(_people(_BALL, who, count), SecureNoise())
        return mechanism.parse(sent.tobytes())["symbol"].astype(np.int64)

    outcomes = Outcomes(likely / likely.sum(axis=1, keepdims=True))
    event = Pure(mechanism.epsilon)
    return outcome_part(name, mechanism, model_of(reports), _SUBSETS, observe, outcomes, _SYMBOLS, event)


def _message_parts(mechanism: VectorSymbol) -> list[MechanismPart]:
    """Return each message as a part, and both: one names a direction of neighbour 0, of neighbour 1, or of neither."""
    share = mechanism.chosen / mechanism.response.symbols
    other = (1 - mechanism.response.gain) * share
    own = mechanism.response.gain + other
    one = np.array([[own, other, 1 - own - other], [other, own, 1 - own - other]])

    def both(who: int, count: int) -> Integers:
        sent = mechanism.randomize(_people(_BALL, who, count), SecureNoise())
        rows = mechanism.parse(sent.tobytes())
        made = [_people(_BALL, end, len(rows)).values for end in (0, 1)]
        sets = [mechanism.own(BoundedVectors(rows["slot"], values)) for values in made]
        named = [(symbols == rows["symbol"].astype(np.int64)[:, None]).any(axis=1) for symbols in sets]
        return np.where(named[0], 0, np.where(named[1], 1, 2)).reshape(count, 2)

    def joint(who: int, count: int) -> Integers:
        return np.asarray(both(who, count) @ [3, 1])

    pairs = Outcomes(np.array([np.outer(row, row).ravel() for row in one]))
    event, model = Pure(mechanism.epsilon), model_of(batches)
    alone = [
        outcome_part(
            f"the symbol of message {k + 1} of 2",
            mechanism,
            model,
            _SUBSETS,
            lambda who, count, k=k: both(who, count)[:, k],  # type: ignore[misc]
            Outcomes(one),
            _SYMBOLS,
            event,
        )
        for k in (0, 1)
    ]
    claim = Pure(mechanism.local_epsilon)
    return [
        *alone,
        outcome_part("both messages together", mechanism, model, _SUBSETS, joint, pairs, _SYMBOLS, claim),
    ]


def _coins_part(mechanism: VectorSymbol) -> MechanismPart:
    """Return the coins of the second message: they are uniform, whatever the first one's are, or they link the two."""

    def observe(who: int, count: int) -> Integers:
        made = _people(_BALL, who, count)
        made = BoundedVectors(SecureNoise().words(count).astype(np.uint32), made.values)
        sent = mechanism.parse(mechanism.randomize(made, SecureNoise()).tobytes())["slot"].reshape(count, 2)
        return np.ascontiguousarray(sent[:, ::-1]).astype("<u4").view(np.uint8).astype(np.int64)

    laws: tuple[Law, ...] = (UniformLaw(256),) * 8
    noise = Noise(laws, (0, 1, 2, 3), np.zeros((2, 8), np.int64))
    kind, model = type(mechanism).__name__, model_of(batches)
    return MechanismPart(
        "coins of message 2 of 2",
        kind,
        model,
        "tight",
        "VectorSymbol.randomize",
        None,
        0.0,
        observe,
        noise.score,
        noise.surprise,
        _SYMBOLS,
    )


def _device_part() -> MechanismPart:
    mechanism = GaussianVectors(_BALL, GRID * _BALL.coordinates**0.5)

    def observe(who: int, count: int) -> Integers:
        sent = mechanism.randomize(_people(_BALL, who, count), SecureNoise())
        return mechanism.parse(sent.tobytes()).astype(np.int64)

    noise = _normal(mechanism.standard_deviation, _BALL.coordinates)
    sampler = "RoundedNormal.draw"
    return noise_part("noise of a device", mechanism, model_of(reports), sampler, observe, noise, _NOISE)


def _normal(deviation: float, coordinates: int) -> Noise:
    ends = GRID * np.array([[1], [-1]]) * np.ones(coordinates, np.int64)
    return Noise((NormalLaw(deviation),) * coordinates, tuple(range(coordinates)), ends)


def _curator_part() -> MechanismPart:
    """Return the noise of a release, of which every three coordinates are an observation."""
    size = _BALL.coordinates
    mechanism = CentralVectors(_BALL, GRID * size**0.5)

    def observe(who: int, count: int) -> Integers:
        wide = msgspec.structs.replace(mechanism, ball=Ball("max", 1.0, count * size))
        exact = wide.randomize(_people(wide.ball, who, 1), SecureNoise())
        release = wide.release(wide.add(wide.empty(), exact), SecureNoise())
        return np.rint(release.sums / wide.ball.step).astype(np.int64).reshape(count, size)

    noise = _normal(mechanism.standard_deviation, size)
    sampler = "RoundedNormal.draw"
    return noise_part("noise of a release", mechanism, model_of(releases), sampler, observe, noise, _NOISE)


def _bits_part(name: str, mechanism: BitVectors) -> MechanismPart:
    """Return the sum of one person's bits in each coordinate as a part."""
    size, bits = mechanism.ball.coordinates, mechanism.bits
    ends = mechanism.levels * np.array([[1], [0]]) * np.ones(size, np.int64)
    noise = Noise((BinomialLaw(bits, mechanism.probability),) * size, tuple(range(size)), ends)

    def observe(who: int, count: int) -> Integers:
        sent = mechanism.randomize(_people(mechanism.ball, who, count), SecureNoise())
        return np.array([mechanism.add(mechanism.empty(), mechanism.parse(one.tobytes())).sums for one in sent])

    event = ShuffledBits(bits, mechanism.probability, mechanism.levels, size)
    model = model_of(batches)
    return noise_part(name, mechanism, model, "binomial", observe, noise, _BITS, event=event, delta=0.01)
