"""What a round asks of people: one of the statistical primitives, with its sizes."""

from dataclasses import dataclass
from typing import TypeAlias

from privateer.coins import Layout, SlotLayout
from privateer.vectors import Ball


@dataclass(frozen=True)
class KeyedMeans:
    """A value for one key per person; the mean value per key is wanted.

    Attributes
    ----------
    layout
        Keys and groups of the round.
    undecided
        Share of people who are expected to have a key, in [0, 1].
    key_share
        Share of people who are expected to have a typical key.
    """

    layout: Layout
    undecided: float = 1.0
    key_share: float = 1.0


@dataclass(frozen=True)
class VectorSum:
    """A bounded vector per person; the sum of the vectors is wanted.

    Attributes
    ----------
    ball
        Where the vectors lie.
    seed
        Public seed of the round, 64 bits.
    """

    ball: Ball
    seed: int = 0


@dataclass(frozen=True)
class KeyedHits:
    """A value for one of a few named keys per person; how many have each key, and their values, are wanted.

    Attributes
    ----------
    layout
        Keys and groups of the round.
    """

    layout: SlotLayout


Question: TypeAlias = KeyedMeans | KeyedHits | VectorSum
