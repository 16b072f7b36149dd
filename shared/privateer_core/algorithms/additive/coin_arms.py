"""The plan of a round with locally private reports: coins give random arms, and the others get the best arm."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.arrays import Array, Bools, Coins, Ints, NDArray
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout

_CELL_REPORT_COINS: Final = UNIT // 20  # number of coins, of `UNIT`, of participants who report their cell alone
_SEED: Final = 0
"""The seed of coins, equal in all rounds: a participant who got a random arm and reports late has the same group, or is
in a group whose reports include the arm."""
LEVEL_QUESTION: Final = 0


@dataclass(frozen=True)
class CoinGroups:
    """The groups of participants by coins."""

    arms: Ints  # shape (groups,): the random arm; -1 in groups of participants who get the best arm
    questions: Ints  # shape (groups,): the question of each, `LEVEL_QUESTION` or 1 + the feature
    is_cell_report: Bools  # shape (groups,): whether reports have the cell alone
    ends: Ints  # shape (groups,): upper end of each group's coins, of `UNIT`


@dataclass(frozen=True)
class CoinArms:
    """The plan of a round: the random arms and the question of every coin.

    Every arm has equally many coins, of which the first ones give the arm. Later rounds give it by fewer of these, so
    that a participant with a random arm in a round had no other random arm in an earlier round.
    """

    playable: Bools  # shape (arms,): which arms are not retired
    given: int  # share of participants, of `UNIT`, with a random arm
    # shape (2, features), uint32, ascending, of `UNIT`: thresholds between questions, the one about levels first, for
    # participants with a random arm, and for the others
    edges: NDArray[np.uint32]
    resolutions: Ints  # shape (features,), int64: the question, of `Questions`, about each feature

    @classmethod
    def uniform(cls, questions: Questions, playable: Bools) -> "CoinArms":
        """Return the plan of random arms alone, with equal shares of questions about features in their own cells."""
        n_features = len(questions.cells.features)
        edges = np.rint((1 + np.arange(n_features)) * UNIT / (1 + n_features)).astype(np.uint32)
        return cls(playable, UNIT, np.stack([edges, edges]), find_unmerged_questions(questions))

    @staticmethod
    def count_answers(questions: Questions, n_arms: int) -> int:
        """Return the number of possible answers in all groups of coins."""
        n_features = len(questions.cells.features)
        return int(questions.sizes.max()) * n_arms * (2 * n_arms * (1 + n_features) + n_features)

    def is_compatible(self, questions: Questions, playable: Bools) -> bool:
        """Whether types, shapes and ranges are those of a learner's plan."""
        count = len(questions.cells.features)
        if self.playable.dtype != np.bool_ or self.edges.dtype != np.uint32 or self.resolutions.dtype != np.int64:
            return False
        if self.edges.shape != (2, count) or self.resolutions.shape != (count,):
            return False
        if self.playable.tolist() != playable.tolist() or not 0 <= self.given <= UNIT:
            return False
        is_rising = bool((np.diff(self.edges.astype(np.int64), prepend=0, append=UNIT) >= 0).all())
        are_valid = ((self.resolutions > 0) & (self.resolutions < questions.count)).all()
        return is_rising and bool(are_valid) and bool((questions.features[self.resolutions] == np.arange(count)).all())

    def gives_same_arms_as(self, earlier: "CoinArms | None") -> bool:
        """Whether an earlier plan gave all random arms of this plan to the same coins."""
        return earlier is not None and earlier.given >= self.given and np.array_equal(earlier.playable, self.playable)

    @cached_property
    def groups(self) -> CoinGroups:
        """The groups, in the order of coins."""
        arms, questions, is_cell_report, ends = list[int](), list[int](), list[bool](), list[int]()
        n_features = len(self.resolutions)
        active_arms = np.flatnonzero(self.playable)
        bounds = [i * (UNIT - _CELL_REPORT_COINS) // len(active_arms) for i in range(len(active_arms) + 1)]
        for arm, start, end in zip(active_arms.tolist(), bounds, bounds[1:], strict=False):
            middle = start + (end - start) * self.given // UNIT
            for given_arm, edges, low, high in ((arm, self.edges[0], start, middle), (-1, self.edges[1], middle, end)):
                arms += [given_arm] * (1 + n_features)
                questions += range(1 + n_features)
                is_cell_report += [False] * (1 + n_features)
                ends += [low + (high - low) * edge // UNIT for edge in (*edges.tolist(), UNIT)]
        arms += [-1] * n_features
        questions += range(1, 1 + n_features)
        is_cell_report += [True] * n_features
        ends += [UNIT - _CELL_REPORT_COINS + _CELL_REPORT_COINS * (1 + i) // n_features for i in range(n_features)]
        return CoinGroups(np.array(arms), np.array(questions), np.array(is_cell_report), np.array(ends))

    def layout(self, questions: Questions) -> SlotLayout:
        """Return the layout of coins; keys are answers, combined with the arm unless it is random."""
        n_keys = int(questions.sizes.max()) * len(self.playable)
        return SlotLayout(_SEED, np.tile(self.groups.ends[:-1].astype(np.uint32), (n_keys, 1)))

    def choose_arms(self, layout: SlotLayout, coins: Coins, best_arms: Ints) -> Ints:
        """Return the arms (n,) of participants: random arms by coins, or the best arms (n,)."""
        coin_arms = self.groups.arms[hash_groups(layout, coins)]
        return np.where(coin_arms < 0, best_arms, coin_arms)

    def encode_answers(
        self,
        questions: Questions,
        layout: SlotLayout,
        terms: Ints,
        coins: Coins,
        arms: Ints,
        rewards: Array,
        residuals: Array,
    ) -> KeyedValues:
        """Return the contributions of n participants, by rewards in [0, 1] and residuals in [-1, 1]."""
        groups, group = self.groups, hash_groups(layout, coins)
        coin_arms, indices, is_cell = groups.arms[group], groups.questions[group], groups.is_cell_report[group]
        parts = questions.locate(terms)[np.arange(len(coins)), np.append(0, self.resolutions)[indices]]
        keys = np.where((coin_arms < 0) & ~is_cell, parts * len(self.playable) + arms, parts)
        # Adding an arm shifts all coins: participants whose arm is not the one of their coins contribute nothing.
        keys = np.where((coin_arms >= 0) & (coin_arms != arms), -1, keys)
        rates = np.where((coin_arms >= 0) & (indices == LEVEL_QUESTION), rewards, (1 + residuals) / 2)
        return KeyedValues(coins, keys, group, np.where(is_cell, 1.0, rates))


def find_unmerged_questions(questions: Questions) -> Ints:
    """Return the index of each feature's question about its own cells, (features,)."""
    features = np.array([feature for feature, _ in questions.partitions])
    return np.array([int(np.flatnonzero(features == feature)[0]) for feature in range(len(questions.cells.features))])


def hash_groups(layout: SlotLayout, coins: Coins) -> Ints:
    """Return the group (n,) of coins in a layout whose keys all have the same groups."""
    keys = np.zeros(len(coins), np.int64)
    return layout.find_groups(layout.hashes(coins, keys), keys)
