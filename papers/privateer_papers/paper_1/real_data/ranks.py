"""Ranks of methods over settings, and whether the best is significantly better, for paper 1's Table 2."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

_LEVEL: Final = 0.05


def rank_sums(settings: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    """Return the sum, over settings, of each method's rank: 1 is the largest; ties share the mean of their ranks.

    settings: figures of the same methods in the same order, one sequence a setting.
    """
    return np.asarray(rankdata(-np.array([list(one) for one in settings]), axis=1).sum(axis=0))


def outstanding(rewards: Mapping[str, Sequence[float]]) -> str | None:
    """Return the method that is significantly better than every other, if there is one: the largest mean's.

    Wilcoxon's signed-rank test against each of them, on runs of the same seeds, one-sided at level .05.

    rewards: of each run, in the order of seeds, by method.
    """
    best = max(rewards, key=lambda name: float(np.mean(rewards[name])))
    others = [rewards[name] for name in rewards if name != best]
    return best if all(is_better(rewards[best], other) for other in others) else None


def is_better(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether runs earn significantly more than other runs of the same seeds."""
    gaps = np.subtract(one, other)
    return bool(gaps.any()) and float(wilcoxon(gaps, alternative="greater").pvalue) < _LEVEL
