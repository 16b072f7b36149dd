"""Questions that a round asks its participants: each is a statistical primitive with its sizes."""

from typing import Self, TypeAlias

import msgspec
import numpy as np

from privateer_core.arrays import Array
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.row_ball import RowBall


class KeyedMeans(msgspec.Struct, frozen=True):
    """The question for the mean value per key, with a value for one key per participant."""

    layout: Layout  # keys and groups of the round
    undecided: float = 1.0  # expected share of participants with a key, in [0, 1]
    key_share: float = 1.0  # expected share of participants with a typical key
    # expected mean value, in [0, 1]; None: unknown. If values above 0 are rare, a report may contain an event or none,
    # and no other value.
    rate: float | None = None
    has_counts: bool = False  # whether the number of participants with each key is a result, too
    # whether an adversary may see the group that coins choose for a participant. There is one key then.
    has_visible_groups: bool = False


class SmallDomainMeans(KeyedMeans, frozen=True):
    """The question for the means of a few keys with one group, such as arms, each with many participants.

    If batches are shuffled, a symbol may name the key: then reports on other keys contain no information on it.
    """


class VectorSum(msgspec.Struct, frozen=True):
    """The question for the sum of the participants' bounded vectors."""

    ball: Ball  # ball of the vectors
    seed: int = 0  # public seed of the round, 64 bits
    # number of public classes of participants, from the coins of a report (`public_coins.coin_classes`): the sum of
    # each class is a result, if reports carry coins
    classes: int = 1
    needs_normal_noise: bool = False  # whether devices must add normal noise, as in a reference paper
    steps: int = 0  # number of rounds over which a curator releases running sums; 0: each round has its own sum


class L2VectorSum(VectorSum, frozen=True):
    """The question for the sum of vectors in an L2 ball with few large coordinates each, well described by a direction.

    If batches are shuffled, symbols are amplified, since bits in every coordinate would hide the whole box.
    """

    messages: int = 1  # largest number of symbols of a shuffled report, each in a message of its own
    rows: RowBall | None = None  # the vectors that a curator makes from records; None: participants send vectors


class SecondMoments(VectorSum, frozen=True):
    """The question for second moments of few of many features, which a screening selects.

    With a curator, a record has ``arms`` coordinates that indicate the arm, features, and a value, and second moments
    of the kept and the screened features are the result; otherwise a sum of vectors is.
    """

    arms: int = 0  # number of coordinates of which one is 1 and the others 0
    kept_features: tuple[int, ...] = ()  # indices of features that are in the block in any case
    screened: int = 0  # number of further features, with the largest products with the residual of the value
    # predictions of the value from the coordinate of an arm, and from each kept feature; empty: none
    predicted: tuple[float, ...] = ()

    @property
    def n_moment_features(self) -> int:
        """Number of features with second moments; 0: only a sum is the result."""
        return len(self.kept_features) + self.screened


class FeatureMeans(msgspec.Struct, frozen=True):
    """The question for the means of a value by the cells of several features at once.

    A curator gets the answers to all questions from each participant. Otherwise coins choose a question about a single
    feature, and a symbol answers it. All questions have one alphabet: the reports of a batch hide each other only if
    every symbol can answer every question.
    """

    # the groups of the layout are the questions, and its keys the answers to the question with most answers
    layout: SlotLayout
    arms: int = 1  # number of arms
    sizes: tuple[int, ...] = (1,)  # number of answers to each question of a curator
    counts_arms: bool = False  # whether a curator counts participants by arm and answer, not by answer alone
    below: float = 1.0  # absolute lower bound of values, at most 1: near 0 where values are hardly ever negative
    features: int = 1  # number of features
    people: float = 0.0  # mean number of participants of a small round with the same answer about a feature

    @property
    def n_keys(self) -> int:
        """Number of pairs of an arm and an answer to any question."""
        return self.arms * sum(self.sizes)

    @property
    def shares(self) -> Array:
        """Share of the coins that choose each question, (questions,)."""
        return np.asarray(self.layout.shares[0])


class KeyedHits(msgspec.Struct, frozen=True):
    """The question for counts and values of a few named keys, with a value for one key per participant."""

    layout: SlotLayout  # keys and groups of the round
    # expected mean of values in [0, 1], if their variance is a result, too. None: values are taken for bits, whose mean
    # determines the variance.
    expected: float | None = None
    # whether participants report a covariate beside the value, whose covariance with values is a result
    has_covariate: bool = False

    @classmethod
    def from_keys(cls, keys: int, seed: int = 0, expected: float | None = None) -> Self:
        """Return the question about ``keys`` with one group each; ``seed`` is public, of 64 bits."""
        return cls(SlotLayout.ungrouped(keys, seed), expected)


Question: TypeAlias = KeyedMeans | KeyedHits | FeatureMeans | VectorSum
