"""Defects of single parts: each has less noise than it should, or that of another draw, and all other parts are right.

Constants and samplers are patched from outside; ``factor`` is how many times too little noise there is.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privateer_client.participation import Participation
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.vectors import vector_bits
from privateer_core.mechanisms.vectors.running_vectors import Factorization
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import RoundedNormal
from privateer_core.sampling.response import RandomizedResponse, SubsetResponse
from privateer_lab.audit.mechanisms.hits import PRODUCTS
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_shuffler.shuffle import RandomPlaces
from tests.privacy.planted_screening import Less, Patch, Reused, block, both_choices, choice

Where = Callable[[Any, Any], Any]


class Same:
    """Words of a source, the first of each row of draws for all of them: everybody's noise is one person's."""

    def __init__(self, noise: Any, rows: int) -> None:
        self._noise, self._rows = noise, rows

    def words(self, count: int) -> Any:
        made = self._noise.words(count).reshape(self._rows, -1)
        return np.repeat(made[:, :1], made.shape[1], axis=1).ravel()


# Symbols


def _symbols(kind: type, where: Where) -> tuple[Less, Reused]:
    """Truths for which ``where`` (mechanism's response, truth) holds are randomized wrongly."""
    made = kind.randomize

    def less(patch: Patch, factor: int) -> None:
        def weak(self: Any, truth: Any, noise: Any) -> Any:
            weaker = made(replace(self, epsilon=factor * self.epsilon), truth, noise)
            return np.where(where(self, truth), weaker, made(self, truth, noise)).astype(np.uint16)

        patch.setattr(kind, "randomize", weak)

    def reused(patch: Patch) -> None:
        rows = 2 if kind is RandomizedResponse else 3

        def same(self: Any, truth: Any, noise: Any) -> Any:
            return np.where(where(self, truth), made(self, truth, Same(noise, rows)), made(self, truth, noise))

        patch.setattr(kind, "randomize", lambda *arguments: same(*arguments).astype(np.uint16))

    return less, reused


def _own(response: RandomizedResponse, truth: Any) -> Any:
    return (truth >= 0) & ((response.symbols % 2 == 0) | (truth < response.symbols - 1))


def _elsewhere(response: RandomizedResponse, truth: Any) -> Any:
    return (response.symbols % 2 == 1) & (truth == response.symbols - 1)


def _without_a_key() -> tuple[Less, Reused]:
    made = RandomizedResponse.randomize

    def less(patch: Patch, factor: int) -> None:
        def few(self: Any, truth: Any, noise: Any) -> Any:
            told = made(self, truth, noise)
            return np.where(truth < 0, told % max(1, self.symbols // factor), told).astype(np.uint16)

        patch.setattr(RandomizedResponse, "randomize", few)

    return less, _symbols(RandomizedResponse, lambda _, truth: truth < 0)[1]


def _message(which: int) -> tuple[Less, Reused]:
    """The messages of a person stand beside each other."""
    return _symbols(SubsetResponse, lambda _, own: np.arange(len(own)) % 2 == which)


def _both_messages() -> tuple[Less, Reused]:
    made = SubsetResponse.randomize

    class Paired:
        def __init__(self, noise: Any) -> None:
            self._noise = noise

        def words(self, count: int) -> Any:
            return np.repeat(self._noise.words(count // 2), 2)

    def reused(patch: Patch) -> None:
        patch.setattr(SubsetResponse, "randomize", lambda self, own, noise: made(self, own, Paired(noise)))

    return _symbols(SubsetResponse, lambda _, own: np.ones(len(own), bool))[0], reused


def _message_coins() -> tuple[Less, Reused]:
    made = VectorSymbol.randomize

    class First:
        """Changes the first words that are asked for."""

        def __init__(self, noise: Any, change: Callable[[Any], Any]) -> None:
            self._noise, self._change = noise, change

        def words(self, count: int) -> Any:
            words, self._change = self._change(self._noise.words(count)), lambda words: words
            return words

    def less(patch: Patch, factor: int) -> None:
        mask = np.uint64((1 << 32 // factor) - 1)
        patch.setattr(
            VectorSymbol,
            "randomize",
            lambda self, people, noise: made(self, people, First(noise, lambda words: words & mask)),
        )

    def reused(patch: Patch) -> None:
        patch.setattr(
            VectorSymbol,
            "randomize",
            lambda self, people, noise: made(
                self, people, First(noise, lambda words: people.coins.astype(np.uint64) if len(words) else words)
            ),
        )

    return less, reused


# Numbers


def _drawn(kind: type, own: Any) -> tuple[Less, Reused]:
    """Noise that reaches ``_released`` of a mechanism: ``own`` (total) tells which of it is the part's."""
    made: Any = kind._released  # type: ignore[attr-defined]

    def change(patch: Patch, how: Callable[[Any, Any], Any]) -> None:
        def wrong(self: Any, total: Any, drawn: Any) -> Any:
            drawn = drawn.copy()
            part = np.arange(len(drawn))[own(total)]
            drawn[part] = how(drawn, part)
            return made(self, total, drawn)

        patch.setattr(kind, "_released", wrong)

    def reused(patch: Patch) -> None:
        # The noise of other numbers of the same release.
        change(patch, lambda drawn, part: np.resize(np.delete(drawn, part), len(part)))

    return lambda patch, factor: change(patch, lambda drawn, part: drawn[part] // factor), reused


def _columns(kind: type, sampler: type, count: int, own: slice) -> tuple[Less, Reused]:
    """Noise of reports: ``own`` among ``count`` numbers of a person."""
    made: Any = sampler.draw  # type: ignore[attr-defined]

    def change(patch: Patch, how: Callable[[Any], Any]) -> None:
        def wrong(self: Any, asked: int, noise: Any) -> Any:
            drawn = made(self, asked, noise).reshape(-1, count).copy()
            drawn[:, own] = how(drawn)
            return drawn.ravel()

        patch.setattr(sampler, "draw", wrong)

    def reused(patch: Patch) -> None:
        change(patch, lambda drawn: np.roll(drawn, drawn.shape[1] // 2, axis=1)[:, own] if count > 3 else drawn[:, :1])

    assert kind
    return lambda patch, factor: change(patch, lambda drawn: drawn[:, own] // factor), reused


def _step(step: int) -> tuple[Less, Reused]:
    """Fresh noise of one release; of the fourth, which begins anew, where three were before it."""
    made = Factorization.following

    def change(patch: Patch, how: Callable[[Any, Any], Any]) -> None:
        calls: list[Any] = []

        def wrong(self: Any, fresh: Any, earlier: Any) -> Any:
            calls.append(fresh)
            if len(calls) % 4 == step % 4:
                fresh = how(fresh, calls[-2] if len(calls) % 4 != 1 else np.full_like(fresh, fresh[0]))
            return made(self, fresh, earlier)

        patch.setattr(Factorization, "following", wrong)

    return (
        lambda patch, factor: change(patch, lambda fresh, _: fresh // factor),
        lambda patch: change(patch, lambda _, before: before),
    )


def _bits() -> tuple[Less, Reused]:
    made = vector_bits.binomial

    def less(patch: Patch, factor: int) -> None:
        def weak(count: int, trials: int, probability: float, noise: Any) -> Any:
            few = trials // factor**2
            return made(count, few, probability, noise) + round((trials - few) * probability)

        patch.setattr(vector_bits, "binomial", weak)

    def reused(patch: Patch) -> None:
        patch.setattr(vector_bits, "binomial", lambda count, *rest: np.repeat(made(-(-count // 3), *rest), 3)[:count])

    return less, reused


# Devices and the shuffler


def _coins() -> tuple[Less, Reused]:
    made = Participation.coins

    def less(patch: Patch, factor: int) -> None:
        mask = np.uint32((1 << 32 // factor) - 1)
        patch.setattr(Participation, "coins", lambda self, people: made(self, people) & mask)

    def reused(patch: Patch) -> None:
        patch.setattr(Participation, "coins", lambda self, people: np.repeat(made(self, 1), people))

    return less, reused


def _coins_after_a_start() -> tuple[Less, Reused]:
    """A device that starts again has a part of its coins again, or all of them."""
    made = Participation.coins

    def kept(patch: Patch, mask: int) -> None:
        drawn: list[Any] = []

        def wrong(self: Any, people: int) -> Any:
            drawn.append(made(self, people))
            if len(drawn) % 2:
                return drawn[-1]
            return (drawn[-2] & np.uint32(mask)) | (drawn[-1] & ~np.uint32(mask))

        patch.setattr(Participation, "coins", wrong)

    return (
        lambda patch, factor: kept(patch, (1 << 32 - 32 // factor) - 1),
        lambda patch: kept(patch, (1 << 32) - 1),
    )


def _places() -> tuple[Less, Reused]:
    made = RandomPlaces.__init__

    def below(patch: Patch, how: Callable[[Any, int], int]) -> None:
        patch.setattr(
            RandomPlaces, "__init__", lambda self, free, draw: made(self, free, lambda count: how(draw, count))
        )

    return (
        lambda patch, factor: below(patch, lambda draw, count: draw(max(1, count // factor))),
        lambda patch: below(patch, lambda _draw, _count: 0),
    )


_OWN = _symbols(RandomizedResponse, _own)
_SUBSET = _symbols(SubsetResponse, lambda _, own: np.ones(len(own), bool))
_SUMS = _drawn(CentralSums, lambda total: slice(0, total.sums.size))
_HITS = _drawn(CentralSums, lambda total: slice(total.sums.size, None))

PLANTED: dict[tuple[str, str], tuple[Less, Reused]] = {
    ("SignedSymbol", "one of 2 symbols"): _OWN,
    ("SignedSymbol", "one of 9 symbols"): _OWN,
    ("SignedSymbol", "the symbol elsewhere"): _symbols(RandomizedResponse, _elsewhere),
    ("SignedSymbol", "the symbol of people without a key"): _without_a_key(),
    ("EventSymbol", "the symbol of an event"): _OWN,
    ("EventSymbol", "the symbol of people without an event"): _symbols(RandomizedResponse, lambda _, truth: truth == 0),
    ("EventSymbol", "the symbol that names a key"): _OWN,
    ("GroupedBit", "the bit of a group"): _OWN,
    ("GroupedBit", "the bit of people without a value"): _without_a_key(),
    ("NamedSymbol", "a symbol of one's key"): _OWN,
    ("NamedSymbol", "a symbol of one's bucket"): _OWN,
    ("NamedSymbol", "the symbol of people without a key"): _without_a_key(),
    ("LaplaceCells", "rewards of all cells"): _columns(LaplaceCells, DiscreteLaplace, 4, slice(0, 2)),
    ("LaplaceCells", "counts of all cells"): _columns(LaplaceCells, DiscreteLaplace, 4, slice(2, 4)),
    ("CentralSums", "normal noise of sums"): _SUMS,
    ("CentralSums", "Laplace noise of sums"): _SUMS,
    ("CentralSums", "normal noise of people per key"): _HITS,
    ("CentralSums", "Laplace noise of people per key"): _HITS,
    ("NamedSymbol", "a level of one's key"): _OWN,
    **{
        ("CellTriples", name): _drawn(
            CellTriples, lambda total, at=at: slice(at * total.cells[0].size, (at + 1) * total.cells[0].size)
        )
        for at, name in enumerate(("sums of squares", "sums of products with the rest", "sums of squares of the rest"))
    },
    **{
        ("CellProducts", name): _drawn(
            CellProducts, lambda total, at=at: slice(at * total.cells[0].size, (at + 1) * total.cells[0].size)
        )
        for at, name in enumerate(PRODUCTS)
    },
    ("CellPairs", "sums of values"): _drawn(CellPairs, lambda total: slice(0, total.cells[0].size)),
    ("CellPairs", "sums of the rest"): _drawn(CellPairs, lambda total: slice(total.cells[0].size, None)),
    ("VectorSymbol", "one of one's own symbols"): _SUBSET,
    ("VectorSymbol", "the symbol of message 1 of 2"): _message(0),
    ("VectorSymbol", "the symbol of message 2 of 2"): _message(1),
    ("VectorSymbol", "both messages together"): _both_messages(),
    ("VectorSymbol", "coins of message 2 of 2"): _message_coins(),
    ("GaussianVectors", "noise of a device"): _columns(GaussianVectors, RoundedNormal, 3, slice(None)),
    ("CentralVectors", "noise of a release"): _columns(CentralVectors, RoundedNormal, 3, slice(None)),
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
    ("channels", "coins of a device"): _coins(),
    ("channels", "coins of a device that starts again"): _coins_after_a_start(),
    ("channels", "places of a batch"): _places(),
    ("channels", "places of one kind in a batch of kinds"): _places(),
}
"""By mechanism and part: too little noise there, and noise that is drawn elsewhere or once for many."""
