"""The row of a design matrix that a person's context makes, and the links from x theta to the expected reward."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.columns import Block, clipped_columns
from privateer_core.spec.features import Feature

Array = NDArray[np.float64]
_CIRCLE: Final = ("sine", "cosine")
_NUMBER: Final = 0.16
_RARE: Final = 0.1
"""Assumed variance of a number, and share of missing ones."""
_SURE: Final = 0.02
"""No reward is predicted closer to 0 or 1 than this: residuals are divided by the larger of the distances."""


@dataclass(frozen=True)
class DesignMatrix:
    """The map from columns in [0, 1] to the coordinates of a context: 1, and those of each block of columns.

    A number is in [-1, 1], one that comes round is a point of the unit circle, yes and no are 1 and -1, and one of
    several levels is one-hot, of length 1: nobody's row is longer than sqrt(1 + features), and what is beyond the
    columns' bounds is clipped to them.
    """

    blocks: tuple[Block, ...]  # what the columns are

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return 1 + sum(map(width, self.blocks))

    def rows(self, contexts: Array) -> Array:
        """Return the coordinates (n, dimension) of contexts (n, columns)."""
        clipped = clipped_columns(contexts)
        rows, start = [np.ones((len(contexts), 1))], 0
        for before, block in zip((None, *self.blocks), self.blocks, strict=False):
            own = clipped[:, start : start + block.columns]
            if block.flags and before and before.cyclic:
                rows[-1] *= 1 - own  # who has no number is at the centre of the circle
            rows.append(_coordinates(block, own))
            start += block.columns
        return np.concatenate(rows, axis=1)

    @property
    def length(self) -> float:
        """The most that a row is long."""
        return float(np.sqrt(1 + sum(not block.flags for block in self.blocks)))

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which coordinates (dimension - 1,) are in [-1, 1] and not of levels: numbers, answers and flags."""
        return np.concatenate([np.full(width(block), width(block) == 1 or block.cyclic) for block in self.blocks])

    @property
    def signs(self) -> NDArray[np.bool_]:
        """Which coordinates (dimension - 1,) are answers of yes or no: 1 or -1."""
        answers = [width(block) == 1 and bool(block.codes) and not block.flags for block in self.blocks]
        return np.repeat(answers, [width(block) for block in self.blocks])

    def names(self, features: Mapping[str, Feature]) -> list[str]:
        """Name the coordinates, for people."""
        found = ["1"]
        for name, feature in features.items():
            for block in feature.blocks:
                one = f"{name} is missing" if block.flags else name
                said = _CIRCLE if block.cyclic else [f"level {k}" for k in range(1, width(block) + 1)]
                found += [one] if width(block) == 1 else [f"{name}, {what}" for what in said]
        return found


def width(block: Block) -> int:
    """Return the number of coordinates of a block."""
    return len(_CIRCLE) if block.cyclic else len(block.codes) if len(block.codes) > 2 else 1


def _coordinates(block: Block, columns: Array) -> Array:
    if block.flags:
        return columns
    if block.cyclic:
        return np.concatenate([np.sin(2 * np.pi * columns), np.cos(2 * np.pi * columns)], axis=1)
    if width(block) == 1:
        return 2 * columns - 1
    powers = 2.0 ** np.arange(block.columns - 1, -1, -1)
    codes = np.rint(columns) @ powers
    return np.asarray(codes[:, None] == np.array(block.codes), np.float64)


def prior_moments(design: DesignMatrix) -> Array:
    """Return what is assumed of the second moments (d, d) of rows before anybody reports.

    Numbers are around the middle of their range, with a standard deviation of .4 of its half; levels, and the numbers
    of a circle, are as likely.
    """
    middles, spread, start = [np.ones(1)], np.zeros((design.dimension, design.dimension)), 1
    for block in design.blocks:
        size = width(block)
        likely = np.full(size, 0.0 if block.cyclic else 1 / size if size > 1 else _RARE if block.flags else 0.0)
        middles.append(likely)
        variance = np.where(likely > 0, likely, 1.0 if block.codes else 1 / size if block.cyclic else _NUMBER)
        own = slice(start, start := start + size)
        spread[own, own] = np.diag(variance) - np.outer(likely, likely)
    middle = np.concatenate(middles)
    return spread + np.outer(middle, middle)


@dataclass(frozen=True)
class Link:
    """A link, for rewards in [0, 1]."""

    name: str  # what specs call it
    centre: float  # x theta of an expected reward of 1/2
    scale: float  # how much x theta changes where the expected reward, near 1/2, changes by 1
    unit: str  # what x theta is in, for people

    def means(self, products: Array) -> Array:
        """Return expected rewards, away from 0 and 1, at products x theta of any shape."""
        if self.name == "identity":
            return np.asarray(np.minimum(np.maximum(products, _SURE), 1 - _SURE))
        return np.asarray(_SURE + (1 - 2 * _SURE) * (1 + np.tanh(products / 2)) / 2)

    def prior_scale(self, rate: float) -> float:
        """Return how much x theta may differ between arms, by `scale`, where the mean reward is ``rate``.

        Differences of mean rewards are in proportion to their variance, as those of log odds are; these stay.
        """
        return self.scale * (4 * rate * (1 - rate) if self.name == "identity" else 1.0)

    def truths(self, products: Array) -> Array:
        """Return the expected rewards that the model says, however close to 0 and 1; the identity's may be beyond."""
        return products if self.name == "identity" else np.asarray((1 + np.tanh(products / 2)) / 2)

    def product(self, truth: float) -> float:
        """Return the x theta of an expected reward strictly between 0 and 1."""
        return truth if self.name == "identity" else math.log(truth / (1 - truth))

    def slopes(self, products: Array) -> Array:
        """Return the derivative of `truths`."""
        if self.name == "identity":
            return np.ones_like(products)
        truths = self.truths(products)
        return np.asarray(truths * (1 - truths))


LINKS: Final = {
    link.name: link
    for link in (
        Link("identity", 0.5, 1.0, "the mean reward, from 0 at its lower bound to 1 at its upper one"),
        Link("logistic", 0.0, 4.0, "log odds of the mean reward, from 0 at its lower bound to 1 at its upper one"),
    )
}
