"""A test of whether recent rounds contradict earlier ones, by their releases; it may be looked at in every round."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.parts import Contradiction
from privateer_server.algorithms.partition.bin_tree import BinTree
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, with_arms

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Likelihood = Callable[[BinEvidence], float]
"""Logarithm of the density of evidence on the bins."""

FIRST: Final = 2000
"""People who report before the first window opens; every window lasts until they are twice as many as at its start."""
FALSE_ALARM_RATE: Final = 0.001
"""Probability that an experiment in which nothing moves is ever said to contradict itself, at most."""
_FORGOTTEN: Final = (0.0, 0.125)
"""Shares of what was known earlier that still hold, in the alternatives to all of it."""
_LOG_MAX: Final = 600.0


@dataclass(frozen=True)
class Window:
    """A window of rounds that are compared with those before, and what was known of values when it opened."""

    own: int  # the experiment's own people who had reported
    # depths, paths: shape (bins,): bins, and those that had been split before
    depths: Ints
    paths: Ints
    # precision, moment: shape (bins, arms): what was known of them
    precision: Array
    moment: Array
    closed: Array  # shape (windows,): logarithms of the evidence of the windows before
    opened: Ints  # shape (windows,): people who had reported when those were opened

    def with_arms(self, added: int) -> "Window":
        """Return it with so many more arms at the end, of which nothing was known."""
        return replace(self, precision=with_arms(self.precision, added), moment=with_arms(self.moment, added))

    def of(self, depths: Ints, paths: Ints) -> tuple[Array, Array]:
        """Return its precision and moment for these bins, (bins, arms) each; bins that were none then knew nothing."""
        places = {key: place for place, key in enumerate(zip(self.depths.tolist(), self.paths.tolist(), strict=True))}
        found = np.array([places.get(key, -1) for key in zip(depths.tolist(), paths.tolist(), strict=True)], np.int64)
        known = (found >= 0)[:, None]
        return known * self.precision[found], known * self.moment[found]

    def contradicted(self, tree: BinTree, now: BinEvidence, likelihood: Likelihood) -> float:
        """Return the logarithm of the evidence that what is reported in the window contradicts what was known before.

        ``now`` is all that is known, without forgetting.
        """
        old, old_moment = self.of(tree.depths, tree.paths)
        past, past_moment = self.of(tree.past_depths, tree.past_paths)

        def of_shares(earlier: float, recent: float) -> float:
            known = BinEvidence(
                # What was known and what is known now may differ in their last digits.
                np.maximum(0.0, earlier * old + recent * (now.precision - old)),
                earlier * old_moment + recent * (now.moment - old_moment),
                np.maximum(0.0, earlier * past + recent * (now.past_precision - past)),
                earlier * past_moment + recent * (now.past_moment - past_moment),
            )
            return likelihood(known)

        return evidence(of_shares)


def windowed(window: Window | None, tree: BinTree, now: BinEvidence, own: int, likelihood: Likelihood) -> Window | None:
    """Close the window, and open the next, when as many own people have reported in it as before it."""
    if own < (2 * window.own if window else FIRST):
        return window
    return Window(
        own=own,
        depths=np.append(tree.depths, tree.past_depths),
        paths=np.append(tree.paths, tree.past_paths),
        precision=np.concatenate([now.precision, now.past_precision]),
        moment=np.concatenate([now.moment, now.past_moment]),
        closed=np.append(window.closed, window.contradicted(tree, now, likelihood)) if window else np.zeros(0),
        opened=np.append(window.opened, window.own) if window else np.zeros(0, np.int64),
    )


def contradiction(window: Window, tree: BinTree, now: BinEvidence, likelihood: Likelihood) -> Contradiction:
    """Whether rounds since a window opened contradict those before."""
    windows = np.append(window.closed, window.contradicted(tree, now, likelihood))
    return verdict(windows, np.append(window.opened, window.own))


def evidence(likelihood: Callable[[float, float], float]) -> float:
    """Return the log of how much more probable recent reports are if earlier ones hold no longer, or in part.

    likelihood: logarithm of the density of a share of the earlier reports, and of a share of the recent ones.
    """

    def predicted(share: float) -> float:
        return likelihood(share, 1.0) - likelihood(share, 0.0)

    holds = predicted(1.0)
    ratios = [min(_LOG_MAX, predicted(share) - holds) for share in _FORGOTTEN]
    return float(np.logaddexp.reduce(ratios) - math.log(len(ratios)))


def verdict(windows: Array, opened: Ints) -> Contradiction:
    """Return what the windows say together, the last of which is open.

    If nothing moves, the evidence of an open window is a martingale that starts at 1, and so is the average over
    windows, those to come included: it ever reaches 1 / rate with probability `FALSE_ALARM_RATE` at most (Ville).
    Window k of them has weight 1 / (k (k + 1)).
    """
    places = np.arange(1, len(windows) + 1)
    weighed = windows - np.log(places * (places + 1.0))
    rest = -math.log(len(windows) + 1)
    total = float(np.logaddexp.reduce(np.append(weighed, rest)))
    found = total >= -math.log(FALSE_ALARM_RATE)
    since = int(opened[int(np.argmax(weighed))]) if found else None
    return Contradiction(found, round(total / math.log(10), 2), FALSE_ALARM_RATE, since)
