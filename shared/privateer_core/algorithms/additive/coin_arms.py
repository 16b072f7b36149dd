"""What people are asked where no crowd hides a report: coins give some of them an arm, others get the best one."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
Ints = NDArray[np.int64]
_COUNTED: Final = UNIT // 20
"""Coins, of `UNIT`, of people who say which cell they are in, and nothing else."""
_SEED: Final = 0
"""Coins mean the same in all rounds: whoever got an arm by coins and reports later is asked as such a person, or as one
of the others, who say which arm they had."""
LEVEL: Final = 0


@dataclass(frozen=True)
class CoinGroups:
    """The groups that coins divide people into."""

    arms: Ints  # shape (groups,): the arm that coins give; -1 in groups of people who get the best one
    asked: Ints  # shape (groups,): what they are asked, `LEVEL` or 1 + the feature
    counted: NDArray[np.bool_]  # shape (groups,): whether they say their cell alone
    ends: Ints  # shape (groups,): where each ends among coins, of `UNIT`


@dataclass(frozen=True)
class CoinArms:
    """The plan of a round.

    Every arm has as many coins as another. The first of them give it to a person, and the later the round, the fewer:
    nobody to whom coins of a round give an arm has had another one by coins of an earlier round.
    """

    playable: NDArray[np.bool_]  # shape (arms,): which arms are not retired
    given: int  # share of people, of `UNIT`, to whom coins give an arm
    # shape (2, features), uint32, rising: of the questions to people who get an arm by coins, and to the others, where
    # that about levels ends and that about each feature begins, of `UNIT`
    edges: NDArray[np.uint32]
    # shape (features,), int64: the question, of `Questions`, that is asked about each feature
    resolutions: NDArray[np.int64]

    @classmethod
    def even(cls, questions: Questions, playable: NDArray[np.bool_]) -> "CoinArms":
        """Return the plan that gives all arms by coins, and asks about every feature alike, in its own cells."""
        features = len(questions.cells.features)
        edges = np.rint((1 + np.arange(features)) * UNIT / (1 + features)).astype(np.uint32)
        return cls(playable, UNIT, np.stack([edges, edges]), finest(questions))

    @staticmethod
    def answers(questions: Questions, arms: int) -> int:
        """Return how many answers there are in all groups of coins, for so many arms."""
        features = len(questions.cells.features)
        return int(questions.sizes.max()) * arms * (2 * arms * (1 + features) + features)

    def fits(self, questions: Questions, playable: NDArray[np.bool_]) -> bool:
        """Whether a learner makes it."""
        features = len(questions.cells.features)
        typed = self.playable.dtype == np.bool_ and self.edges.dtype == np.uint32 and self.resolutions.dtype == np.int64
        if not typed or self.edges.shape != (2, features) or self.resolutions.shape != (features,):
            return False
        if self.playable.tolist() != playable.tolist() or not 0 <= self.given <= UNIT:
            return False
        rising = bool((np.diff(self.edges.astype(np.int64), prepend=0, append=UNIT) >= 0).all())
        named = ((self.resolutions > 0) & (self.resolutions < questions.count)).all()
        return rising and bool(named) and bool((questions.features[self.resolutions] == np.arange(features)).all())

    def agrees(self, earlier: "CoinArms | None") -> bool:
        """Whether an earlier plan gave the same arm to everybody to whom coins of this one give an arm."""
        if earlier is None or earlier.given < self.given:
            return False
        return bool(np.array_equal(earlier.playable, self.playable))

    @cached_property
    def groups(self) -> CoinGroups:
        """The groups of coins, in their order."""
        arms: list[int] = []
        asked: list[int] = []
        counted: list[bool] = []
        ends: list[int] = []
        features = len(self.resolutions)
        slots = np.flatnonzero(self.playable)
        bounds = [place * (UNIT - _COUNTED) // len(slots) for place in range(len(slots) + 1)]
        for arm, start, end in zip(slots.tolist(), bounds, bounds[1:], strict=False):
            middle = start + (end - start) * self.given // UNIT
            for own, edges, low, high in ((arm, self.edges[0], start, middle), (-1, self.edges[1], middle, end)):
                arms += [own] * (1 + features)
                asked += range(1 + features)
                counted += [False] * (1 + features)
                ends += [low + (high - low) * edge // UNIT for edge in (*edges.tolist(), UNIT)]
        arms += [-1] * features
        asked += range(1, 1 + features)
        counted += [True] * features
        ends += [UNIT - _COUNTED + _COUNTED * (1 + place) // features for place in range(features)]
        return CoinGroups(np.array(arms), np.array(asked), np.array(counted), np.array(ends))

    def layout(self, questions: Questions) -> SlotLayout:
        """Return how coins spread over groups; keys are answers, with the arm of those to whom no coin gave it."""
        keys = int(questions.sizes.max()) * len(self.playable)
        return SlotLayout(_SEED, np.tile(self.groups.ends[:-1].astype(np.uint32), (keys, 1)))

    def arms(self, layout: SlotLayout, coins: Coins, best: Ints) -> Ints:
        """Return the arms (n,) of people whose best arms are these (n,)."""
        given = self.groups.arms[_group(layout, coins)]
        return np.where(given < 0, best, given)

    def told(
        self,
        questions: Questions,
        layout: SlotLayout,
        terms: Ints,
        coins: Coins,
        arms: Ints,
        rewards: Array,
        values: Array,
    ) -> KeyedValues:
        """Return what n people say.

        terms: shape (n, features).
        arms, rewards, values (n,): what everybody had, its reward in [0, 1], and the residual in [-1, 1].
        """
        group = _group(layout, coins)
        given, asked, counted = self.groups.arms[group], self.groups.asked[group], self.groups.counted[group]
        own = np.concatenate([np.zeros(1, np.int64), self.resolutions])[asked]
        parts = questions.answers(terms)[np.arange(len(coins)), own]
        keys = np.where((given < 0) & ~counted, parts * len(self.playable) + arms, parts)
        # An added arm moves all others: people who had another arm than their coins name now have nothing to say.
        keys = np.where((given >= 0) & (given != arms), -1, keys)
        rates = np.where((given >= 0) & (asked == LEVEL), rewards, (1 + values) / 2)
        return KeyedValues(coins, keys, group, np.where(counted, 1.0, rates))


def finest(questions: Questions) -> Ints:
    """Return the question about each feature, (features,), in its own cells."""
    places = np.array([place for place, _ in questions.parts])
    return np.array([int(np.flatnonzero(places == feature)[0]) for feature in range(len(questions.cells.features))])


def _group(layout: SlotLayout, coins: Coins) -> Ints:
    nothing = np.zeros(len(coins), np.int64)
    return layout.group(layout.hashes(coins, nothing), nothing)
