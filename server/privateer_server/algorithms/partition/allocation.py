"""The allocation of a bin's participants to arms: by elimination, and Thompson sampling of the remaining arms."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms.partition.gaussian_process import BinProcess
from privateer_server.algorithms.partition.kernel import Kernel, usual_lengths

_MAX_NARROW_WIDTH: Final = 0.25  # bins of this width or less are not wide: they are as even as was fitted
_MAX_SMALL_SHARE: Final = 0.2
"""Where the tree began with levels, bins with this share of the people or less are not wide: they serve few."""
_MAX_MEDIUM_SHARE: Final = 0.0625
"""After a feature selection bins with a larger share of the people count as wide, whatever their width."""
_KNOWN_VARIANCE_RATIO: Final = 0.5
"""A round plays one arm once the variance of each arm's average over the bin is below this share of a value's at
first."""
_DROP_DEVIATIONS: Final = 2.2
_DROP_DEVIATIONS_SHARED_BIN: Final = 1.8
"""Standard deviations of a difference at which an arm is dropped. Where the arm is in the key and arms share a bin, the
square of a share counts, so that one that is rarely played tells next to nothing and is dropped earlier."""
_DROP_DEVIATIONS_LARGE_BIN: Final = 3.0  # standard deviations at which an arm is dropped in large bins
_MAX_SPREAD_INDEX: Final = 2
"""Place of the spread that bins have at most when arms are dropped, .75; lengths are the usual ones."""
_EXPLORATION: Final = 0.5
"""Thompson sampling draws with this share of the posterior's standard deviation, less when few people are left."""
_EXPLORATION_WIDE: Final = 0.9
"""In wide bins: what is found there serves all their parts, and it shows when smoothness was misjudged."""
_EXPLORATION_ONE_ARM: Final = 0.35  # where a round plays one arm: each is known sooner
_EXPLORATION_RARE: Final = 1.0
_RARE_EVENT_SHARE: Final = 0.02
"""Where fewer people than this have an event, or have none, draws have the whole standard deviation: with less, an arm
that had bad luck with its few events is given up for good in one run of a few dozen."""
_MIN_EXPLORATION: Final = 0.05
_FADING_FACTOR: Final = 0.6
_FADING_FACTOR_IN_KEY: Final = 0.4
"""Share of the usual exploration where what is found fades: it serves fewer, and doubt grows back by itself."""
_SELECTION_FACTOR: Final = 2.0
_SELECTION_FACTOR_IN_KEY: Final = 4.0
"""Times the usual exploration while features are selected: what a feature does to an arm shows where the arm is played.
Where the arm is in the key the square of its share counts."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


@dataclass(frozen=True)
class BinKinds:
    """Boolean properties of bins by which the allocation rule differs, shape (bins,) each."""

    wide: Bools  # values may vary within the bin more than was fitted, so that arms are dropped late
    large: Bools  # many people are in the bin, where features were selected
    one_arm: Bools  # a round plays one arm throughout a part of the bin: rounds take turns


class Allocation:
    """The rule that allocates arms in bins.

    by_levels: whether the tree begins with a bin for each level of some features.
    """

    def __init__(self, spec: PartitionSpec, *, by_levels: bool) -> None:
        self._in_key, self._playable = spec.privacy.has_arm_in_key, np.array(spec.playable)
        self._horizon, self._by_levels = spec.experiment.horizon, by_levels

    def classify_bins(self, process: BinProcess, active: Bools, variance: Array, *, selected: bool) -> BinKinds:
        """Return the properties of bins.

        Where nothing is known of an arm yet it is played beside the others, or it might wait for long. (In wide bins
        of a rough function an average is known from the start: it is near the middle.)

        active, variance (bins, arms): arms that are played, and the posterior's variances.
        selected: whether features were selected.
        """
        wide = process.space.max_width(*process.box) > _MAX_NARROW_WIDTH
        if self._by_levels:
            wide &= process.people > _MAX_SMALL_SHARE
        large = (process.people > _MAX_MEDIUM_SHARE) & selected
        wide = np.asarray(wide | large)
        is_known = np.where(active, variance, 0.0).max(axis=1) < _KNOWN_VARIANCE_RATIO * process.variance
        return BinKinds(wide, np.asarray(large), np.asarray(is_known & ~wide & self._in_key))

    def surviving_arms(
        self, process: BinProcess, kinds: BinKinds, active: Bools, mean: Array, variance: Array
    ) -> Bools:
        """Return the arms that may be the best somewhere in the bin, (bins, arms).

        No wide bin counts as more even than usual, whatever was fitted: it does not show what is hidden in it. An arm
        that was dropped comes back when what its neighbours learn makes it likely again.
        """
        leader = np.where(active, mean, -np.inf).argmax(axis=1)[:, None]
        usual_kernel = Kernel(usual_lengths(process.space.parts), _MAX_SPREAD_INDEX, process.space)
        within = process.within_bin_variances(usual_kernel, kinds.wide)[:, None]
        difference_variance = variance + np.take_along_axis(variance, leader, axis=1) + 2 * within
        gap = np.take_along_axis(mean, leader, axis=1) - mean
        usual_deviations = np.where(self._in_key & ~kinds.one_arm, _DROP_DEVIATIONS_SHARED_BIN, _DROP_DEVIATIONS)
        max_deviations = np.where(kinds.large, _DROP_DEVIATIONS_LARGE_BIN, usual_deviations)[:, None]
        return np.asarray(~(gap > max_deviations * np.sqrt(difference_variance)) & self._playable)

    def exploration_factors(self, kinds: BinKinds, n_own_reports: int, half_life: float, rare_share: float) -> Array:
        """Return the factors, (bins,), of the posterior's standard deviation in sampling: more for rare outcomes.

        What is learned serves those to come: less near the horizon, when they are fewer than the ``n_own_reports``.
        ``rare_share`` is the share of people who have the rarer outcome, on the average.
        """
        n_remaining = max(0, self._horizon - n_own_reports)
        factors = np.where(kinds.wide, _EXPLORATION_WIDE, _EXPLORATION)
        factors = np.where(kinds.one_arm, _EXPLORATION_ONE_ARM, factors)
        factors = np.maximum(factors, _EXPLORATION_RARE if rare_share < _RARE_EVENT_SHARE else 0.0)
        n_effective = min(n_own_reports, half_life / math.log(2))
        if n_effective < n_own_reports:
            factors = factors * (_FADING_FACTOR_IN_KEY if self._in_key else _FADING_FACTOR)
        return np.maximum(_MIN_EXPLORATION, factors * math.sqrt(min(1.0, n_remaining / max(1, n_effective))))

    @property
    def selection_factor(self) -> float:
        """The factor of exploration during feature selection."""
        return _SELECTION_FACTOR_IN_KEY if self._in_key else _SELECTION_FACTOR


def best_probabilities(mean: Array, standard_deviation: Array, active: Bools) -> Array:
    """Return the probability that each arm's normal draw is the largest, (bins, arms); rows sum to 1."""
    draws = mean[:, :, None] + standard_deviation[:, :, None] * _NODES[None, None, :]
    below = np.ones_like(draws)
    for rival in range(mean.shape[1]):
        beaten = ndtr((draws - mean[:, rival, None, None]) / standard_deviation[:, rival, None, None])
        beaten[:, rival] = 1.0
        below *= np.where(active[:, rival, None, None], beaten, 1.0)
    probabilities = (below @ _WEIGHTS) * active
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def thompson_draw(mean: Array, standard_deviation: Array, active: Bools, wholes: Ints, seed: int) -> Array:
    """Draw one arm for each bin by Thompson sampling; return its indicator, (bins, arms).

    The draw costs no privacy and hides nothing: beliefs come from releases, and the policy that shows it is public.

    mean, standard_deviation, active (bins, arms): as in `best_probabilities`: the probability of each arm is the one
        given there.
    wholes (bins,): bins that are parts of the same whole share their normal variables, and differ by their means.
    seed: the seed of the round.
    """
    normal = np.random.default_rng(seed).standard_normal((int(wholes.max(initial=-1)) + 1, mean.shape[1]))
    draws = np.where(active, mean + standard_deviation * normal[wholes], -np.inf)
    return np.asarray(np.arange(mean.shape[1]) == draws.argmax(axis=1)[:, None], np.float64)


def compute_slot_thresholds(shares: Array, active: Bools) -> NDArray[np.uint32]:
    """Return a layout's slot thresholds, (bins, arms - 1), for shares (bins, arms); inactive arms have share 0."""
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
    # Rounding must not leave coins to a dropped last arm.
    last_active = active.shape[1] - 1 - active[:, ::-1].argmax(axis=1)
    return np.where(np.arange(active.shape[1] - 1)[None, :] >= last_active[:, None], np.uint32(UNIT), edges)


def select_best_arm(candidates: Bools, preferred: Bools, mean: Array) -> Bools:
    """Return the candidate of the highest mean, among preferred candidates if any; indicators (bins, arms)."""
    preferred_candidates = candidates & preferred
    candidates = np.where(preferred_candidates.any(axis=1, keepdims=True), preferred_candidates, candidates)
    best = np.where(candidates, mean, -np.inf).argmax(axis=1)
    return np.asarray(np.arange(candidates.shape[1])[None, :] == best[:, None])
