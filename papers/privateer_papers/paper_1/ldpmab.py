"""LDPMAB of paper 1, and the elimination learner over a tree of bins that both learners of paper 1 extend."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self, TypeVar, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition import PartitionPolicy, PartitionSection, PartitionSpec, bin_corners
from privateer_core.answer.parts import BinMeans
from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism, KeyedMechanism
from privateer_core.policies.policy import Arms
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.terms import Terms
from privateer_core.spec.experiment import Source
from privateer_core.spec.spec import Capabilities
from privateer_papers.paper_1.laplace_cells import CellSums, LaplaceCells
from privateer_papers.published_trust import PublishedPrivacy, recast
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.partition.bin_tree import Space, halve_bins
from privateer_server.algorithms.partition.cohorts import CohortLearner, build_bin_means

StateT = TypeVar("StateT")


class EliminationLearner(CohortLearner[StateT]):
    """A learner that drops arms in bins, and halves bins with enough evidence.

    States have ``depths``, ``paths`` and ``active``, as in `PartitionPolicy`.
    """

    # fields of a state with sums of reports by bin, and their axis of bins
    sums: ClassVar[tuple[str, ...]]
    bin_axis: ClassVar[int] = 0

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        self.space = Space(spec.blocks)
        self.axes = self.space.columns_in_turn()

    @override
    def edges(self, state: Any) -> tuple[Array, Array]:
        return bin_corners(state.depths, state.paths, self.axes, self.spec.dimension)

    def halve_ready_bins(self, state: StateT, ready: Bools) -> StateT:
        """Return the state with bins halved that are ``ready``, (bins,), and undecided; halves start with no sums."""
        old: Any = state
        halves = ready & (old.active.sum(axis=1) > 1) & (old.depths < self.space.depth)
        copies, new_bins, depths, paths = halve_bins(old.depths, old.paths, halves)
        sums = {name: np.take(getattr(old, name), copies, axis=self.bin_axis) for name in self.sums}
        for values in sums.values():
            values[(slice(None),) * self.bin_axis + (new_bins,)] = 0
        return cast(StateT, replace(old, depths=depths, paths=paths, active=old.active[copies], **sums))


_CONFIDENCE_FACTOR: Final = 2.0
"""C_n of eq. (14) is 2 log2(n), as in the authors' code."""


class LdpmabSection(PartitionSection):
    """The ``[algorithm]``: nothing is forgotten."""

    name: Literal["paper-1-ldpmab"]  # type: ignore[assignment] # one of its own
    half_life: None = None


class LdpmabSpec(PartitionSpec):
    """An experiment with LDPMAB, in simulation alone."""

    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        PartitionSpec.capabilities, takes_tiers=False, takes_several_reports=False
    )

    privacy: PublishedPrivacy
    algorithm: LdpmabSection

    @override
    def _check_source_shares(self, source: Source, field: str) -> None:
        # Counts are reported as well, so the shares of the arms need not be known.
        if source.shares != "unknown":
            super()._check_source_shares(source, field)

    @property
    @override
    def cohorts(self) -> tuple[str, ...]:
        return (*(source.name for source in self.sources), "")

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._example({"model": "local", "epsilon": 16.0}, name="paper-1-ldpmab")}


@dataclass(frozen=True)
class LaplaceTerms(Terms):
    """Terms with the paper's mechanism as another choice."""

    mechanism: AnyMechanism | LaplaceCells  # type: ignore[assignment] # which no device has


