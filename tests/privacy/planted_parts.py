"""Defects of single parts: a part has too little noise or the noise of another draw, and the rest is right.

Constants and samplers are patched from outside; ``factor`` is how many times too little noise there is.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from privateer_client.participation import Participation
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.server_noise import ServerNoise
from privateer_core.mechanisms.vectors import vector_bits
from privateer_core.mechanisms.vectors.row_sums import RowSums
from privateer_core.mechanisms.vectors.running_vectors import Factorization
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import RoundedNormal
from privateer_core.sampling.randomness import RandomizedResponse, SubsetResponse
from privateer_lab.audit.mechanisms.hits import PRODUCT_SUMS
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_shuffler.shuffle import ShuffledPlaces
from tests.privacy.planted_screening import Patch, ReduceNoise, ReuseNoise, block, both_choices, choice

IsAffected = Callable[[Any, Any], Any]


class SameWords:
    """Repeats the first word of each row of draws, so that all participants have the same noise."""

    def __init__(self, noise: Any, rows: int) -> None:
        self._noise, self._rows = noise, rows

    def words(self, count: int) -> Any:
        words_by_row = self._noise.words(count).reshape(self._rows, -1)
        return np.repeat(words_by_row[:, :1], words_by_row.shape[1], axis=1).ravel()


# Symbols


def _symbols(kind: Any, is_affected: IsAffected) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of symbols whose truth is affected, as ``is_affected`` (mechanism's response, truth) tells."""
    randomize = kind.randomize

    def reduce_noise(patch: Patch, factor: int) -> None:
        def randomize_weakly(self: Any, truth: Any, noise: Any) -> Any:
            weaker = randomize(msgspec.structs.replace(self, epsilon=factor * self.epsilon), truth, noise)
            return np.where(is_affected(self, truth), weaker, randomize(self, truth, noise)).astype(np.uint16)

        patch.setattr(kind, "randomize", randomize_weakly)

    def reuse_noise(patch: Patch) -> None:
        rows = 2 if kind is RandomizedResponse else 3

        def randomize_with_repeated_words(self: Any, truth: Any, noise: Any) -> Any:
            return np.where(
                is_affected(self, truth), randomize(self, truth, SameWords(noise, rows)), randomize(self, truth, noise)
            )

        patch.setattr(kind, "randomize", lambda *arguments: randomize_with_repeated_words(*arguments).astype(np.uint16))

    return reduce_noise, reuse_noise


def _is_own_level(response: RandomizedResponse, truth: Any) -> Any:
    return (truth >= 0) & ((response.symbols % 2 == 0) | (truth < response.symbols - 1))


def _is_another_level(response: RandomizedResponse, truth: Any) -> Any:
    return (response.symbols % 2 == 1) & (truth == response.symbols - 1)


