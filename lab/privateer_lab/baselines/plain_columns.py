"""Contexts as people code them for a library: numbers and flags in columns, and levels by number or one-hot."""

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.columns import Block

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlainColumns:
    """The columns of a spec's contexts, from those that devices encode; of a spec without features there are none.

    Attributes
    ----------
    numbers
        Shape (numbers,): which encoded columns are numbers, or flags that say whether one is missing.
    flags
        Shape (numbers,): which of these are flags.
    levels
        Shape (features with levels,): how many levels each has.
    """

    def __init__(self, spec: ArmsSpec) -> None:
        blocks = [block for feature in spec.features.values() for block in feature.blocks]
        starts = np.cumsum([0, *(block.columns for block in blocks)])
        own = [(int(start), block.flags) for start, block in zip(starts, blocks, strict=False) if _is_column(block)]
        self.numbers: Ints = np.array([start for start, _ in own], np.int64)
        self.flags = np.array([flag for _, flag in own], np.bool_)
        self._cells = Cells.of(spec.features, 1)
        coded = [(place, one.count) for place, one in enumerate(self._cells.features) if one.codes]
        self._places: Ints = np.array([place for place, _ in coded], np.int64)
        self.levels: Ints = np.array([count for _, count in coded], np.int64)

    def level_numbers(self, contexts: Array) -> Ints:
        """Return each person's level of each feature that has levels, (n, features), from 0."""
        if not len(self.levels):
            return np.zeros((len(contexts), 0), np.int64)
        return np.asarray(self._cells.locate(contexts)[:, self._places] - self._cells.starts[self._places])

    def table(self, contexts: Array) -> Array:
        """Return numbers and flags in [0, 1], and then levels by their numbers, (n, columns)."""
        return np.concatenate([contexts[:, self.numbers], self.level_numbers(contexts)], axis=1)

    def one_hot(self, contexts: Array) -> Array:
        """Return a constant, numbers and flags in [-1, 1], and 1 in the column of each level that somebody has."""
        found = np.zeros((len(contexts), 1 + len(self.numbers) + int(self.levels.sum())))
        found[:, 0] = 1.0
        found[:, 1 : 1 + len(self.numbers)] = 2 * contexts[:, self.numbers] - 1
        starts = 1 + len(self.numbers) + np.cumsum(self.levels) - self.levels
        np.put_along_axis(found, self.level_numbers(contexts) + starts, 1.0, axis=1)
        return found

    def texts(self, contexts: Array) -> list[str]:
        """Return names and values as Vowpal Wabbit reads them: ``x0:0.5`` for a number, ``a3_12`` for a level."""
        names = [f"x{place}" for place in range(len(self.numbers))]
        numbers = (2 * contexts[:, self.numbers] - 1).tolist()
        tokens = [" ".join(map("{}:{:.6g}".format, names, row)) for row in numbers]
        if not len(self.levels):
            return tokens
        named = [f"a{place}_" for place in self._places]
        levels = self.level_numbers(contexts).tolist()
        return [
            " ".join([token, *map("{}{}".format, named, row)]).strip()
            for token, row in zip(tokens, levels, strict=True)
        ]


def _is_column(block: Block) -> bool:
    """Whether a block is one column that says how much, or whether: not the code of a level."""
    return block.flags or not block.codes
