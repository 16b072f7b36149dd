"""Questions that a round asks of people: one of the statistical primitives each, with its sizes."""

from dataclasses import dataclass, field
from typing import Self, TypeAlias

from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout, SlotLayout


@dataclass(frozen=True)
class KeyedMeans:
    """A value for one key per person; the mean value per key is wanted."""

    layout: Layout  # keys and groups of the round
    undecided: float = 1.0  # share of people who are expected to have a key, in [0, 1]
    key_share: float = 1.0  # share of people who are expected to have a typical key
    # the mean value that is expected, in [0, 1]; None: nobody knows. Where values above 0 are rare, a report may say
    # that there is one, and nothing else.
    rate: float | None = None
    counted: bool = False  # whether how many people have each key is wanted as well
    # whether somebody may see the group that coins choose for a person, whoever they are. There is one key then.
    seen: bool = False


class SmallDomainMeans(KeyedMeans):
    """Means of a few keys of one group, such as arms, of which many people have each.

    Where batches are shuffled, a symbol may name the key: then reports on other keys say nothing of it.
    """


@dataclass(frozen=True)
class VectorSum:
    """A bounded vector per person; the sum of the vectors is wanted."""

    ball: Ball  # where the vectors lie
    seed: int = 0  # public seed of the round, 64 bits
    # public classes of people, told by the coins of a report (`coins.classes_of`): the sum of each class is wanted,
    # where reports carry coins and are added up by themselves
    classes: int = 1
    normal: bool = False  # whether devices are to add normal noise, as a paper's do with which others are compared
    steps: int = 0  # rounds of which a curator tells the sum since the first of them; 0: every round's for itself


@dataclass(frozen=True)
class L2VectorSum(VectorSum):
    """The sum of vectors in an L2 ball, few coordinates of which are large at a time: a direction says most of one.

    Where batches are shuffled, everybody's symbols are amplified, as bits in every coordinate would hide a whole box.
    """

    messages: int = 1  # the most symbols that a shuffled report may be, each in a message of its own


@dataclass(frozen=True)
class SecondMoments(VectorSum):
    """Sums about few of many coordinates, which are found on the way.

    Where a curator holds records, a record is ``arms`` coordinates that say which of them, features, and a value. Then
    second moments of the kept and the screened features are wanted; elsewhere a sum of vectors is.
    """

    arms: int = 0  # coordinates of which one is 1 and the others 0
    kept: tuple[int, ...] = ()  # features about which the round learns in any case
    screened: int = 0  # how many more it finds, whose products with the value, less what is predicted, are largest
    # what is predicted by the coordinate of an arm, and by each kept feature; empty: nothing
    predicted: tuple[float, ...] = ()

    @property
    def wanted(self) -> int:
        """Features whose second moments are wanted; 0: only a sum is."""
        return len(self.kept) + self.screened


@dataclass(frozen=True)
class FeatureMeans(VectorSum):
    """Means of one value by the cells of several features at once.

    A curator gets a vector of everybody, with all features. Elsewhere coins choose one question for a person, about one
    feature, and a symbol answers it. All questions have one alphabet: the people of a batch hide each other only if
    any symbol could have answered any of their questions.
    """

    # its groups are the questions, and its keys are answers, as many as the question with most answers has
    layout: SlotLayout = field(default_factory=lambda: SlotLayout.ungrouped(1, 0))
    answers: int = 0  # answers to all questions; 0: nobody is asked one of them alone
    features: int = 1  # how many features there are
    people: float = 0.0  # people of a small round who have one answer about a feature, on average


@dataclass(frozen=True)
class KeyedHits:
    """A value for one of a few named keys per person; how many have each key, and their values, are wanted."""

    layout: SlotLayout  # keys and groups of the round
    # the mean that values in [0, 1] are expected to have, where their variance is wanted, too. None: values are taken
    # for bits, whose mean tells the variance.
    expected: float | None = None
    # whether everybody tells a number beside the value, of which the covariance with values is wanted
    beside: bool = False

    @classmethod
    def of_keys(cls, keys: int, seed: int = 0, expected: float | None = None) -> Self:
        """Return the question about so many keys, of one group each; ``seed`` is public, of 64 bits."""
        return cls(SlotLayout.ungrouped(keys, seed), expected)


Question: TypeAlias = KeyedMeans | KeyedHits | VectorSum