@dataclass(frozen=True)
class LdpmabPolicy(PartitionPolicy):
    """A partition policy whose participants report on all arms at once."""

    mechanisms: ClassVar[Any] = KeyedMechanism | LaplaceCells

    terms: LaplaceTerms

    tells_age = False

    @property
    @override
    def has_coin_asked_arms(self) -> bool:
        return False

    @override
    def contribute_past_arms(self, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
        return self.contribute(contexts, coins, Arms(arms), rewards)


ALGORITHM: Final = Algorithm(LdpmabSpec, LdpmabPolicy)


@dataclass(frozen=True)
class LdpmabState:
    """Bins as in `PartitionPolicy`, with noisy sums by cohort: the experiment's own people, then sources as listed.

    ``people``, (cohorts, bins), counts those who reported while the bin was active: eq. (9). ``rewards`` and
    ``counts`` are (cohorts, bins, arms). ``cohort`` and ``reported`` are the cohort of the last round, and its people
    who have reported.
    """

    rounds: int
    seen: int
    depths: Ints
    paths: Ints
    active: Bools
    people: Ints
    rewards: Array
    counts: Array
    cohort: str = ""
    reported: int = 0


class LdpmabLearner(EliminationLearner[LdpmabState]):
    """A learner by Algorithms 2 and 3 with the authors' constants, which learn where the printed constants do not.

    C_n = 2 log2(n); a bin may drop arms after log2(n)^2 people; tau_s = 2^(-s/d), where eq. (17) has 2 sqrt(d) times
    that; a bin is refined when all its active arms are narrow, where the paper asks for one.
    """

    state_type = LdpmabState
    sums = ("people", "rewards", "counts")
    bin_axis = 1

    def __init__(self, spec: LdpmabSpec) -> None:
        super().__init__(spec)
        self._epsilons = np.array([spec.cohort_privacy(cohort).bound for cohort in self.cohorts])[:, None]
        n_source_participants = sum(source.participants for source in spec.sources)
        self._log = math.log2(max(2, spec.experiment.horizon, n_source_participants))

    @override
    def start(self, seed: int) -> LdpmabState:
        """Return one bin with all arms."""
        arms, cohorts = self.spec.arm_count, len(self.cohorts)
        zero = np.zeros(1, np.int64)
        sums = np.zeros((cohorts, 1, arms))
        active, people = self.playable[None, :], np.zeros((cohorts, 1), np.int64)
        return LdpmabState(0, 0, zero, zero, active, people, sums, sums, self.spec.cohorts[0])

    @override
    def apply_arm_change(self, state: LdpmabState, before: PartitionSpec) -> LdpmabState:
        """Refuse other arms: the algorithm runs in simulation alone."""
        if self.spec.arm_count != before.arm_count or not self.playable.all():
            detail, remedy = "runs in simulation alone, with the arms of its start", "use another algorithm"
            raise SpecError(detail, field="algorithm.name", remedy=remedy)
        return state

    @override
    def policy(self, state: LdpmabState, next_round: NewRound) -> LdpmabPolicy:
        """Return a policy by which active arms of a bin are equally likely, eq. (8); every bin is a key.

        At the end (``batch`` 0), which the paper leaves open, every bin plays the active arm of the highest estimate.
        """
        active = state.active if next_round.batch_size else self._is_best_arm(state)
        shares = self._shares(state) if next_round.batch_size else active
        edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
        partition = self.build_policy_from_coins(
            next_round,
            Layout(next_round.seed, edges),
            axes=self.axes,
            depths=state.depths,
            paths=state.paths,
            active=active,
            bins=np.arange(len(state.depths)),
        )
        return replace(recast(partition, LdpmabPolicy), terms=recast(partition.terms, LaplaceTerms))

    @override
    def learn(self, state: LdpmabState, policy: PartitionPolicy, release: CellSums) -> LdpmabState:
        """Add the round's sums, eq. (13), drop arms, eq. (16) and (29), and refine bins."""
        is_cohort = np.arange(len(self.cohorts)) == self.cohorts.index(policy.cohort)
        state = replace(
            state,
            people=state.people + is_cohort[:, None] * release.reports,
            rewards=state.rewards + is_cohort[:, None, None] * release.rewards,
            counts=state.counts + is_cohort[:, None, None] * release.counts,
        )
        state = self.count_round(state, policy, release.reports)
        mean, radius = self._estimates(state)
        state = replace(state, active=self._keep_undominated_arms(state, mean, radius))
        return self.halve_ready_bins(state, self.find_ready_bins(state, radius))

    def _shares(self, state: LdpmabState) -> Array:
        """Return the probability of every arm in each bin, eq. (8)."""
        return np.asarray(state.active / state.active.sum(axis=1, keepdims=True))

    def _keep_undominated_arms(self, state: LdpmabState, mean: Array, radius: Array) -> Bools:
        """Return active arms less those that eq. (16) and (29) drop."""
        lower = np.where(state.active, mean - 2 * radius, -np.inf).max(axis=1, keepdims=True)
        return np.asarray(state.active & ~(lower > mean + 2 * radius))

    def _is_best_arm(self, state: LdpmabState) -> Bools:
        mean = np.where(state.active, self._estimates(state)[0], -np.inf)
        return np.asarray(np.arange(state.active.shape[1]) == mean.argmax(axis=1)[:, None])

    def _estimates(self, state: LdpmabState) -> tuple[Array, Array]:
        """Return estimates of eq. (26) and radii of eq. (28), which are (13) and (14) where there are no sources.

        A cohort counts from log2(n)^2 people on, eq. (27). Estimates are clipped to the range of rewards, since ratios
        of noise are wild; the radius is infinite where the weighted count is not positive.
        """
        explored = state.people >= self._log**2
        people = np.maximum(state.people, 1)
        weights = np.minimum(np.abs((self._epsilons**2 / people)[..., None] * state.counts), explored[..., None])
        count = (weights * state.counts).sum(axis=0)
        has_weight = count > 0
        count = np.where(has_weight, count, 1.0)
        variances = np.maximum((people / self._epsilons**2)[..., None], state.counts)
        radius = np.sqrt(_CONFIDENCE_FACTOR * self._log * (weights**2 * variances).sum(axis=0)) / count
        mean = np.clip((weights * state.rewards).sum(axis=0) / count, 0.0, 1.0)
        return np.where(has_weight, mean, 0.0), np.where(has_weight, radius, np.inf)

    def find_ready_bins(self, state: LdpmabState, radius: Array) -> Bools:
        """Return a mask of the bins in which the radius of every active arm is below tau."""
        tau = 2.0 ** (-state.depths / self.spec.dimension)
        return np.asarray((~state.active | (radius < tau[:, None])).all(axis=1))

    @override
    def bin_means(self, state: LdpmabState) -> BinMeans:
        """Return mean rewards by bin, with the paper's radii, which hold at all times."""
        reward, (means, radii) = self.spec.reward, self._estimates(state)
        confidence = 1 - 1 / self.spec.experiment.horizon
        scaled = (reward.unscaled(means), reward.span * radii)
        return build_bin_means(state.active, self.edges(state), *scaled, self.spec, confidence)
