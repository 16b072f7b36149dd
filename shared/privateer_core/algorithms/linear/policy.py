"""The policy of one round: means and factors of the arms' parameters, and what a device does with them."""

from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS, DesignMatrix, Link
from privateer_core.algorithms.linear.reports import ByClasses, beside, in_blocks, joint, moments, residuals
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer.policy_view import Coefficients, PolicyView
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.public_coins import classes_of, mix, normals_of
from privateer_core.privacy.terms import Terms

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
_BLOCK: Final = 1 << 17
"""Numbers in a block of products: keeps the working set in the processor's cache."""
_LARGEST: Final = 1e6
_ARM: Final = np.uint64(0x9FB21C651E98DF25)


@dataclass(frozen=True)
class LinearPolicy(ArmsPolicy):
    """Thompson sampling by public coins: the arm with the largest x theta_k + alpha g_k |x L_k|.

    Letters are Zheng et al.'s (Algorithm 5): x a context, theta a parameter, d the dimension. g_k are standard normal
    variables of the coins.
    """

    version: int
    design: DesignMatrix  # how an encoded context becomes a row x
    link: str  # the name of the rewards' link
    means: Array  # shape (arms, d): means of the arms' parameters, theta_k
    factors: Array  # shape (arms, d, d): L_k, with L_k L_k^T the covariance of what is known of theta_k
    whitening: Array  # shape (d, d): what rows are multiplied with before a direction is taken of them
    telling: Array  # shape (d, d): what rows are multiplied with before second moments are taken of them
    exploration: float  # alpha; 0: everybody gets the arm with the largest mean
    playable: NDArray[np.bool_]  # shape (arms,): which arms are not retired
    favours: int  # the arm at which everybody has the largest coin; -1: that of a public class, which coins decide
    share: float  # share of a report that is second moments of contexts, of its squared length; 1: a joint report
    seed: int  # what the coins of a choice mean
    terms: Terms

    mixes = True

    @property
    def mechanism(self) -> VectorMechanism:
        """What randomizes, adds up and releases the round's vectors."""
        return cast(VectorMechanism, self.terms.mechanism)

    @property
    def classes(self) -> int:
        """Public classes whose sums are released: people of a class have the largest coin at the same arm."""
        return getattr(self.mechanism, "classes", 1)

    @property
    def fresh_coins(self) -> bool:
        """Whether reports have coins of their own: those of a choice are sent only if they tell a class."""
        return self.classes == 1

    @override
    def analyzer_of(self, earlier: "LinearPolicy") -> ByClasses:
        return ByClasses(self.classes, partial(self.classes_of, chosen_by=earlier))

    @override
    def fits(self, spec: LinearSpec) -> bool:
        return self._is_shaped(spec) and self._agrees(spec) and self._asks_no_more(spec)

    def _is_shaped(self, spec: LinearSpec) -> bool:
        arms, d = spec.arm_count, spec.design.dimension
        shapes = [(self.means, (arms, d)), (self.factors, (arms, d, d))]
        shapes += [(self.whitening, (d, d)), (self.telling, (d, d))]
        shaped = all(one.shape == shape and one.dtype == np.float64 for one, shape in shapes)
        return shaped and all(bool((np.abs(one) <= _LARGEST).all()) for one, _ in shapes)

    def _agrees(self, spec: LinearSpec) -> bool:
        same = self.design == spec.design and self.link == spec.algorithm.link
        same = same and self.playable.tolist() == list(spec.playable) and 0 <= self.exploration <= 1
        same = same and (self.favours == -1 or (spec.favours and self._favours_one))
        return same and 0 <= self.seed < 1 << 63

    @property
    def _favours_one(self) -> bool:
        return 0 <= self.favours < len(self.playable) and bool(self.playable[self.favours])

    def _asks_no_more(self, spec: LinearSpec) -> bool:
        """Whether the mechanism is of the spec's ball, of no more messages, and tells no classes but those of coins."""
        asked = isinstance(self.mechanism, VectorMechanism) and self.mechanism.ball == spec.ball
        asked = asked and self.mechanism.messages <= spec.algorithm.messages
        return asked and self.classes in (1, spec.asked(self.seed).classes) and self.share == spec.share

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        return Arms(self.chosen(self.design.rows(contexts), self.normals(coins)))

    def chosen(self, rows: Array, normals: Array) -> NDArray[np.int64]:
        """Return the arms (n,) of people with these rows (n, d) and normal coins (n, arms)."""
        chosen = np.empty(len(rows), np.int64)
        arms, d = self.means.shape
        sides = np.ascontiguousarray(self.factors.transpose(1, 0, 2).reshape(d, arms * d))
        step = max(1, _BLOCK // (arms * d))
        for start in range(0, len(rows), step):
            x = rows[start : start + step]
            scores = x @ self.means.T
            if self.exploration:
                products = (x @ sides).reshape(len(x), arms, d)
                lengths = np.sqrt(np.einsum("nkd,nkd->nk", products, products))
                scores += self.exploration * normals[start : start + step] * lengths
            scores[:, ~self.playable] = -np.inf
            chosen[start : start + step] = scores.argmax(axis=1)
        return chosen

    def normals(self, coins: Coins) -> Array:
        """Return the normal coins of every arm, (n, arms): independent, the largest of those played at the own class.

        A class is uniform, so that swapping the largest coin with the class's own leaves their distribution as it is.
        """
        words = mix(coins.astype(np.uint64) + np.uint64(self.seed))[:, None]
        normals = normals_of(mix(words ^ mix(np.arange(1, len(self.means) + 1, dtype=np.uint64) * _ARM)))
        played, own = np.flatnonzero(self.playable), self._favoured(coins)
        largest = played[normals[:, played].argmax(axis=1)]
        people = np.arange(len(coins))
        own_values = normals[people, own]
        normals[people, own] = normals[people, largest]
        normals[people, largest] = own_values
        return np.asarray(normals)

    def _favoured(self, coins: Coins) -> NDArray[np.int64]:
        """Return the arm (n,) at which people with these coins have the largest one."""
        if self.favours >= 0:
            return np.full(len(coins), self.favours)
        played = np.flatnonzero(self.playable)
        return played[classes_of(coins, self.seed, len(played))]

    def classes_of(self, coins: Coins, chosen_by: "LinearPolicy") -> NDArray[np.int64]:
        """Return the class (n,), in this round, of people whose coins chose an arm by a policy: this or an earlier one.

        It is that of the arm at which they had the largest coin. Where nobody gets that arm any more it is any.
        """
        if self.classes == 1:
            return np.zeros(len(coins), np.int64)
        own = classes_of(coins, self.seed, self.classes)
        if chosen_by.version == self.version:
            return own
        places = np.full(len(self.playable), -1)
        places[self.playable] = np.arange(self.classes)
        then = places[chosen_by._favoured(coins)]
        return np.where(then < 0, own, then)

    def played(self, rows: Array, coins: Coins) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the arms and the classes, (n,) each, of people with these rows and coins who report to the round.

        Everybody measures from this policy's means and in its directions. Which arm they have is what others may have
        decided: each decided for a part of these people, one after the other.
        """
        ends = np.rint(len(rows) * np.cumsum([share for _, share in self.decided])).astype(np.int64)
        arms, classes = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for (policy, _), start, end in zip(self.decided, [0, *ends[:-1]], ends, strict=True):
            some = slice(start, end)
            arms[some] = policy.chosen(rows[some], policy.normals(coins[some]))
            classes[some] = self.classes_of(coins[some], policy)
        return arms, classes

    def expected(self, rows: Array, arms: NDArray[np.int64]) -> Array:
        """Return the expected rewards (n,) of arms for people with these rows, as far as the policy knows."""
        return self.rewards_link.means(np.einsum("nd,nd->n", rows, self.means[arms]))

    @property
    def rewards_link(self) -> Link:
        """The link."""
        return LINKS[self.link]

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> BoundedVectors:
        """Return everybody's vector; the arm is the place of a block in it, and the mechanism hides it all."""
        rows, arms = self.design.rows(contexts), decisions.arms
        if self.share == 1:
            vectors = in_blocks(joint(rows @ self.telling, rewards), arms, len(self.means))
            return BoundedVectors(coins, vectors)
        own = residuals(rows @ self.whitening, self.expected(rows, arms), rewards)
        vectors = in_blocks(own, arms, len(self.means))
        if self.share:
            vectors = beside(vectors, moments(rows @ self.telling), self.share)
        return BoundedVectors(coins, vectors)

    @override
    def view(self, spec: LinearSpec) -> PolicyView:
        names = self.design.names(spec.features)
        arms = {
            arm: {name: round(float(value), 4) for name, value in zip(names, mean, strict=True)}
            for arm, mean in zip(spec.options, self.means, strict=True)
        }
        return PolicyView(spec.algorithm.name, self.version, Coefficients(self.link, LINKS[self.link].unit, {}, arms))