def _without_a_key() -> tuple[ReduceNoise, ReuseNoise]:
    randomize = RandomizedResponse.randomize

    def reduce_noise(patch: Patch, factor: int) -> None:
        def randomize_among_few_symbols(self: Any, truth: Any, noise: Any) -> Any:
            symbols = randomize(self, truth, noise)
            return np.where(truth < 0, symbols % max(1, self.symbols // factor), symbols).astype(np.uint16)

        patch.setattr(RandomizedResponse, "randomize", randomize_among_few_symbols)

    return reduce_noise, _symbols(RandomizedResponse, lambda _, truth: truth < 0)[1]


def _message(index: int) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of one of the two messages of each participant, which are neighbours in the arrays."""
    return _symbols(SubsetResponse, lambda _, truth: np.arange(len(truth)) % 2 == index)


def _both_messages() -> tuple[ReduceNoise, ReuseNoise]:
    randomize = SubsetResponse.randomize

    class Pairs:
        def __init__(self, noise: Any) -> None:
            self._noise = noise

        def words(self, count: int) -> Any:
            return np.repeat(self._noise.words(count // 2), 2)

    def reuse_noise(patch: Patch) -> None:
        patch.setattr(SubsetResponse, "randomize", lambda self, truth, noise: randomize(self, truth, Pairs(noise)))

    return _symbols(SubsetResponse, lambda _, truth: np.ones(len(truth), bool))[0], reuse_noise


def _message_coins() -> tuple[ReduceNoise, ReuseNoise]:
    randomize = VectorSymbol.randomize

    class ChangedFirst:
        """Applies a change to the first words that are requested."""

        def __init__(self, noise: Any, change: Callable[[Any], Any]) -> None:
            self._noise, self._change = noise, change

        def words(self, count: int) -> Any:
            words, self._change = self._change(self._noise.words(count)), lambda words: words
            return words

    def reduce_noise(patch: Patch, factor: int) -> None:
        mask = np.uint64((1 << 32 // factor) - 1)
        patch.setattr(
            VectorSymbol,
            "randomize",
            lambda self, people, noise: randomize(self, people, ChangedFirst(noise, lambda words: words & mask)),
        )

    def reuse_noise(patch: Patch) -> None:
        patch.setattr(
            VectorSymbol,
            "randomize",
            lambda self, people, noise: randomize(
                self, people, ChangedFirst(noise, lambda words: people.coins.astype(np.uint64) if len(words) else words)
            ),
        )

    return reduce_noise, reuse_noise


# Numbers


def _release_noise(kind: type, select_part: Any) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of noise that reaches ``_build_release``: ``select_part`` (total) gives the part's indices."""
    build_release: Any = kind._build_release  # type: ignore[attr-defined]

    def change(patch: Patch, distort: Callable[[Any, Any], Any]) -> None:
        def build_with_distorted_noise(self: Any, total: Any, noise: Any) -> Any:
            noise = noise.copy()
            part = np.arange(len(noise))[select_part(total)]
            noise[part] = distort(noise, part)
            return build_release(self, total, noise)

        patch.setattr(kind, "_build_release", build_with_distorted_noise)

    def reuse_noise(patch: Patch) -> None:
        # The noise of other numbers of the same release.
        change(patch, lambda noise, part: np.resize(np.delete(noise, part), len(part)))

    return lambda patch, factor: change(patch, lambda noise, part: noise[part] // factor), reuse_noise


def _columns(kind: type, sampler: type, count: int, part: slice) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of noise in reports: ``part`` are the affected ones of a participant's ``count`` numbers."""
    draw: Any = sampler.draw  # type: ignore[attr-defined]

    def change(patch: Patch, distort: Callable[[Any], Any]) -> None:
        def draw_distorted(self: Any, n_draws: int, noise: Any) -> Any:
            rows = draw(self, n_draws, noise).reshape(-1, count).copy()
            rows[:, part] = distort(rows)
            return rows.ravel()

        patch.setattr(sampler, "draw", draw_distorted)

    def reuse_noise(patch: Patch) -> None:
        change(patch, lambda rows: np.roll(rows, rows.shape[1] // 2, axis=1)[:, part] if count > 3 else rows[:, :1])

    assert kind
    return lambda patch, factor: change(patch, lambda rows: rows[:, part] // factor), reuse_noise


def _step(step: int) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of the fresh noise of one release; the fourth release starts a new sequence after three."""
    correlate_noise = Factorization.correlate_noise

    def change(patch: Patch, distort: Callable[[Any, Any], Any]) -> None:
        calls: list[Any] = []

        def correlate_distorted(self: Any, fresh: Any, earlier: Any) -> Any:
            calls.append(fresh)
            if len(calls) % 4 == step % 4:
                fresh = distort(fresh, calls[-2] if len(calls) % 4 != 1 else np.full_like(fresh, fresh[0]))
            return correlate_noise(self, fresh, earlier)

        patch.setattr(Factorization, "correlate_noise", correlate_distorted)

    return (
        lambda patch, factor: change(patch, lambda fresh, _: fresh // factor),
        lambda patch: change(patch, lambda _, previous: previous),
    )


def _bits() -> tuple[ReduceNoise, ReuseNoise]:
    draw_binomial = vector_bits.draw_binomial

    def reduce_noise(patch: Patch, factor: int) -> None:
        def draw_fewer_trials(count: int, trials: int, probability: float, noise: Any) -> Any:
            n_trials = trials // factor**2
            return draw_binomial(count, n_trials, probability, noise) + round((trials - n_trials) * probability)

        patch.setattr(vector_bits, "draw_binomial", draw_fewer_trials)

    def reuse_noise(patch: Patch) -> None:
        patch.setattr(
            vector_bits,
            "draw_binomial",
            lambda count, *rest: np.repeat(draw_binomial(-(-count // 3), *rest), 3)[:count],
        )

    return reduce_noise, reuse_noise


# Two servers


def _server() -> tuple[ReduceNoise, ReuseNoise]:
    draw = ServerNoise.draw

    def reduce_noise(patch: Patch, factor: int) -> None:
        def draw_less(self: ServerNoise, count: int, noise: Any) -> Any:
            weaker = ServerNoise(self.standard_deviation / factor, self.scale / factor)
            return draw(weaker, count, noise)

        patch.setattr(ServerNoise, "draw", draw_less)

    def reuse_noise(patch: Patch) -> None:
        patch.setattr(ServerNoise, "draw", lambda self, count, noise: np.repeat(draw(self, 1, noise), count))

    return reduce_noise, reuse_noise


# Devices and the shuffler


def _coins() -> tuple[ReduceNoise, ReuseNoise]:
    draw_coins = Participation.draw_coins

    def reduce_noise(patch: Patch, factor: int) -> None:
        mask = np.uint32((1 << 32 // factor) - 1)
        patch.setattr(Participation, "draw_coins", lambda self, people: draw_coins(self, people) & mask)

    def reuse_noise(patch: Patch) -> None:
        patch.setattr(Participation, "draw_coins", lambda self, people: np.repeat(draw_coins(self, 1), people))

    return reduce_noise, reuse_noise


def _coins_after_a_start() -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of a device that repeats a part of its coins, or all of them, after a restart."""
    draw_coins = Participation.draw_coins

    def repeat_bits(patch: Patch, mask: int) -> None:
        coin_draws: list[Any] = []

        def draw_repeated(self: Any, people: int) -> Any:
            coin_draws.append(draw_coins(self, people))
            if len(coin_draws) % 2:
                return coin_draws[-1]
            return (coin_draws[-2] & np.uint32(mask)) | (coin_draws[-1] & ~np.uint32(mask))

        patch.setattr(Participation, "draw_coins", draw_repeated)

    return (
        lambda patch, factor: repeat_bits(patch, (1 << 32 - 32 // factor) - 1),
        lambda patch: repeat_bits(patch, (1 << 32) - 1),
    )


def _places() -> tuple[ReduceNoise, ReuseNoise]:
    init = ShuffledPlaces.__init__

    def patch_draw(patch: Patch, redraw: Callable[[Any, int], int]) -> None:
        patch.setattr(
            ShuffledPlaces, "__init__", lambda self, free, draw: init(self, free, lambda count: redraw(draw, count))
        )

    return (
        lambda patch, factor: patch_draw(patch, lambda draw, count: draw(max(1, count // factor))),
        lambda patch: patch_draw(patch, lambda _draw, _count: 0),
    )


_OWN_LEVEL = _symbols(RandomizedResponse, _is_own_level)
_SUBSET = _symbols(SubsetResponse, lambda _, truth: np.ones(len(truth), bool))
_SUMS = _release_noise(CentralSums, lambda total: slice(0, total.sums.size))
_HITS = _release_noise(CentralSums, lambda total: slice(total.sums.size, None))

PLANTED: dict[tuple[str, str], tuple[ReduceNoise, ReuseNoise]] = {
    ("SignedSymbol", "one of 2 symbols"): _OWN_LEVEL,
    ("SignedSymbol", "one of 9 symbols"): _OWN_LEVEL,
    ("SignedSymbol", "the symbol elsewhere"): _symbols(RandomizedResponse, _is_another_level),
    ("SignedSymbol", "the symbol of people without a key"): _without_a_key(),
    ("TieredSymbol", "the symbol of a tier"): _OWN_LEVEL,
    ("EventSymbol", "the symbol of an event"): _OWN_LEVEL,
    ("EventSymbol", "the symbol of people without an event"): _symbols(RandomizedResponse, lambda _, truth: truth == 0),
    ("EventSymbol", "the symbol that names a key"): _OWN_LEVEL,
    ("GroupedBit", "the bit of a group"): _OWN_LEVEL,
    ("GroupedBit", "the bit of people without a value"): _without_a_key(),
    ("NamedSymbol", "a symbol of one's key"): _OWN_LEVEL,
    ("NamedSymbol", "a symbol of one's bucket"): _OWN_LEVEL,
    ("NamedSymbol", "the symbol of people without a key"): _without_a_key(),
    ("LaplaceCells", "rewards of all cells"): _columns(LaplaceCells, DiscreteLaplace, 4, slice(0, 2)),
    ("LaplaceCells", "counts of all cells"): _columns(LaplaceCells, DiscreteLaplace, 4, slice(2, 4)),
    ("CentralSums", "normal noise of sums"): _SUMS,
    ("CentralSums", "Laplace noise of sums"): _SUMS,
    ("CentralSums", "normal noise of people per key"): _HITS,
    ("CentralSums", "Laplace noise of people per key"): _HITS,
    ("NamedSymbol", "a level of one's key"): _OWN_LEVEL,
    **{
        ("CellTriples", name): _release_noise(
            CellTriples, lambda total, at=at: slice(at * total.cells[0].size, (at + 1) * total.cells[0].size)
        )
        for at, name in enumerate(("sums of squares", "sums of products with the rest", "sums of squares of the rest"))
    },
    **{
        ("CellProducts", name): _release_noise(
            CellProducts, lambda total, at=at: slice(at * total.cells[0].size, (at + 1) * total.cells[0].size)
        )
        for at, name in enumerate(PRODUCT_SUMS)
    },
    ("CellPairs", "sums of values"): _release_noise(CellPairs, lambda total: slice(0, total.cells[0].size)),
    ("CellPairs", "sums of the rest"): _release_noise(CellPairs, lambda total: slice(total.cells[0].size, None)),
    ("VectorSymbol", "one of one's own symbols"): _SUBSET,
    ("VectorSymbol", "the symbol of message 1 of 2"): _message(0),
    ("VectorSymbol", "the symbol of message 2 of 2"): _message(1),
    ("VectorSymbol", "both messages together"): _both_messages(),
    ("VectorSymbol", "coins of message 2 of 2"): _message_coins(),
    ("GaussianVectors", "noise of a device"): _columns(GaussianVectors, RoundedNormal, 3, slice(None)),
    ("CentralVectors", "noise of a release"): _columns(CentralVectors, RoundedNormal, 3, slice(None)),
    ("RowSums", "noise of a release"): _columns(RowSums, RoundedNormal, 2, slice(None)),
    ("FeatureSums", "noise of a release"): _release_noise(FeatureSums, lambda total: slice(0, len(total.sums) // 2)),
    ("BitVectors", "fair bits"): _bits(),
    ("BitVectors", "unfair bits"): _bits(),
    **{
        ("RunningVectors", f"{kind}, noise of release {step}" + " after 3 steps" * (step > 3)): _step(step)
        for kind in ("root", "tree")
        for step in (1, 2, 3, 4)
    },
    ("ScreenedMoments", "the first of two choices"): choice(4),
    ("ScreenedMoments", "the second of two choices"): choice(3),
    ("ScreenedMoments", "a choice less what is predicted"): choice(4),
    ("ScreenedMoments", "both choices together"): both_choices(),
    ("ScreenedMoments", "block, squares of coordinates"): block(lambda row, column: (row == column) & (row < 4)),
    ("ScreenedMoments", "block, products of coordinates"): block(lambda row, column: (row < column) & (column < 4)),
    ("ScreenedMoments", "block, products with the value"): block(lambda row, column: (row < column) & (column == 4)),
    ("ScreenedMoments", "block, the square of the value"): block(lambda row, _: row == 4),
    ("SharedSums", "normal noise of a server"): _server(),
    ("SharedSums", "Laplace noise of a server"): _server(),
    ("SharedPairs", "noise of a server, bits"): _server(),
    ("SharedTriples", "noise of a server, numbers"): _server(),
    ("SharedProducts", "noise of a server, products"): _server(),
    ("channels", "coins of a device"): _coins(),
    ("channels", "coins of a device that starts again"): _coins_after_a_start(),
    ("channels", "places of a batch"): _places(),
    ("channels", "places of one kind in a batch of kinds"): _places(),
}
"""By mechanism and part: too little noise there, and noise that is drawn elsewhere or once for many."""
