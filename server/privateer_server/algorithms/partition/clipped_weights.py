"""Importance weights of sources whose propensities are the devices' own: how much clipping took away."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.answer.facts import Kind, Table
from privateer_core.arrays import Array
from privateer_core.primitives.contributions import KeyedRelease
from privateer_core.spec.experiment import Source
from privateer_server.algorithms.partition.round_estimates import estimate_keyed_share, key_shares

_HALF_WIDTH: Final = NormalDist().inv_cdf(0.975)  # standard errors on either side of an estimate: 95 %
_ROUNDING: Final = 1e-9
_DIGITS: Final = 4
_NOTEWORTHY_SHARE: Final = 0.01  # share of weights that were clipped away, above which an answer warns


@dataclass(frozen=True)
class KeptWeights:
    """The share of importance weights that clipping left, by cohort, own participants first.

    Weights add up to 1 for each arm, in expectation, whatever the behaviour policy. So the share of a source's
    participants who contribute is the sum of its ``min_propensities``, less what was clipped away.
    """

    # precision, moment: shape (cohorts,): normal evidence of rounds; a precision of 0 says nothing
    precision: Array
    moment: Array

    @classmethod
    def empty(cls, n_cohorts: int) -> "KeptWeights":
        """Return the evidence of no round."""
        return cls(np.zeros(n_cohorts), np.zeros(n_cohorts))

    def add(self, spec: PartitionSpec, policy: PartitionPolicy, release: KeyedRelease) -> "KeptWeights":
        """Return the evidence after a round, which adds some if it is about a source, and about all its participants.

        The expected share of contributions must be the same in all bins, so that no share of people is needed.
        """
        source = spec.source(policy.cohort)
        if source is None or source.min_propensities is None or len(policy.bins) < len(policy.depths):
            return self
        shares, bins = key_shares(spec, policy)
        expected = np.bincount(bins, shares)
        estimate = estimate_keyed_share(release)
        if estimate is None or not len(expected) or np.ptp(expected) > _ROUNDING or expected[0] <= 0:
            return self
        share, variance = estimate[0] / expected[0], estimate[1] / expected[0] ** 2
        row = np.arange(len(self.precision)) == ["", *(other.name for other in spec.sources)].index(source.name)
        return KeptWeights(self.precision + row / variance, self.moment + row * share / variance)

    def select_cohorts(self, rows: list[int]) -> "KeptWeights":
        """Return the evidence of the given cohorts."""
        return KeptWeights(self.precision[rows], self.moment[rows])

    def list_clipped(self, spec: PartitionSpec, reported: str) -> list["ClippedWeights"]:
        """Return what clipping took from each source that has reported until the cohort ``reported``."""
        cohorts = spec.cohorts[: spec.cohorts.index(reported) + 1]
        rows = zip(spec.sources, self.precision[1:].tolist(), self.moment[1:].tolist(), strict=True)
        return [ClippedWeights(*row) for row in rows if row[0].min_propensities is not None and row[0].name in cohorts]


@dataclass(frozen=True)
class ClippedWeights:
    """The share of a source's importance weights that was clipped away, from rounds of the source."""

    source: Source
    # precision, moment: evidence on the share that is left
    precision: float
    moment: float

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The share clipped away, and the ends of its 95 % interval; None if reports do not say."""
        if not self.precision:
            return None
        share, margin = 1 - self.moment / self.precision, _HALF_WIDTH / math.sqrt(self.precision)
        value, low, high = (round(min(1.0, max(0.0, end)), _DIGITS) for end in (share, share - margin, share + margin))
        return value, low, high

    @property
    def bias(self) -> float | None:
        """Approximate largest bias of an arm's mean over all people, relative to the range of rewards; None: unknown.

        All that was clipped away may be of the arm with the least propensity, and its people at a bound of rewards.
        """
        if self.interval is None:
            return None
        return min(1.0, self.interval[2] * sum(self.source.min_propensities or ()) * self.largest)

    @property
    def largest(self) -> float:
        """The largest weight."""
        return 1 / min(propensity for propensity in self.source.min_propensities or () if propensity)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if weights were surely clipped, or nobody knows whether."""
        begin = f"source {self.source.name}:"
        if self.interval is None:
            detail = "reports of its epsilon do not say how much of its weights was clipped away"
            return (f"{begin} {detail}; what it taught may be biased if somebody's propensity is below the least",)
        value, low, high = self.interval
        if low <= _NOTEWORTHY_SHARE:
            return ()
        detail = f"{value:.1%} ({low:.1%} to {high:.1%}) of its weights were clipped away"
        return (f"{begin} {detail}, which biases what it taught; lower its min_propensities next time",)


def build_clipping_table(clipped: list[ClippedWeights], span: float) -> Table:
    """Return the largest weight, the share clipped away and the possible bias of each source; rewards have a span."""
    rows = []
    for weights in clipped:
        interval, bias = weights.interval or (None, None, None), weights.bias
        bias_in_rewards = None if bias is None else round(span * bias, _DIGITS)
        rows.append((weights.source.name, round(weights.largest, _DIGITS), *interval, bias_in_rewards))
    columns: dict[str, Kind] = {"source": "words", "largest weight": "number", "clipped away": "share"}
    columns |= {"low": "low", "high": "high", "bias up to about": "difference"}
    return Table.of("weights of sources that looked at the context", columns, tuple(rows))
