"""The baselines of paper 1: its authors' public code made private and as it is, and the algorithms as printed."""

import math
from typing import Any, ClassVar, Final

import numpy as np

from privateer_core.arrays import Array, Bools, Ints
from privateer_core.policies.policy import Arms
from privateer_core.primitives.contributions import merge_releases
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.run import Baseline, Visitors
from privateer_lab.baselines.tree import ContextBins
from privateer_papers.paper_1.ldpmab import LdpmabLearner, LdpmabPolicy, LdpmabSection, LdpmabSpec, LdpmabState
from privateer_papers.published_trust import PublishedPrivacy
from privateer_server.algorithms import NewRound

_N_SOURCES: Final = 2
"""Auxiliary sources that the published rows without auxiliary data name: they only loosen the depth's bound."""
_MAX_FAVOUR_RATIO: Final = 1.2
_TIE_WIDTH: Final = 0.01


def compute_effective_sample_size(spec: ArmsSpec) -> float:
    """Return people times min(1, epsilon)^2, at least 2: C_n = 2 log2 of it, and the warm start depends on it."""
    return max(2.0, spec.experiment.horizon * min(1.0, spec.privacy.bound) ** 2)


def compute_warm_start_size(spec: ArmsSpec) -> int:
    """Return the number of participants of a bin from which on it may drop or favour arms."""
    return int(math.log2(compute_effective_sample_size(spec))) ** 2


def compute_max_depth(spec: ArmsSpec) -> int:
    """Return the largest depth of a bin."""
    d, n = spec.dimension, 2 * spec.experiment.horizon * (_N_SOURCES + 1)
    depth_fraction = min(math.log2(n) / (2 + d), math.log2(max(1.0, n * spec.privacy.bound**2)) / (2 + 2 * d))
    return int(depth_fraction * d)


def compute_favouring_shares(means: Array, active: Bools, is_explored: Bools) -> Array:
    """Return each arm's probability, shape (bins, arms): of A active ones of K the best has 1.2 K/A times the worst's.

    In between the logarithm is linear in the estimate. Bins that are not ``is_explored``, shape (bins,), or whose
    active arms are within .01, play them all with equal shares.
    """
    gaps = np.where(active, means, -np.inf).max(axis=1) - np.where(active, means, np.inf).min(axis=1)
    max_log_ratio = np.log(_MAX_FAVOUR_RATIO * means.shape[1] / active.sum(axis=1))
    slope = np.where(is_explored & (gaps >= _TIE_WIDTH), max_log_ratio / (gaps + 1e-4), 0.0)
    weights = np.exp(means * slope[:, None]) * active
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class AuthorsLearner(LdpmabLearner):
    """LDPMAB with two changes from the authors' code.

    An arm is dropped when intervals of max(radius, tau) are apart, where eq. (16) takes twice the radius: that decides
    most of the regret. Better arms are favoured (`compute_favouring_shares`), where eq. (8) plays all alike.
    """

    def _shares(self, state: LdpmabState) -> Array:
        mean, _ = self._estimates(state)
        return compute_favouring_shares(mean, state.active, state.people[0] >= compute_warm_start_size(self.spec))

    def _keep_undominated_arms(self, state: LdpmabState, mean: Array, radius: Array) -> Bools:
        """Return the active arms without dominated arms, which are behind by the widths, after a bin's warm start."""
        widths = np.maximum(radius, 2.0 ** (-state.depths / self.spec.dimension)[:, None])
        lower = np.where(state.active, mean - widths, -np.inf).max(axis=1, keepdims=True)
        explored = state.people[0] >= compute_warm_start_size(self.spec)
        return np.asarray(state.active & ~(explored[:, None] & (lower > mean + widths)))


