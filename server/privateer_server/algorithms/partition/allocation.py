"""The allocation of a bin's people to arms: those behind are dropped, and Thompson sampling plays the others."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms.partition.gaussian_process import BinProcess
from privateer_server.algorithms.partition.kernel import Kernel, usual_lengths

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_NARROW: Final = 0.25
"""Bins of this width or less are not wide: they are as even as was fitted."""
_FEW: Final = 0.2
"""Where the tree began with levels, bins with this share of the people or less are not wide: they serve few."""
_LARGE: Final = 0.0625
"""After a feature selection bins with a larger share of the people count as wide, whatever their width."""
_KNOWN: Final = 0.5
"""A round plays one arm once the variance of each arm's average over the bin is below this share of a value's at
first."""
_DROP: Final = 2.2
_DROP_SHARED: Final = 1.8
"""Standard deviations of a difference at which an arm is dropped. Where the arm is in the key and arms share a bin, the
square of a share counts, so that one that is rarely played tells next to nothing and is dropped earlier."""
_DROP_LARGE: Final = 3.0
"""Standard deviations at which an arm is dropped in large bins."""
_USUAL_SPREAD: Final = 2
"""Place of the spread that bins have at most when arms are dropped, .75; lengths are the usual ones."""
_EXPLORATION: Final = 0.5
"""Thompson sampling draws with this share of the posterior's standard deviation, less when few people are left."""
_EXPLORATION_WIDE: Final = 0.9
"""In wide bins: what is found there serves all their parts, and it shows when smoothness was misjudged."""
_EXPLORATION_ONE_ARM: Final = 0.35
"""Where a round plays one arm: each is known sooner."""
_EXPLORATION_RARE: Final = 1.0
_RARE: Final = 0.02
"""Where fewer people than this have an event, or have none, draws have the whole standard deviation: with less, an arm
that had bad luck with its few events is given up for good in one run of a few dozen."""
_EXPLORATION_LEAST: Final = 0.05
_FADING: Final = 0.6
_FADING_IN_KEY: Final = 0.4
"""Share of the usual exploration where what is found fades: it serves fewer, and doubt grows back by itself."""
_SELECTING: Final = 2.0
_SELECTING_IN_KEY: Final = 4.0
"""Times the usual exploration while features are selected: what a feature does to an arm shows where the arm is played.
Where the arm is in the key the square of its share counts."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


@dataclass(frozen=True)
class BinKinds:
    """Kinds of bins that the rule treats differently, shape (bins,) each."""

    wide: Bools  # values may vary within the bin more than was fitted, so that arms are dropped late
    large: Bools  # many people are in the bin, where features were selected
    one_arm: Bools  # a round plays one arm throughout a part of the bin: rounds take turns


class Allocation:
    """The rule by which bins play arms.

    by_levels: whether the tree begins with a bin for each level of some features.
    """

    def __init__(self, spec: PartitionSpec, *, by_levels: bool) -> None:
        self._in_key, self._playable = spec.privacy.arm_in_key, np.array(spec.playable)
        self._horizon, self._by_levels = spec.experiment.horizon, by_levels

    def kinds(self, process: BinProcess, active: Bools, variance: Array, *, selected: bool) -> BinKinds:
        """Tell how bins are treated.

        Where nothing is known of an arm yet it is played beside the others, or it might wait for long. (In wide bins
        of a rough function an average is known from the start: it is near the middle.)

        active, variance (bins, arms): arms that are played, and the posterior's variances.
        selected: whether features were selected.
        """
        wide = process.space.widest(*process.box) > _NARROW
        if self._by_levels:
            wide &= process.people > _FEW
        large = (process.people > _LARGE) & selected
        wide = np.asarray(wide | large)
        known = np.where(active, variance, 0.0).max(axis=1) < _KNOWN * process.variance
        return BinKinds(wide, np.asarray(large), np.asarray(known & ~wide & self._in_key))

    def surviving(self, process: BinProcess, kinds: BinKinds, active: Bools, mean: Array, variance: Array) -> Bools:
        """Arms that may be the best at some place of the bin, as far as is known now, (bins, arms).

        No wide bin counts as more even than usual, whatever was fitted: it does not show what is hidden in it. An arm
        that was dropped comes back when what its neighbours learn makes it likely again.
        """
        leader = np.where(active, mean, -np.inf).argmax(axis=1)[:, None]
        usual = Kernel(usual_lengths(process.space.parts), _USUAL_SPREAD, process.space)
        within = process.within(usual, kinds.wide)[:, None]
        of_difference = variance + np.take_along_axis(variance, leader, axis=1) + 2 * within
        gap = np.take_along_axis(mean, leader, axis=1) - mean
        usual_most = np.where(self._in_key & ~kinds.one_arm, _DROP_SHARED, _DROP)
        most = np.where(kinds.large, _DROP_LARGE, usual_most)[:, None]
        return np.asarray(~(gap > most * np.sqrt(of_difference)) & self._playable)

    def exploration(self, kinds: BinKinds, own: int, half_life: float, rarity: float) -> Array:
        """Return the share of the posterior's standard deviation with which arms are drawn, (bins,).

        What is learned serves those to come: less of it when they are fewer than the ``own`` people before. ``rarity``
        is the share of people who have the rarer outcome, on the average.
        """
        left = max(0, self._horizon - own)
        usual = np.where(kinds.wide, _EXPLORATION_WIDE, _EXPLORATION)
        usual = np.where(kinds.one_arm, _EXPLORATION_ONE_ARM, usual)
        usual = np.maximum(usual, _EXPLORATION_RARE if rarity < _RARE else 0.0)
        before = min(own, half_life / math.log(2))
        if before < own:
            usual = usual * (_FADING_IN_KEY if self._in_key else _FADING)
        return np.maximum(_EXPLORATION_LEAST, usual * math.sqrt(min(1.0, left / max(1, before))))

    @property
    def selecting(self) -> float:
        """Times the usual exploration while features are selected."""
        return _SELECTING_IN_KEY if self._in_key else _SELECTING


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


def thompson_draw(
    mean: Array,
    standard_deviation: Array,
    active: Bools,
    wholes: NDArray[np.int64],
    seed: int,
) -> Array:
    """Draw one arm for each bin by Thompson sampling; return shares of 1 for it and of 0 for all others, (bins, arms).

    The draw costs no privacy and hides nothing: beliefs come from releases, and the policy that shows it is public.

    mean, standard_deviation, active (bins, arms): as in `best_probabilities`: the probability of each arm is the one
        given there.
    wholes (bins,): bins that are parts of the same whole share their normal variables, and differ by their means.
    seed: the seed of the round.
    """
    normal = np.random.default_rng(seed).standard_normal((int(wholes.max(initial=-1)) + 1, mean.shape[1]))
    draws = np.where(active, mean + standard_deviation * normal[wholes], -np.inf)
    return np.asarray(np.arange(mean.shape[1]) == draws.argmax(axis=1)[:, None], np.float64)


def thresholds(shares: Array, active: Bools) -> NDArray[np.uint32]:
    """Return a layout's slot thresholds, (bins, arms - 1), for shares (bins, arms), 0 for arms that are not active."""
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
    # Rounding must not leave coins to a dropped last arm.
    last = active.shape[1] - 1 - active[:, ::-1].argmax(axis=1)
    return np.where(np.arange(active.shape[1] - 1)[None, :] >= last[:, None], np.uint32(UNIT), edges)


def only_best(candidates: Bools, preferred: Bools, mean: Array) -> Bools:
    """Return the candidate of the highest mean, of those preferred if there are any, as the only arm; (bins, arms)."""
    known = candidates & preferred
    candidates = np.where(known.any(axis=1, keepdims=True), known, candidates)
    best = np.where(candidates, mean, -np.inf).argmax(axis=1)
    return np.asarray(np.arange(candidates.shape[1])[None, :] == best[:, None])
