"""Paper 1's elimination with a finite-sample guarantee: its spec and learner; policies and promises are the product's.

The learner drops no arm where it is best, but for a stated failure.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition import PartitionPolicy, PartitionSection, PartitionSpec, bin_corners
from privateer_core.answer.parts import BinMeans
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.errors import SpecError
from privateer_core.primitives.contributions import CellHits, KeyedSums
from privateer_core.spec.spec import example_promises
from privateer_papers.paper_1.ldpmab import EliminationLearner
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.partition.allocation import select_best_arm
from privateer_server.algorithms.partition.cohorts import CONFIDENCE, DEVIATIONS, build_bin_means
from privateer_server.algorithms.partition.round_estimates import compute_bin_sums

_MAX_WIDTH_SHARE: Final = 0.5
"""Largest width of the bounds of a bin's differences for halving it, as a share of its bias."""
_VARIANCE_EXPONENTS: Final = np.arange(-10, 61)
"""Exponents j of the variances 2^j at which lines are tight."""
_LOG_INVERSE_FAILURE: Final = 8.0
"""Logarithm of the inverse failure for which a line touches its variance's bound."""


class ProvedSection(PartitionSection):
    """The ``[algorithm]``: bounds are valid for constant rewards, so old reports count fully."""

    name: Literal["paper-1-proved"]  # type: ignore[assignment] # one of its own
    half_life: None = None
    # of every arm's mean reward (rewards and features scaled to [0, 1], Euclidean norm)
    lipschitz: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    density_bound: float = Field(default=1.0, ge=1, allow_inf_nan=False)  # the most that the density of contexts is
    failure: float = Field(default=0.05, gt=0, lt=1)  # the probability that an arm is ever dropped where it is best


class ProvedSpec(PartitionSpec):
    """An experiment with elimination by proved bounds."""

    algorithm: ProvedSection

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = example_promises()
        instances_by_model = {name: cls._example(promise, name="paper-1-proved") for name, promise in promises.items()}
        hidden = [name for name, spec in instances_by_model.items() if spec.privacy.has_arm_in_key]
        return instances_by_model | {
            f"{name}-hidden": cls._example(promises[name] | {"arm_visibility": "hidden"}, name="paper-1-proved")
            for name in hidden
        }


ALGORITHM: Final = Algorithm(ProvedSpec, PartitionPolicy)


def martingale_upper_bound(variance: Array, scale: Array, failure: Array, expected: float) -> Array:
    """Return a bound that a martingale exceeds at any time with at most this ``failure``; the arguments broadcast.

    For every line's slope b, exp(b Z - psi(b) V) is a supermartingale that starts at 1, psi(b) = b^2 / (2 (1 - c b)),
    and by Ville's inequality it ever exceeds 1/a with probability at most a. So does Z exceed the least of all lines
    (log(1/a_j) + psi(b_j) V) / b_j with probability at most the sum of the a_j (Howard, Ramdas, McAuliffe and Sekhon
    2021, Section 3, with lines in place of their mixtures).

    variance: V: the sum of the steps' variances given the past, or bounds of them.
    scale: c: a third of the largest step so far; 0 where steps are sub-Gaussian with these variances.
    failure: probability of ever being exceeded.
    expected: the variance at which the bound should be tightest; fixed in advance.
    """
    distance = np.abs(_VARIANCE_EXPONENTS - np.log2(max(1.0, expected)))
    weights = 1 / (2 + distance) ** 2
    log_terms = np.log(weights.sum() / (weights * np.asarray(failure)[..., None]))
    slopes = np.sqrt(2 * _LOG_INVERSE_FAILURE / 2.0**_VARIANCE_EXPONENTS)
    margin = 1 - np.asarray(scale)[..., None] * slopes
    curvature = slopes / (2 * np.where(margin > 0, margin, np.inf))
    lines = log_terms / slopes + curvature * np.asarray(variance)[..., None]
    return np.asarray(np.where(margin > 0, lines, np.inf).min(axis=-1))


@dataclass(frozen=True)
class ProvedState:
    """The server's state of the bins. Values are (2 mean reward - 1), summed over the people in a bin."""

    # closed rounds, and people who reported
    rounds: int
    seen: int
    # shape (bins,): the bins, as in `PartitionPolicy`, in order
    depths: Ints
    paths: Ints
    active: Bools  # shape (bins, arms): arms not dropped yet
    # shape (bins, arms): precision of the bin's values, and precision times estimate
    precision: Array
    moment: Array
    # shape (bins,): largest weight that a single report has had in ``moment``, over arms; 0 while scores are signs
    heaviest: Array
    # the cohort of the last round, and its people who have reported
    cohort: str = ""
    reported: int = 0
    # whose reports these are: people elsewhere have other masses, so that sums of two cohorts prove nothing
    evidence_cohort: str = ""
    expected: float = 0.0  # the variance at which bounds are tightest: as the first horizon said, whatever became of it