class Ldpmab(Baseline):
    """A baseline of `AuthorsLearner` with our policy and mechanism: the published algorithm made private.

    Notes
    -----
    Privacy: epsilon-LDP, as `privateer_papers.paper_1.laplace_cells.LaplaceCells`, whatever the spec's trust model:
    everybody sends noise for every bin and arm.
    """

    private: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        own_spec = LdpmabSpec(
            experiment=spec.experiment,
            context=spec.context,
            reward=spec.reward,
            privacy=PublishedPrivacy(model="local", epsilon=spec.privacy.epsilon),
            algorithm=LdpmabSection(name="paper-1-ldpmab"),
        )
        self.learner = AuthorsLearner(own_spec)
        self.state = self.learner.start(0)

    def open(self, batch: int) -> None:
        """Make the policy of a round of ``batch`` people."""
        seed = int(self.rng.integers(2**63))
        self.policy: LdpmabPolicy = self.learner.policy(self.state, NewRound(self.state.rounds + 1, seed, batch))
        self.release: Any = None

    def choose(self, visitors: Visitors) -> Ints:
        """Return arms as coins have them, shape (n,)."""
        self.coins = self.rng.integers(0, 2**32, len(visitors), dtype=np.uint32)
        return self.policy.decide(visitors.contexts, self.coins).arms

    def learn(self, visitors: Visitors, arms: Ints, values: Array) -> None:
        """Add the noisy reports of participants to the round's release."""
        contributions = self.policy.contribute(visitors.contexts, self.coins, Arms(arms), values)
        release = self.policy.mechanism.simulate(contributions, self.rng)
        self.release = release if self.release is None else merge_releases(self.release, release)

    def close(self) -> None:
        """Learn from the round's noisy sums."""
        self.state = self.learner.learn(self.state, self.policy, self.release)


