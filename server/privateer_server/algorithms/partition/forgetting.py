"""Forgetting: evidence under several discounts in parallel, and the test for a change."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from privateer_core.answer.parts import DriftTest, HalfLives
from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.partition.bin_tree import BinTree, Split
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, with_arms

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
        """Return the window with additional arms without evidence."""
        return replace(self, precision=with_arms(self.precision, added), moment=with_arms(self.moment, added))

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
    if n_own_reports < (2 * window.own if window else FIRST_WINDOW_SIZE):
        return window
    closed = np.append(window.closed, window.log_evidence_of_change(tree, now, likelihood)) if window else np.zeros(0)
    return Window(
        own=n_own_reports,
        depths=np.append(tree.depths, tree.past_depths),
        paths=np.append(tree.paths, tree.past_paths),
        precision=np.concatenate([now.precision, now.past_precision]),
        moment=np.concatenate([now.moment, now.past_moment]),
        closed=closed,
        opened=np.append(window.opened, window.own) if window else np.zeros(0, np.int64),
    )


def detect_change(window: Window, tree: BinTree, now: BinEvidence, likelihood: Likelihood) -> DriftTest:
    """Return the test of whether rounds since a window opened contradict earlier rounds."""
    windows = np.append(window.closed, window.log_evidence_of_change(tree, now, likelihood))
    return combine_windows(windows, np.append(window.opened, window.own))


def log_evidence_ratio(likelihood: Callable[[float, float], float]) -> float:
    """Return the log predictive density ratio of recent reports, if earlier ones are discounted, to no discount.

    likelihood: logarithm of the density of a share of the earlier reports, and of a share of the recent ones.
    """

    def predictive_log_density(share: float) -> float:
        return likelihood(share, 1.0) - likelihood(share, 0.0)

    unchanged = predictive_log_density(1.0)
    ratios = [min(_MAX_LOG_RATIO, predictive_log_density(share) - unchanged) for share in _RETAINED_SHARES]
    return float(np.logaddexp.reduce(ratios) - math.log(len(ratios)))


def combine_windows(windows: Array, opened: Ints) -> DriftTest:
    """Return the test over all windows, the last of which is open.

    If nothing moves, the evidence of an open window is a martingale that starts at 1, and so is the average over
    windows, those to come included: it ever reaches 1 / rate with probability `FALSE_ALARM_RATE` at most (Ville).
    Window k of them has weight 1 / (k (k + 1)).
    """
    ranks = np.arange(1, len(windows) + 1)
    weighted_logs = windows - np.log(ranks * (ranks + 1.0))
    remaining_weight = -math.log(len(windows) + 1)
    total = float(np.logaddexp.reduce(np.append(weighted_logs, remaining_weight)))
    is_detected = total >= -math.log(FALSE_ALARM_RATE)
    change_start = int(opened[int(np.argmax(weighted_logs))]) if is_detected else None
    return DriftTest(is_detected, round(total / math.log(10), 2), FALSE_ALARM_RATE, change_start)


_ENDLESS_PRIOR: Final = 0.7  # probability beforehand that nothing moves; the other half-lives share the rest
_MERIT_HALF_LIFE: Final = 20_000.0
"""People after whom half of what is known of the half-lives' merits is forgotten: it may be another's turn."""
_SWITCH_ODDS: Final = 2.0  # another half-life takes over when it is this many times as probable
_RECOMPUTE_SHARE: Final = 0.1  # posteriors are computed again when people make up this share of the shortest half-life


@dataclass(frozen=True)
class DiscountedEvidence:
    """Discounted evidence under each half-life. All have the same bins, and all learn from every round."""

    evidence: BinEvidence  # as of bins, with an axis of half-lives in front
    probabilities: Array  # shape (half-lives,): how probable it is that each predicts best
    used: int  # the half-life whose evidence makes policies
    own: int  # the experiment's own people who had reported when it was last brought up to date

    @property
    def current(self) -> BinEvidence:
        """The evidence under the half-life in use."""
        return self.evidence.select(self.used)

    @property
    def endless(self) -> BinEvidence:
        """The evidence that has not faded."""
        return self.evidence.select(0)

    def choose_half_life(self, scores: Array, n_reports: int) -> "DiscountedEvidence":
        """Return the evidence with updated probabilities of half-lives, after their log predictive densities."""
        retention = 0.5 ** (n_reports / _MERIT_HALF_LIFE)
        merits = retention * self.probabilities + (1 - retention) * prior_probabilities(len(scores))
        merits = merits * np.exp(scores - np.max(scores))
        merits = np.maximum(merits / merits.sum(), 1e-12)
        best = int(np.argmax(merits))
        used = best if merits[best] > _SWITCH_ODDS * merits[self.used] else self.used
        return replace(self, probabilities=merits, used=used)

    def with_arms(self, added: int) -> "DiscountedEvidence":
        """Return the evidence with additional arms without reports."""
        return replace(self, evidence=self.evidence.with_arms(added))

    def split(self, split: Split) -> "DiscountedEvidence":
        """Return the evidence after bins were split."""
        return replace(self, evidence=self.evidence.split(split))


class ForgettingRule:
    """The rule by which evidence is discounted.

    half_lives: people after whose reports evidence counts half, the endless one first; empty: nothing fades.
    chooses: whether the half-life that predicts best is used; else the last one is.
    """

    def __init__(self, half_lives: tuple[float, ...], *, chooses: bool) -> None:
        self.half_lives, self._chooses = half_lives, chooses

    def start(self, n_arms: int) -> DiscountedEvidence | None:
        """Return the evidence of one bin without reports; None without forgetting."""
        if not self.half_lives:
            return None
        n_lives = len(self.half_lives)
        used = 0 if self._chooses else n_lives - 1
        return DiscountedEvidence(BinEvidence.empty(n_lives, 1, n_arms), prior_probabilities(n_lives), used, 0)

    def half_life(self, discounted: DiscountedEvidence | None) -> float:
        """Return the half-life of evidence, in participants."""
        return self.half_lives[discounted.used] if discounted else math.inf

    def is_due(self, n_reports: int) -> bool:
        """Whether evidence has been discounted enough since the last update to compute posteriors again."""
        return bool(self.half_lives) and n_reports >= _RECOMPUTE_SHARE * min(self.half_lives)

    def add_evidence(
        self,
        discounted: DiscountedEvidence,
        evidence: BinEvidence,
        n_own_reports: int,
        score: Callable[[BinEvidence, float, BinEvidence], float],
    ) -> DiscountedEvidence:
        """Return discounted evidence with new evidence, and probabilities of half-lives by their predictions of it.

        evidence: that of the half-life in use, with what came since.
        n_own_reports: reports of the experiment's own participants.
        score: logarithm of the density that evidence, of such a half-life, predicted for what came.
        """
        previous, n_reports = discounted.current, n_own_reports - discounted.own
        zeros = np.zeros_like(evidence.past_precision)
        added = BinEvidence(evidence.precision - previous.precision, evidence.moment - previous.moment, zeros, zeros)
        faded = replace(discounted, evidence=self.faded(discounted.evidence, n_reports), own=n_own_reports)
        if self._chooses:
            scores = [score(faded.evidence.select(index), life, added) for index, life in enumerate(self.half_lives)]
            faded = faded.choose_half_life(np.array(scores), n_reports)
        return replace(faded, evidence=faded.evidence.add(added.precision, added.moment))

    def faded(self, evidence: BinEvidence, n_reports: int) -> BinEvidence:
        """Return the evidence under each half-life, discounted for ``n_reports`` further reports."""
        return evidence.scaled(0.5 ** (n_reports / np.array(self.half_lives))[:, None, None])

    def build_result(self, discounted: DiscountedEvidence) -> HalfLives:
        """Return the half-life in use, and the probability of each."""
        lives = tuple(None if math.isinf(number) else number for number in self.half_lives)
        probabilities = tuple(round(float(number), 4) for number in discounted.probabilities) if self._chooses else None
        return HalfLives(lives[discounted.used], lives, probabilities)


def prior_probabilities(half_lives: int) -> Array:
    """Return the prior probability that each half-life predicts best; the infinite half-life is the first."""
    probabilities = np.full(half_lives, (1 - _ENDLESS_PRIOR) / max(1, half_lives - 1))
    probabilities[0] = _ENDLESS_PRIOR
    return probabilities
