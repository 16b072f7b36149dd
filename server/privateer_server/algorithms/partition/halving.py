"""Bins of a dyadic partition by depth and path: halving them, and which lie in which."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX

Ints = NDArray[np.int64]


def halved(depths: Ints, paths: Ints, ready: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_], Ints, Ints]:
    """Cut the bins that are ``ready`` in two; all stay in order.

    Returns
    -------
    Old bin of every new one, whether it is a half, and depths and paths; shape (new bins,) each.
    """
    copies = np.repeat(np.arange(len(ready)), 1 + ready)
    fresh = ready[copies]
    second = np.concatenate([[False], copies[1:] == copies[:-1]])
    return copies, fresh, depths[copies] + fresh, np.where(fresh, 2 * paths[copies] + second, paths[copies])


def ancestry(
    depths: Ints, paths: Ints, past_depths: Ints, past_paths: Ints, limit: int
) -> Iterator[tuple[slice, Ints, NDArray[np.bool_]]]:
    """Groups of at most ``limit`` bins that share an ancestor, and the past bins that lie in each.

    Yields
    ------
    The group's bins, the past bins that hold bins of this group alone, and which of its bins each of them holds,
    (past, bins).
    """
    starts = paths << (DEPTH_MAX - depths)
    past_low = past_paths << (DEPTH_MAX - past_depths)
    past_high = past_low + (1 << (DEPTH_MAX - past_depths))
    waiting = [(0, 1 << DEPTH_MAX)]
    while waiting:
        low, high = waiting.pop()
        first, end = np.searchsorted(starts, [low, high])
        if end - first > limit:
            middle = (low + high) // 2
            waiting += [(middle, high), (low, middle)]
            continue
        past = np.flatnonzero((past_low >= low) & (past_high <= high))
        held = starts[None, first:end]
        yield slice(int(first), int(end)), past, (held >= past_low[past, None]) & (held < past_high[past, None])
