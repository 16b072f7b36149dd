"""Calibrations: functions that return the most informative mechanism for a question that keeps a promise.

Each takes a promise, the number of honest participants of a round, the question, and the allotment of a report. The
table of trust models selects the function.
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
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedProducts, SharedSums, SharedTriples
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.mechanisms.vectors.row_sums import RowSums
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
from privateer_core.sampling.randomness import SYMBOLS_MAX

_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of buckets to which answers about features may be dealt."""


class Guarantee(Protocol):
    """The numbers of a promise."""

    @property
    def bound(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def local_epsilon_max(self) -> float: ...  # noqa: D102
    @property
    def tier_shares(self) -> tuple[tuple[float, float], ...]: ...  # noqa: D102


def local_means(privacy: Guarantee, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return a symbol for each tier if participants choose theirs, else the symbol of the smallest variance."""
    if privacy.tier_shares:
        return TieredSymbol.calibrated(question, privacy.tier_shares)
    return choose_symbol(privacy, honest, question, share)


def choose_symbol(privacy: Guarantee, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Choose the symbol of the smallest variance: an event symbol, if events should be rare, or a signed symbol."""
    promise = (privacy.bound, privacy.delta, honest, privacy.local_epsilon_max, share)
    signed = SignedSymbol.calibrated(question, *promise)
    if not EventSymbol.can_serve(question):
        return signed
    event = EventSymbol.calibrated(question, *promise)
    return event if event.variance(question) < signed.variance(question) else signed


def local_vectors(privacy: Guarantee, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Choose the mechanism of the smallest error: directions unless delta is large (docs/privacy/vectors.md)."""
    if question.needs_normal_noise:
        return GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    symbol = VectorSymbol.calibrated(question.ball, privacy.bound, question.seed, question.classes)
    if privacy.delta == 0:
        return symbol
    gaussian = GaussianVectors.calibrated(question.ball, privacy.bound, privacy.delta)
    return symbol if symbol.error < gaussian.error else gaussian


def choose_hit_symbol(privacy: Guarantee, honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return the symbol that names keys, or without a batch a few buckets of keys."""
    if not honest:
        return NamedSymbol.calibrated(question, privacy.bound)
    return NamedSymbol.amplified(question, privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)


def local_features(privacy: Guarantee, _honest: int, question: FeatureMeans, _share: Allotment | None) -> AnyMechanism:
    """Return the most informative symbol on a single cell of many."""
    return _best_buckets(question, lambda _: privacy.bound)


def shuffled_features(privacy: Guarantee, honest: int, question: FeatureMeans, share: Allotment | None) -> AnyMechanism:
    """Return the most informative symbol on a single cell of many, with the same alphabet for all questions."""
    limit = privacy.local_epsilon_max
    if not share:
        promise = (privacy.bound, privacy.delta)
        return _best_buckets(question, lambda symbols: amplified_local_epsilon(*promise, symbols, honest, limit))
    # Uncertified epsilons, in a tenth of the time, select the number of buckets; its epsilon is then certified.
    guess = _best_buckets(question, lambda symbols: allotted_local_epsilon(share, symbols, honest, limit, proved=False))
    return NamedSymbol(question.layout, allotted_local_epsilon(share, 2 * guess.buckets, honest, limit), guess.buckets)


def _best_buckets(question: FeatureMeans, compute_epsilon: Callable[[int], float]) -> NamedSymbol:
    """Return the symbol with the best number of buckets; ``compute_epsilon`` maps symbols to a local epsilon."""
    keys, negative_share = question.layout.keys, question.below
    max_buckets = min(_BUCKETS[-1], keys)
    symbols = [NamedSymbol(question.layout, compute_epsilon(2 * n), n) for n in _BUCKETS if n <= max_buckets]
    # A cell has few of the participants, so that the reports of others are its noise.
    best = max(symbols, key=lambda candidate: candidate.response.gain**2 * candidate.buckets)
    if negative_share == 1 or 2 * keys > SYMBOLS_MAX:
        return best
    # If values are rare, only hits with value 1 are informative: a bucket would mix them with those of other keys.
    named = NamedSymbol(question.layout, compute_epsilon(2 * keys), keys)
    gain, noise = named.response.gain, named.response.other * (1 + negative_share**2)
    named_information = gain**2 / (noise + gain * negative_share / keys)
    return named if named_information > best.response.gain**2 * best.buckets else best


def shuffled_means(privacy: Guarantee, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return bits with the largest local epsilon of each group, if groups may be seen; else the best symbol."""
    if question.has_visible_groups:
        return GroupedBit.amplified(question, privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)
    return choose_symbol(privacy, honest, question, share)


def shuffled_names(privacy: Guarantee, honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return the symbol that names keys, unless they are too many for the local epsilons that the spec allows."""
    keys, limit = question.layout, privacy.local_epsilon_max
    if question.has_visible_groups:
        return shuffled_means(privacy, honest, question, share)
    if keys.groups > 1 or not NamedSymbol.can_name_keys(keys.keys, limit):
        return choose_symbol(privacy, honest, question, share)
    return NamedSymbol.amplified(_name_keys(keys), privacy.bound, privacy.delta, honest, limit)


def _name_keys(layout: Layout) -> KeyedHits:
    return KeyedHits(SlotLayout(layout.seed, layout.thresholds))


def shuffled_vectors(privacy: Guarantee, honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Return bits in every coordinate, each in a separate message."""
    return BitVectors.calibrated(question.ball, privacy.bound, privacy.delta, honest)


def shuffled_symbols(privacy: Guarantee, honest: int, question: L2VectorSum, share: Allotment | None) -> AnyMechanism:
    """Return symbols of random directions."""
    promise, sizes = (privacy.bound, privacy.delta), (question.seed, question.classes, question.messages)
    return VectorSymbol.amplified(question.ball, promise, honest, privacy.local_epsilon_max, share, *sizes)


def central_means(privacy: Guarantee, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return pairs if the question asks for counts and the promise is pure; else sums.

    An allotment of normal noise covers only pure events of far more noise; and all reports of a participant must keep
    the same allotment.
    """
    keys, pure = question.layout, share.pure if share else privacy.bound
    if question.has_counts and keys.groups == 1 and pure:
        return CellPairs.calibrated(_name_keys(keys), pure)
    return CentralSums.calibrated(question, privacy.bound, privacy.delta, share)


def central_names(privacy: Guarantee, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return pairs, which count participants and rewards for a pure promise, unless normal sums have less noise."""
    pairs = CellPairs.calibrated(_name_keys(question.layout), privacy.bound)
    sums = CentralSums.calibrated(question, privacy.bound, privacy.delta, share)
    return sums if not sums.scale and sums.standard_deviation**2 < 2 * pairs.noise else pairs


def central_hits(privacy: Guarantee, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return sums of the parts of values with discrete Laplace noise."""
    return _cell_sums(question).calibrated(question, privacy.bound)


def shared_means(privacy: Guarantee, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return votes with the kind of noise that a curator has for the question, so that no curator tells less."""
    keys, pure = question.layout, share.pure if share else privacy.bound
    if question.has_counts and keys.groups == 1 and pure:
        return SharedPairs.calibrated(_name_keys(keys), pure)
    return SharedSums.calibrated(question, privacy.bound, privacy.delta, share)


def shared_names(privacy: Guarantee, _honest: int, question: KeyedMeans, share: Allotment | None) -> AnyMechanism:
    """Return hits of votes with Laplace noise, unless normal noise has the smaller variance."""
    pairs = SharedPairs.calibrated(_name_keys(question.layout), privacy.bound)
    sums = SharedSums.calibrated(question, privacy.bound, privacy.delta, share)
    return sums if not sums.scale and sums.noise < pairs.noise else pairs


def shared_hits(privacy: Guarantee, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return votes for bits, or votes divided among the parts of numbers."""
    if question.expected is None:
        return SharedPairs.calibrated(question, privacy.bound)
    return (SharedProducts if question.has_covariate else SharedTriples).calibrated(question, privacy.bound)


def exact_means(_: Guarantee, _honest: int, question: KeyedMeans, _share: Allotment | None) -> AnyMechanism:
    """Return the sums of keyed means without noise."""
    return CentralSums(question.layout)


def exact_hits(_: Guarantee, _honest: int, question: KeyedHits, _share: Allotment | None) -> AnyMechanism:
    """Return the sums of the parts of values without noise."""
    return _cell_sums(question)(question.layout)


def _cell_sums(question: KeyedHits) -> type[CellPairs]:
    if question.expected is None:
        return CellPairs
    return CellProducts if question.has_covariate else CellTriples


def central_vectors(privacy: Guarantee, _honest: int, question: VectorSum, share: Allotment | None) -> AnyMechanism:
    """Return sums with normal noise: of a round, or running sums of all rounds."""
    rows, promise = question.rows if isinstance(question, L2VectorSum) else None, (privacy.bound, privacy.delta)
    if rows is None:
        return CentralVectors.calibrated(question.ball, *promise)
    if share:
        return RowSums(rows, share.standard_deviation * rows.sensitivity)
    if question.steps:
        return RunningVectors.from_promise(rows, *promise, "root", question.steps)
    return RowSums.calibrated(rows, *promise)


def central_features(privacy: Guarantee, _honest: int, question: FeatureMeans, share: Allotment | None) -> AnyMechanism:
    """Return pairs, about one feature per participant, or sums about all features, whichever has the smaller variance.

    If one in F participants answers, each counts F times: noise of a sum has F^2 of the variance, and the variance of
    answers has F. Noise of sums about all features has about F + 1, since one question is about no feature.
    """
    if share:
        return FeatureSums.with_noise(question, share.standard_deviation)
    sums = FeatureSums.calibrated(question, privacy.bound, privacy.delta)
    pairs = CellPairs.calibrated(KeyedHits(SlotLayout.ungrouped(question.n_keys, question.layout.seed)), privacy.bound)
    features, negative_share = question.features, question.below
    single = (1 + negative_share**2) * pairs.noise * features**2 + features * negative_share * question.people
    joint = sums.value_noise * (features + 1) + negative_share * question.people
    return pairs if single < joint else sums


def exact_features(_: Guarantee, _honest: int, question: FeatureMeans, _share: Allotment | None) -> AnyMechanism:
    """Return the sums about all features without noise."""
    return FeatureSums.without_noise(question)


def noisy_moments(privacy: Guarantee, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    """Return second moments of the kept features and of those that a screening selects."""
    return ScreenedMoments.calibrated(question, privacy.bound, privacy.delta)


def exact_moments(_: Guarantee, _honest: int, question: SecondMoments, _share: Allotment | None) -> AnyMechanism:
    """Return second moments without noise."""
    # If a round invites no participants, the question may be one that no curator has.
    return ScreenedMoments.without_noise(question) if question.n_moment_features else CentralVectors(question.ball, 0.0)


def exact_vectors(_: Guarantee, _honest: int, question: VectorSum, _share: Allotment | None) -> AnyMechanism:
    """Return the sums of vectors without noise."""
    rows = question.rows if isinstance(question, L2VectorSum) else None
    return RowSums(rows, 0.0) if rows else CentralVectors(question.ball, 0.0)
