"""Calibrations: the mechanism that answers a question, keeps a promise and says most; a function for each way to ask.

Each takes what is promised, the honest people of a round, the question, and what one of several reports of a person may
cost. The table of trust models says which serves whom.
"""

from collections.abc import Callable
from typing import Final, Protocol

from privateer_core.accounting.allotment import Allotment, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms import AnyMechanism
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import (
    FeatureMeans,
    KeyedHits,
    KeyedMeans,
    L2VectorSum,
    SecondMoments,
    VectorSum,
)
from privateer_core.sampling.response import SYMBOLS_MAX

_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of buckets among which answers about features are dealt."""


class Calibrated(Protocol):
    """The numbers of a promise."""

    @property
    def bound(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def local_epsilon_max(self) -> float: ...  # noqa: D102


def symbol(privacy: Calibrated, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Choose the symbol of the least noise: of a key's events, where they are expected to be rare, or a signed one."""
    promise = (privacy.bound, privacy.delta, honest, privacy.local_epsilon_max, share)
    signed = SignedSymbol.calibrated(question, *promise)
    if not EventSymbol.serves(question):
        return signed
    event = EventSymbol.calibrated(question, *promise)
    return event if event.variance(question) < signed.variance(question) else signed


def local_vectors(privacy: Calibrated, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Choose the mechanism of the least error; directions win unless delta is large (docs/privacy/vectors.md)."""
    if question.normal:
        return GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    symbol = VectorSymbol.calibrated(question.ball, privacy.bound, question.seed, question.classes)
    if privacy.delta == 0:
        return symbol
    gaussian = GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    return symbol if symbol.error < gaussian.error else gaussian


def local_symbols(privacy: Calibrated, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    """Return the symbol of a vector; bits in every coordinate would say less."""
    return VectorSymbol.calibrated(question.ball, privacy.bound, question.seed, question.classes)


def local_hits(privacy: Calibrated, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return the symbol that names keys, or few buckets of them."""
    return NamedSymbol.calibrated(question, privacy.bound)


def local_features(privacy: Calibrated, _honest: int, asked: FeatureMeans, _share: Allotment | None) -> AnyMechanism:
    """Return the symbol that says most of one cell of many."""
    return _dealt(asked, lambda _: privacy.bound)


def shuffled_features(privacy: Calibrated, honest: int, asked: FeatureMeans, share: Allotment | None) -> AnyMechanism:
    """Return the symbol that says most of one cell of many, with the same alphabet whatever coins ask."""
    limit = privacy.local_epsilon_max
    if not share:
        promise = (privacy.bound, privacy.delta)
        return _dealt(asked, lambda symbols: amplified_local_epsilon(*promise, symbols, honest, limit))
    # Guesses, which take a tenth of the time, say how many buckets tell most; that number is then proved.
    found = _dealt(asked, lambda symbols: allotted_local_epsilon(share, symbols, honest, limit, proved=False))
    return NamedSymbol(asked.layout, allotted_local_epsilon(share, 2 * found.buckets, honest, limit), found.buckets)


def _dealt(asked: FeatureMeans, local: Callable[[int], float]) -> NamedSymbol:
    """Return the symbol with the most informative number of buckets; ``local`` is its epsilon by its symbols."""
    keys, below = asked.layout.keys, asked.ball.below
    most = min(_BUCKETS[-1], keys)
    made = [NamedSymbol(asked.layout, local(2 * one), one) for one in _BUCKETS if one <= most]
    # A cell has few of the people, so that the reports of others are its noise.
    dealt = max(made, key=lambda one: one.response.gain**2 * one.buckets)
    if below == 1 or 2 * keys > SYMBOLS_MAX:
        return dealt
    # Where values are rare, hits with value 1 count and others do not: a bucket would mix in those of other keys.
    named = NamedSymbol(asked.layout, local(2 * keys), keys)
    gain, noise = named.response.gain, named.response.other * (1 + below**2)
    told = gain**2 / (noise + gain * below / keys)
    return named if told > dealt.response.gain**2 * dealt.buckets else dealt


def shuffled_hits(privacy: Calibrated, honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return the symbol that names keys, as large a local epsilon as the batch allows."""
    return NamedSymbol.amplified(question, privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)


def shuffled_means(privacy: Calibrated, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return bits, each group's as exact as its people allow, where groups may be seen; else the best symbol."""
    if question.seen:
        return GroupedBit.amplified(question, privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)
    return symbol(privacy, honest, question, share)


def shuffled_names(privacy: Calibrated, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Name the keys, unless they are too many for the local epsilons that the spec allows."""
    keys, limit = question.layout, privacy.local_epsilon_max
    if question.seen:
        return shuffled_means(privacy, honest, question, share)
    if keys.groups > 1 or not NamedSymbol.names(keys.keys, limit):
        return symbol(privacy, honest, question, share)
    return NamedSymbol.amplified(_named(keys), privacy.bound, privacy.delta, honest, limit)


def _named(layout: Layout) -> KeyedHits:
    return KeyedHits(SlotLayout(layout.seed, layout.thresholds))


def shuffled_vectors(privacy: Calibrated, honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Return bits in every coordinate, in messages of their own."""
    return BitVectors.calibrated(question.ball, privacy.bound, privacy.delta, honest)


def shuffled_directions(privacy: Calibrated, honest: int, asked: L2VectorSum, share: Allotment | None) -> AnyMechanism:
    """Return symbols of random directions."""
    promise, limit, classes = (privacy.bound, privacy.delta), privacy.local_epsilon_max, asked.classes
    return VectorSymbol.amplified(asked.ball, promise, honest, limit, share, asked.seed, classes, asked.messages)


def central_means(privacy: Calibrated, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Release pairs where counts are wanted and the promise is pure, or one report's alone; else sums.

    What an allotment of normal noise covers is a pure event of far more noise than that; and reports of one person must
    all keep the same allotment.
    """
    keys, pure = question.layout, share.pure if share else privacy.bound
    if question.counted and keys.groups == 1 and pure:
        return CellPairs.calibrated(_named(keys), pure)
    return CentralSums.calibrated(question, privacy.bound, privacy.delta, share)


def central_names(privacy: Calibrated, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Release pairs, which count people and rewards for a pure promise, unless normal sums have less noise."""
    pairs = CellPairs.calibrated(_named(question.layout), privacy.bound)
    sums = CentralSums.calibrated(question, privacy.bound, privacy.delta, share)
    return sums if not sums.scale and sums.standard_deviation**2 < 2 * pairs.noise else pairs


def central_hits(privacy: Calibrated, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return sums of the parts of values with discrete Laplace noise."""
    return _cells(question).calibrated(question, privacy.bound)


def exact_means(_: Calibrated, _honest: int, question: KeyedMeans, _share: Allotment | None) -> AnyMechanism:
    """Return sums without noise."""
    return CentralSums(question.layout)


def exact_hits(_: Calibrated, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return them without noise."""
    return _cells(question)(question.layout)


def _cells(question: KeyedHits) -> type[CellPairs]:
    if question.expected is None:
        return CellPairs
    return CellProducts if question.beside else CellTriples


def central_vectors(privacy: Calibrated, _honest: int, question: VectorSum, share: Allotment | None) -> AnyMechanism:
    """Return sums with normal noise: of a round, or of all rounds since the first."""
    if share:
        return CentralVectors(question.ball, share.standard_deviation * question.ball.diameter)
    if question.steps:
        return RunningVectors.running(question.ball, privacy.bound, privacy.delta, "root", question.steps)
    return CentralVectors.calibrated(question.ball, privacy.bound, privacy.delta)


def central_features(privacy: Calibrated, honest: int, asked: FeatureMeans, share: Allotment | None) -> AnyMechanism:
    """Ask everybody about one feature, for a pure promise, or about all at once, whichever tells more of a cell.

    If one in F people answers, each counts F times: noise of a sum has F^2 of the variance, and what people differ by
    has F. Noise of vectors has about F + 1, as one question is about nothing.
    """
    vectors = central_vectors(privacy, honest, asked, share)
    if share or not asked.answers or not isinstance(vectors, CentralVectors):
        return vectors
    pairs = CellPairs.calibrated(KeyedHits(SlotLayout.ungrouped(asked.answers, asked.seed)), privacy.bound)
    features, below = asked.features, asked.ball.below
    apart = (1 + below**2) * pairs.noise * features**2 + features * below * asked.people
    together = (vectors.standard_deviation * asked.ball.step) ** 2 * (features + 1) + below * asked.people
    return pairs if apart < together else vectors


def central_moments(privacy: Calibrated, _honest: int, asked: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    """Return second moments of the features that are kept, and of those that a screening finds."""
    return ScreenedMoments.calibrated(asked, privacy.bound, privacy.delta)


def exact_moments(_: Calibrated, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    """Return them without noise."""
    # Where nobody is asked the question may be one that no curator has.
    return ScreenedMoments.exact(question) if question.wanted else CentralVectors(question.ball, 0.0)


def exact_vectors(_: Calibrated, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Return sums without noise."""
    return CentralVectors(question.ball, 0.0)