class Leaky(Baseline):
    """LDPMAB as the authors' public code runs it, without auxiliary data.

    Kept with its faults, since the published figures come from them: a bin's noise is drawn only for the people in it;
    sums are summed again at every round, so that radii are too small by about the root of half the rounds; a bin is
    halved when all its active arms are narrow; at the whole cube no arm is favoured. Bins with one active arm, where
    nothing changes any more, are not halved further.

    Privacy: a report has noise for the bins on its person's way and no other, so it reveals the bin, and keeps no
    promise. This exists in the lab only, and no spec can name it.

    u, v, w (bins, arms): weighted sums, over rounds, of ``counts``, ``rewards`` and of the numerator of eq. (28).
    """

    private: ClassVar[bool] = True
    leaks: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.epsilon, self.warm, self.deepest = (
            spec.privacy.bound,
            compute_warm_start_size(spec),
            compute_max_depth(spec),
        )
        self.factor = 2 * np.log2(compute_effective_sample_size(spec))
        self.bins, arms = ContextBins(spec.dimension), spec.arm_count
        # people, counts, rewards: shape (bins,) and (bins, arms): people of the rounds since a bin was made, noisy sums
        # U and V of eq. (12).
        self.people = np.zeros(1)
        self.active = np.ones((1, arms), bool)
        self.counts, self.rewards, self.u, self.v, self.w, self.means = np.zeros((6, 1, arms))

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` people."""
        self.batch = batch
        is_explored = (self.bins.depths > 0) & (batch > 0)
        shares = compute_favouring_shares(self.means, self.active, is_explored)
        self.limits = np.cumsum(shares, axis=1)[:, :-1]
        self.visits, self.wins = np.zeros((2, *self.active.shape))

    def choose(self, visitors: Visitors) -> Ints:
        """Return random arms by their shares, and at the end the best arm of each bin, shape (n,)."""
        self.located = self.bins.locate(visitors.contexts)
        if not self.batch:
            return np.asarray(np.where(self.active, self.means, -np.inf).argmax(axis=1)[self.located])
        uniform = self.rng.random(len(visitors))
        return np.asarray((uniform[:, None] >= self.limits[self.located]).sum(axis=1))

    def learn(self, _visitors: Visitors, arms: Ints, values: Array) -> None:
        """Count visits and rewards, to which `close` adds noise."""
        cells, shape = self.located * self.active.shape[1] + arms, self.active.shape
        self.visits += np.bincount(cells, minlength=self.active.size).reshape(shape)
        self.wins += np.bincount(cells, values, self.active.size).reshape(shape)

    def close(self) -> None:
        """Add noise to the round's counts, accumulate sums, drop arms, and halve bins."""
        self.people += self.batch
        n_visits = self.visits.sum(axis=1, keepdims=True)
        self.counts += self.active * (self.visits + self._draw_laplace_sums(n_visits))
        self.rewards += self.active * (self.wins + self._draw_laplace_sums(n_visits))
        self._accumulate_sums()
        is_warm = self.people >= self.warm
        self.means = np.where(is_warm[:, None], np.clip(self.v / (self.u + 1e-4), 0.0, 1.0), self.means)
        divisor = np.where(self.u == 0, 1.0, np.abs(self.u))
        radius = np.where(self.u == 0, np.inf, np.sqrt(self.factor * (self.w + 1e-4)) / divisor)
        tau = 2.0 ** (-self.bins.depths / self.spec.dimension)
        is_narrow = (~self.active | (radius < tau[:, None])).all(axis=1)
        self._drop_arms(is_warm, np.maximum(radius, tau[:, None]))
        is_ready = is_warm & is_narrow & (self.bins.depths < self.deepest) & (self.active.sum(axis=1) > 1)
        self._halve_bins(np.flatnonzero(is_ready))

    def _draw_laplace_sums(self, people: Array) -> Array:
        """Draw the sum of Laplace noise of scale 4/epsilon over participants, for every arm, as two gamma variables."""
        shapes = np.broadcast_to(people, self.active.shape)
        return np.asarray(4 / self.epsilon * (self.rng.standard_gamma(shapes) - self.rng.standard_gamma(shapes)))

    def _accumulate_sums(self) -> None:
        """Add the counts and rewards of the round to the weighted sums, with no weight before the warm start ends."""
        people = self.people[:, None]
        weight = np.minimum(1.0, self.epsilon**2 * self.counts / people) * (people > self.warm) * self.active
        self.u += weight * self.counts
        self.v += weight * self.rewards
        self.w += weight**2 * np.maximum(self.counts, people / self.epsilon**2)

    def _drop_arms(self, warm: Bools, radius: Array) -> None:
        lower = np.where(self.active, self.means - radius, -np.inf).max(axis=1, keepdims=True)
        self.active = self.active & ~(warm[:, None] & (lower > self.means + radius))

    def _halve_bins(self, bins: Ints) -> None:
        """Halve bins along a longest edge; their halves start without data, but with their active arms."""
        if not len(bins):
            return
        origin = self.bins.halve(bins, self.bins.longest_edges(bins, self.rng))
        is_unchanged = ~np.isin(origin, bins)
        self.people, self.active = self.people[origin] * is_unchanged, self.active[origin]
        sums = (self.counts, self.rewards, self.u, self.v, self.w, self.means)
        copies = (values[origin] * is_unchanged[:, None] for values in sums)
        self.counts, self.rewards, self.u, self.v, self.w, self.means = copies


class Printed(Leaky):
    """Algorithms 1 and 2 as printed: everybody adds noise for every bin and arm, so that reports are epsilon-LDP.

    Active arms are equally likely, eq. (8); arms are dropped when intervals of twice the radius are apart, eq. (16); a
    bin is halved across a longest edge, drawn at random, once the radius of one arm is below tau = 2 sqrt(d) 2^(-s/d),
    eq. (17). C_n = 2 log2(n), of which the paper gives the order alone. Bins with one active arm are not halved.
    """

    leaks: ClassVar[bool] = False

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` people."""
        super().open(batch)
        self.limits = np.cumsum(self.active / self.active.sum(axis=1, keepdims=True), axis=1)[:, :-1]

    def close(self) -> None:
        """Add the noise of all participants to every sum, drop arms, and halve bins."""
        self.people += self.batch
        everybody = np.full((len(self.people), 1), float(self.batch))
        self.counts += self.active * (self.visits + self._draw_laplace_sums(everybody))
        self.rewards += self.active * (self.wins + self._draw_laplace_sums(everybody))
        has_weight, people = self.counts > 0, self.people[:, None]
        counts = np.where(has_weight, self.counts, 1.0)
        self.means = np.where(has_weight, np.clip(self.rewards / counts, 0.0, 1.0), 0.0)
        variances = np.maximum(people / self.epsilon**2, self.counts)
        radius = np.where(has_weight, np.sqrt(self.factor * variances) / counts, np.inf)
        is_warm = np.ones(len(self.people), bool)
        self._drop_arms(is_warm, 2 * radius)
        tau = 2 * np.sqrt(self.spec.dimension) * 2.0 ** (-self.bins.depths / self.spec.dimension)
        is_narrow = (self.active & (radius < tau[:, None])).any(axis=1)
        self._halve_bins(np.flatnonzero(is_narrow & (self.bins.depths < self.deepest) & (self.active.sum(axis=1) > 1)))
