"""Contexts as people code them for a library: numbers and flags in columns, and levels by number or one-hot."""

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.columns import Block

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlainColumns:
    """The columns of a spec's contexts, from those that devices encode; of a spec without features there are none."""

    def __init__(self, spec: ArmsSpec) -> None:
        blocks = [(place, block) for place, one in enumerate(spec.features.values()) for block in one.blocks]
        starts = np.cumsum([0, *(block.columns for _, block in blocks)]).tolist()
        own = [start for start, (_, block) in zip(starts, blocks, strict=False) if _is_column(block)]
        coded = [(start, *one) for start, one in zip(starts, blocks, strict=False) if not _is_column(one[1])]
        # shape (numbers,): which encoded columns are numbers, or flags that say whether one is missing
        self.numbers: Ints = np.array(own, np.int64)
        # shape (features with levels,): how many levels each has
        self.levels: Ints = np.array([len(block.codes) for _, _, block in coded], np.int64)
        self._names = [f"a{place}_" for _, place, _ in coded]
        self._coded = [(start, block) for start, _, block in coded]

    def level_numbers(self, contexts: Array) -> Ints:
        """Return each person's level of each feature that has levels, (n, features), from 0."""
        found = np.zeros((len(contexts), len(self._coded)), np.int64)
        for place, (start, block) in enumerate(self._coded):
            powers = 1 << np.arange(block.columns - 1, -1, -1)
            codes = np.rint(contexts[:, start : start + block.columns]) @ powers
            found[:, place] = np.searchsorted(block.codes, codes)
        return found

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
        levels = self.level_numbers(contexts).tolist()
        return [
            " ".join([token, *map("{}{}".format, self._names, row)]).strip()
            for token, row in zip(tokens, levels, strict=True)
        ]


def _is_column(block: Block) -> bool:
    """Whether a block is one column that says how much, or whether: not the code of a level."""
    return block.flags or not block.codes
