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
    classes
        Public classes of people, told by the coins of a report (`privateer.coins.classes_of`): the sum of each class is
        wanted, where reports carry coins and are added up by themselves.
    normal
        Whether devices are to add normal noise, as a paper's do with which others are compared.
    """

    ball: Ball
    seed: int = 0
    classes: int = 1
    normal: bool = False


class DirectedSum(VectorSum):
    """The sum of vectors in an L2 ball, few coordinates of which are large at a time: a direction says most of one.

    Where batches are shuffled, everybody's one symbol is amplified, as bits in every coordinate would hide a whole box.
    """


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
