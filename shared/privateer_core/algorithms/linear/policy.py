"""The linear policy of one round: means and covariance factors of the arms' parameters."""

from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import (
    LINKS,
    ClassAnalyzer,
    DesignMatrix,
    Link,
    combine_vectors,
    place_in_blocks,
    weights,
)
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer.policy_view import Coefficients, PolicyView, name_terms
from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.mechanisms import RowMechanism, VectorMechanism
from privateer_core.policies.policy import Arms, ArmsPolicy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import RowValues
from privateer_core.primitives.public_coins import coin_classes, mix_words, words_to_normals
from privateer_core.primitives.row_ball import JOINT, RowBall, directions, joint_reports, second_moments
from privateer_core.privacy.terms import Terms

_BLOCK_SIZE: Final = 1 << 17  # numbers in a block of products: keeps the working set in the processor's cache
_MAX_PARAMETER: Final = 1e6
_ARM_FACTOR: Final = np.uint64(0x9FB21C651E98DF25)


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
    factors: Array  # shape (arms, d, d): L_k, with L_k L_k^T the posterior covariance of theta_k
    whitening: Array  # shape (d, d): the matrix that rows are multiplied with before they are scaled to length 1
    telling: Array  # shape (d, d): the matrix that rows are multiplied with before second moments are computed
    exploration: float  # alpha; 0: all participants get the arm with the largest mean
    playable: Bools  # shape (arms,): which arms are not retired
    favours: int  # the arm with the largest coin of all participants; -1: it is that of a public class, by coins
    share: float  # share of a report that is second moments of contexts, of its squared length; 1: a joint report
    seed: int  # the seed of the choices' coins
    terms: Terms

    is_mixture = True

    @property
    def mechanism(self) -> VectorMechanism | RowMechanism:
        """The mechanism that randomizes, sums and releases the round's vectors."""
        return cast(VectorMechanism | RowMechanism, self.terms.mechanism)

    @property
    def classes(self) -> int:
        """Number of public classes with released sums; participants of a class have their largest coin at one arm."""
        return getattr(self.mechanism, "classes", 1)

    @property
    def has_fresh_coins(self) -> bool:
        """Whether reports have coins of their own; the choice's coins are sent only if there are classes."""
        return self.classes == 1

    @override
    def make_earlier_analyzer(self, earlier: "LinearPolicy") -> ClassAnalyzer:
        return ClassAnalyzer(self.classes, partial(self.find_classes, chosen_by=earlier))

    @override
    def is_compatible(self, spec: LinearSpec) -> bool:
        return self._is_shaped(spec) and self._is_of_spec(spec) and self._has_allowed_mechanism(spec)

    def _is_shaped(self, spec: LinearSpec) -> bool:
        """Whether arrays have the shapes and types of the spec, and no number is huge."""
        n_arms, d = spec.arm_count, spec.design.dimension
        shapes = [(self.means, (n_arms, d)), (self.factors, (n_arms, d, d))]
        shapes += [(self.whitening, (d, d)), (self.telling, (d, d))]
        has_shapes = all(array.shape == shape and array.dtype == np.float64 for array, shape in shapes)
        return has_shapes and all(bool((np.abs(array) <= _MAX_PARAMETER).all()) for array, _ in shapes)

    def _is_of_spec(self, spec: LinearSpec) -> bool:
        """Whether design, link, arms and exploration are the spec's, and the favoured arm is allowed."""
        is_same = self.design == spec.design and self.link == spec.algorithm.link
        is_same = is_same and self.playable.tolist() == list(spec.playable) and 0 <= self.exploration <= 1
        is_playable = self.favours in np.flatnonzero(self.playable)
        is_same = is_same and (self.favours == -1 or (spec.has_favoured_arm and is_playable))
        return is_same and 0 <= self.seed < 1 << 63

    def _has_allowed_mechanism(self, spec: LinearSpec) -> bool:
        """Whether the mechanism has the spec's ball, at most its messages, and no classes but those of coins."""
        is_valid = isinstance(self.mechanism, VectorMechanism | RowMechanism)
        is_valid = is_valid and self.mechanism.ball == (spec.row_ball or spec.ball)
        is_valid = is_valid and self.mechanism.messages <= spec.algorithm.messages_per_report
        is_valid = is_valid and self.share == spec.moment_share
        return is_valid and self.classes in (1, spec.make_question(self.seed).classes)

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        return Arms(self.choose_arms(self.design.rows(contexts), self.draw_normals(coins)))

    def choose_arms(self, rows: Array, normals: Array) -> Ints:
        """Return the arms (n,) of participants with these rows (n, d) and normal coins (n, arms)."""
        arms = np.empty(len(rows), np.int64)
        n_arms, d = self.means.shape
        stacked_factors = np.ascontiguousarray(self.factors.transpose(1, 0, 2).reshape(d, n_arms * d))
        step = max(1, _BLOCK_SIZE // (n_arms * d))
        for start in range(0, len(rows), step):
            x = rows[start : start + step]
            scores = x @ self.means.T
            if self.exploration:
                products = (x @ stacked_factors).reshape(len(x), n_arms, d)
                lengths = np.sqrt(np.einsum("nkd,nkd->nk", products, products))
                scores += self.exploration * normals[start : start + step] * lengths
            scores[:, ~self.playable] = -np.inf
            arms[start : start + step] = scores.argmax(axis=1)
        return arms

    def draw_normals(self, coins: Coins) -> Array:
        """Return independent normal coins of every arm, (n, arms), with the largest at the arm of the class.

        A class is uniform, so that swapping the largest coin with the coin of the class preserves the distribution.
        """
        words = mix_words(coins.astype(np.uint64) + np.uint64(self.seed))[:, None]
        normals = words_to_normals(
            mix_words(words ^ mix_words(np.arange(1, len(self.means) + 1, dtype=np.uint64) * _ARM_FACTOR))
        )
        active_arms, favoured_arms = np.flatnonzero(self.playable), self._favoured_arms(coins)
        largest = active_arms[normals[:, active_arms].argmax(axis=1)]
        rows = np.arange(len(coins))
        favoured_normals = normals[rows, favoured_arms]
        normals[rows, favoured_arms] = normals[rows, largest]
        normals[rows, largest] = favoured_normals
        return np.asarray(normals)

    def _favoured_arms(self, coins: Coins) -> Ints:
        """Return the arm (n,) at which participants with these coins have the largest normal coin."""
        if self.favours >= 0:
            return np.full(len(coins), self.favours)
        active_arms = np.flatnonzero(self.playable)
        return active_arms[coin_classes(coins, self.seed, len(active_arms))]

    def find_classes(self, coins: Coins, chosen_by: "LinearPolicy") -> Ints:
        """Return the class (n,) in this round of participants for whom this or an earlier policy chose an arm.

        It is the class of the arm at which they had the largest coin, or a uniform class if that arm is retired.
        """
        if self.classes == 1:
            return np.zeros(len(coins), np.int64)
        classes = coin_classes(coins, self.seed, self.classes)
        if chosen_by.version == self.version:
            return classes
        class_by_arm = np.full(len(self.playable), -1)
        class_by_arm[self.playable] = np.arange(self.classes)
        earlier_classes = class_by_arm[chosen_by._favoured_arms(coins)]
        return np.where(earlier_classes < 0, classes, earlier_classes)

    def choose_reported_arms(self, rows: Array, coins: Coins) -> tuple[Ints, Ints]:
        """Return the arms and the classes, (n,) each, of participants with these rows and coins in the round.

        Residuals and directions are those of this policy. Arms are by the deciding policies, each for its share of
        the participants, in order.
        """
        ends = np.rint(len(rows) * np.cumsum([share for _, share in self.weighted_deciders])).astype(np.int64)
        arms, classes = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for (policy, _), start, end in zip(self.weighted_deciders, [0, *ends[:-1]], ends, strict=True):
            participants = slice(start, end)
            arms[participants] = policy.choose_arms(rows[participants], policy.draw_normals(coins[participants]))
            classes[participants] = self.find_classes(coins[participants], policy)
        return arms, classes

    def predict(self, rows: Array, arms: Ints) -> Array:
        """Return the policy's expected rewards (n,) of arms for participants with these rows."""
        return self.rewards_link.means(np.einsum("nd,nd->n", rows, self.means[arms]))

    def residual_directions(self, rows: Array) -> Array:
        """Return what the residual of each participant with these rows is multiplied with, (n, d)."""
        ball = self.mechanism.ball
        if isinstance(ball, RowBall):
            return ball.residual_directions(rows @ self.telling)
        return directions(rows @ self.whitening)

    @property
    def rewards_link(self) -> Link:
        """The link of the rewards."""
        return LINKS[self.link]

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> BoundedVectors | RowValues:
        """Return each participant's vector, with a block at the position of the arm; the mechanism hides all of it.

        A curator gets a record instead, from which it makes the vector.
        """
        rows, arms = self.design.rows(contexts), decisions.arms
        told_rows, is_joint, means = rows @ self.telling, self.share == JOINT, self.predict(rows, arms)
        values = 2 * rewards - 1 if is_joint else (rewards - means) * weights(means)
        if isinstance(self.mechanism.ball, RowBall):
            return RowValues(coins, arms, told_rows, values)
        own_vectors = joint_reports(told_rows, values) if is_joint else values[:, None] * self.residual_directions(rows)
        vectors = place_in_blocks(own_vectors, arms, len(self.means))
        if self.share and not is_joint:
            vectors = combine_vectors(vectors, second_moments(told_rows), self.share)
        return BoundedVectors(coins, vectors)

    @override
    def view(self, spec: LinearSpec) -> PolicyView:
        arms = name_terms(spec.options, self.design.names(spec.features), self.means)
        return PolicyView(spec.algorithm.name, self.version, Coefficients(self.link, self.rewards_link.unit, {}, arms))