class ProvedLearner(EliminationLearner[ProvedState]):
    """Algorithm 2 of paper 1 with public arms, one signed symbol, and bounds that hold for all rounds, bins and arms.

    With probability 1 - ``failure`` no arm is ever dropped in a bin that has a place where it is best, if mean rewards
    are Lipschitz and the density of contexts is bounded as the spec says (docs/learning.md has the proof).
    """

    state_type = ProvedState
    sums = ("precision", "moment", "heaviest")

    def __init__(self, spec: ProvedSpec) -> None:
        super().__init__(spec)
        self._bounds = spec.algorithm

    @override
    def start(self, seed: int) -> ProvedState:
        """Return one bin with all arms."""
        shape = (1, self.spec.arm_count)
        zero = np.zeros(1, np.int64)
        zeros, expected = np.zeros(shape), self.spec.experiment.horizon / self.spec.arm_count
        state = ProvedState(0, 0, zero, zero, self.playable[None, :], zeros, zeros, np.zeros(1), self.spec.cohorts[0])
        return replace(state, expected=expected)

    @override
    def apply_arm_change(self, state: ProvedState, before: PartitionSpec) -> ProvedState:
        """Return the state without retired arms: arms that only retired arms have beaten are active again."""
        if self.spec.arm_count != before.arm_count:
            detail = "the failure is shared out over the arms of the start"
            remedy = "create an experiment with all arms, or use another algorithm"
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        state = replace(state, active=np.broadcast_to(self.playable, state.active.shape).copy())
        return replace(state, active=self._keep_undominated_arms(state, self.compute_lead_bounds(state)[0]))

    @override
    def policy(self, state: ProvedState, next_round: NewRound) -> PartitionPolicy:
        """Return a policy of equally likely active arms; at the end (``batch`` 0) every bin plays its best arm."""
        active = (
            state.active if next_round.batch_size else select_best_arm(state.active, state.precision > 0, _means(state))
        )
        bins = np.flatnonzero(active.sum(axis=1) > 1)
        shares = active[bins] / active[bins].sum(axis=1, keepdims=True)
        people = np.asarray(0.5 ** state.depths[bins])
        tree = {"axes": self.axes, "depths": state.depths, "paths": state.paths, "active": active, "bins": bins}
        return self.build_policy_from_shares(next_round, shares, people, **tree)

    @override
    def learn(self, state: ProvedState, policy: PartitionPolicy, release: KeyedSums | CellHits) -> ProvedState:
        """Add the round by inverse variance, drop arms, halve bins; with each cohort estimates begin anew."""
        release = release.keyed_sums if isinstance(release, CellHits) else release
        if state.evidence_cohort != policy.cohort:
            zeros = np.zeros_like(state.precision)
            bin_zeros = np.zeros_like(state.heaviest)
            state = replace(state, evidence_cohort=policy.cohort, precision=zeros, moment=zeros, heaviest=bin_zeros)
        bins = policy.bins
        precision, moment, heaviest = state.precision.copy(), state.moment.copy(), state.heaviest.copy()
        mass = self._mass_bounds(state.depths[bins])[:, None]
        bin_sums = compute_bin_sums(self.spec, policy, release)
        variance = _score_variance_bound(release, mass * bin_sums.reporting_shares if policy.has_fresh_coins else mass)
        # A curator's noise is added once to a sum: a report bears its share of it.
        weight = bin_sums.gain / (variance + release.noise / np.maximum(1, bin_sums.reports))
        precision[bins] += bin_sums.gain * weight * bin_sums.reports
        moment[bins] += weight * bin_sums.sums
        if not _has_sign_scores(release):
            heaviest[bins] = np.maximum(heaviest[bins], np.max(weight, axis=1, initial=0.0))
        state = replace(state, precision=precision, moment=moment, heaviest=heaviest)
        state = self.count_round(state, policy, release.reports)
        lower, width = self.compute_lead_bounds(state)
        state = replace(state, active=self._keep_undominated_arms(state, lower))
        return self.halve_ready_bins(state, self.find_ready_bins(state, width))

    def _mass_bounds(self, depths: Ints) -> Array:
        """Return upper bounds of the probability of bins by depth."""
        return np.asarray(np.minimum(1.0, self._bounds.density_bound * 0.5**depths))

    def compute_lead_bounds(self, state: ProvedState) -> tuple[Array, Array]:
        """Return lower bounds of each arm's lead over every other, and the widths of the bounds, (bins, arms, arms).

        A lead is estimated in two ways, each of which may fail half as often: by the arms' estimates, and, where their
        precisions are about equal, by the difference of their moments over the mean precision. A bin of depth s may
        fail with probability failure 2^-s / ((s + 1) (s + 2)), which sums to at most ``failure`` over a tree, and
        shares it over its ordered pairs of arms. Where nothing is known, bounds are infinite.
        """
        arms, depths = self.spec.arm_count, state.depths
        failure = self._bounds.failure * 0.5**depths / ((depths + 1) * (depths + 2) * arms * (arms - 1))
        failure, scale = failure[:, None, None] / 2, state.heaviest[:, None, None] / 3
        expected = state.expected
        precision = np.where(state.precision > 0, state.precision, 1.0)
        radii = martingale_upper_bound(precision, scale[..., 0], failure[..., 0] / 2, expected) / precision
        separate = _combine_pairs(_means(state), np.subtract), _combine_pairs(radii, np.add)
        total = _combine_pairs(precision, np.add)
        imbalance = np.abs(_combine_pairs(precision, np.subtract)) * self._mass_bounds(depths)[:, None, None]
        open_ = martingale_upper_bound(total, scale, failure, 2 * expected) + imbalance
        paired = 2 * _combine_pairs(state.moment, np.subtract) / total, 2 * open_ / total
        is_known = _combine_pairs(state.precision > 0, np.logical_and)
        lower = np.maximum(*(estimate - width for estimate, width in (separate, paired)))
        return np.where(is_known, lower, -np.inf), np.where(is_known, np.minimum(separate[1], paired[1]), np.inf)

    def _keep_undominated_arms(self, state: ProvedState, lower: Array) -> Bools:
        """Return the active arms without arms that another arm beats by more than the bin's bias."""
        rivals = np.where(state.active[:, :, None], lower, -np.inf).max(axis=1)
        return np.asarray(state.active & ~(rivals > self._bias_bounds(state.depths, state.paths)[:, None]))

    def _bias_bounds(self, depths: Ints, paths: Ints) -> Array:
        """Return the most, (bins,), that an arm may lead by over the people of a bin in which it is behind somewhere.

        2 f - 1 of two arms may move apart by 4 L t at distance t from that place. The sum over people is at most
        density_bound 4 L times the integral of t over the bin, which is largest from a corner, and there at most
        volume sqrt(sum_j width_j^2 / 3) (Jensen).
        """
        lower, upper = bin_corners(depths, paths, self.axes, self.spec.dimension)
        distance = np.sqrt(((upper - lower) ** 2).sum(axis=1) / 3)
        bounds = self._bounds
        return np.asarray(4 * bounds.lipschitz * bounds.density_bound * 0.5**depths * distance)

    def find_ready_bins(self, state: ProvedState, width: Array) -> Bools:
        """Return a mask of the bins whose differences between active arms are known better than the bias."""
        are_active = _combine_pairs(state.active, np.logical_and)
        widest = np.where(are_active, width, 0.0).max(axis=(1, 2))
        return np.asarray(widest < _MAX_WIDTH_SHARE * self._bias_bounds(state.depths, state.paths))

    @override
    def has_evidence(self, state: ProvedState) -> bool:
        return bool(state.seen or state.precision.any())

    @override
    def bin_means(self, state: ProvedState) -> BinMeans:
        """Return mean rewards by bin, with nearly normal intervals.

        The scale takes contexts for uniform; where they are not, read the order of the arms and not the distance.
        """
        means, errors = self._reward_estimates(state)
        edges = self.edges(state)
        return build_bin_means(state.active, edges, means, DEVIATIONS * errors, self.spec, CONFIDENCE)

    def _reward_estimates(self, state: ProvedState) -> tuple[Array, Array]:
        """Return means and standard errors in the unit of rewards, (bins, arms) each; nan where nothing is known."""
        mass = 0.5 ** state.depths[:, None]
        low, high = self.spec.reward.low, self.spec.reward.high
        means = low + (high - low) * (_means(state) / mass + 1) / 2
        errors = (high - low) / np.sqrt(np.where(state.precision > 0, state.precision, np.nan)) / mass / 2
        return means, errors


def _combine_pairs(values: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
    """Combine the ``values`` (bins, arms) of every two arms; shape (bins, arms, arms)."""
    return np.asarray(combine(values[:, :, None], values[:, None, :]))


def _has_sign_scores(release: KeyedSums) -> bool:
    """Whether every report scores 1 or -1 at every key: then steps are sub-Gaussian by Hoeffding's lemma."""
    return min(release.hit_own, release.hit_other, release.hit_none) > 1 - 1e-9


def _score_variance_bound(release: KeyedSums, mass: Array) -> Array:
    """Return a bound of the second moment of one report's score at each key."""
    other = max(release.hit_other, release.hit_none)
    return np.asarray(mass * max(0.0, release.hit_own - other) + other)


def _means(state: ProvedState) -> Array:
    """Return the estimates of the arms' values, 0 without reports."""
    return state.moment / np.where(state.precision > 0, state.precision, 1.0)
