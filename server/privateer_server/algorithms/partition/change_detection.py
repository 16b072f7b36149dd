"""Change detection: windows of rounds, and the test whether their reports contradict earlier ones."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from privateer_core.answer.parts import DriftTest
from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.forgetting import pad_axis
from privateer_server.algorithms.partition.bin_tree import BinTree
from privateer_server.algorithms.partition.gaussian_process import BinEvidence

Likelihood = Callable[[BinEvidence], float]  # logarithm of the density of evidence on the bins

FIRST_WINDOW_SIZE: Final = 2000
"""People who report before the first window opens; every window lasts until they are twice as many as at its start."""
FALSE_ALARM_RATE: Final = 0.001
"""Probability that an experiment in which nothing moves is ever said to contradict itself, at most."""
_RETAINED_SHARES: Final = (0.0, 0.125)
"""Shares of what was known earlier that still hold, in the alternatives to all of it."""
_MAX_LOG_RATIO: Final = 600.0


@dataclass(frozen=True)
class Window:
    """A window of rounds that are compared with earlier rounds, with the evidence when it opened."""

    n_own_reports: int  # the experiment's own people who had reported
    # depths, paths: shape (bins,): bins, and those that had been split before
    depths: Ints
    paths: Ints
    # precision, moment: shape (bins, arms): what was known of them
    precision: Array
    moment: Array
    closed: Array  # shape (windows,): logarithms of the evidence of the windows before
    opened: Ints  # shape (windows,): people who had reported when those were opened

    def with_arms(self, added: int) -> "Window":
        """Return the window with additional arms without evidence."""
        precision, moment = (pad_axis(values, -1, added) for values in (self.precision, self.moment))
        return replace(self, precision=precision, moment=moment)

    def evidence_for(self, depths: Ints, paths: Ints) -> tuple[Array, Array]:
        """Return the window's precision and moment for these bins, (bins, arms) each; 0 for bins that did not exist."""
        indices = {key: index for index, key in enumerate(zip(self.depths.tolist(), self.paths.tolist(), strict=True))}
        rows = np.array([indices.get(key, -1) for key in zip(depths.tolist(), paths.tolist(), strict=True)], np.int64)
        is_known = (rows >= 0)[:, None]
        return is_known * self.precision[rows], is_known * self.moment[rows]

    def log_evidence_of_change(self, tree: BinTree, now: BinEvidence, likelihood: Likelihood) -> float:
        """Return the log evidence that reports in the window contradict earlier reports; ``now`` forgets nothing."""
        old, old_moment = self.evidence_for(tree.depths, tree.paths)
        past, past_moment = self.evidence_for(tree.past_depths, tree.past_paths)

        def log_likelihood_of_shares(earlier: float, recent: float) -> float:
            evidence = BinEvidence(
                # What was known and what is known now may differ in their last digits.
                np.maximum(0.0, earlier * old + recent * (now.precision - old)),
                earlier * old_moment + recent * (now.moment - old_moment),
                np.maximum(0.0, earlier * past + recent * (now.past_precision - past)),
                earlier * past_moment + recent * (now.past_moment - past_moment),
            )
            return likelihood(evidence)

        return log_evidence_ratio(log_likelihood_of_shares)


def advance_window(
    window: Window | None, tree: BinTree, now: BinEvidence, n_own_reports: int, likelihood: Likelihood
) -> Window | None:
    """Return the next window if the number of own reports has doubled since this window opened, else this window."""
    if n_own_reports < (2 * window.n_own_reports if window else FIRST_WINDOW_SIZE):
        return window
    closed = np.append(window.closed, window.log_evidence_of_change(tree, now, likelihood)) if window else np.zeros(0)
    return Window(
        n_own_reports=n_own_reports,
        depths=np.append(tree.depths, tree.past_depths),
        paths=np.append(tree.paths, tree.past_paths),
        precision=np.concatenate([now.precision, now.past_precision]),
        moment=np.concatenate([now.moment, now.past_moment]),
        closed=closed,
        opened=np.append(window.opened, window.n_own_reports) if window else np.zeros(0, np.int64),
    )


def detect_change(window: Window, tree: BinTree, now: BinEvidence, likelihood: Likelihood) -> DriftTest:
    """Return the test of whether rounds since a window opened contradict earlier rounds."""
    log_evidence = np.append(window.closed, window.log_evidence_of_change(tree, now, likelihood))
    return compute_drift_test(log_evidence, np.append(window.opened, window.n_own_reports))


def log_evidence_ratio(likelihood: Callable[[float, float], float]) -> float:
    """Return the log predictive density ratio of recent reports, if earlier ones are discounted, to no discount.

    likelihood: logarithm of the density of a share of the earlier reports, and of a share of the recent ones.
    """

    def predictive_log_density(share: float) -> float:
        return likelihood(share, 1.0) - likelihood(share, 0.0)

    unchanged = predictive_log_density(1.0)
    ratios = [min(_MAX_LOG_RATIO, predictive_log_density(share) - unchanged) for share in _RETAINED_SHARES]
    return float(np.logaddexp.reduce(ratios) - math.log(len(ratios)))


def compute_drift_test(log_evidence: Array, starts: Ints) -> DriftTest:
    """Return the test of drift over all windows, the last of which is open, with the reports before each started.

    If nothing moves, the evidence of an open window is a martingale that starts at 1, and so is the average over
    windows, those to come included: it ever reaches 1 / rate with probability `FALSE_ALARM_RATE` at most (Ville).
    Window k of them has weight 1 / (k (k + 1)).
    """
    ranks = np.arange(1, len(log_evidence) + 1)
    weighted_logs = log_evidence - np.log(ranks * (ranks + 1.0))
    remaining_weight = -math.log(len(log_evidence) + 1)
    total = float(np.logaddexp.reduce(np.append(weighted_logs, remaining_weight)))
    is_detected = total >= -math.log(FALSE_ALARM_RATE)
    change_start = int(starts[int(np.argmax(weighted_logs))]) if is_detected else None
    return DriftTest(is_detected, round(total / math.log(10), 2), FALSE_ALARM_RATE, change_start)
