"""Precision of estimates by the cells of features under a spec's promise, and the participants that they require."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from privateer_core.arrays import Array
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.questions import FeatureMeans, KeyedMeans, SmallDomainMeans
from privateer_core.privacy.information import AskedCell, measure_information
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec

_POLICY_GROWTH: Final = 0.3
"""Growth of the number of reports after which a new policy is assumed."""
_SHARE_MIN: Final = 1e-12
_CELL_SHARE: Final = 0.25
_TARGET_ERROR: Final = 0.08
"""Target standard error of an option's mean reward among a quarter of the participants, if rewards are about 1/2."""
_CONTENDERS_MAX: Final = 6
"""Largest number of options that are in play while the policy learns."""
_MANY_FEATURES: Final = 3
"""Number of features from which on naming fewer helps."""


@dataclass(frozen=True)
class CellReports:
    """Precision of reports on the cells of a table under a spec's promise, by the spec's mechanism.

    mean, variance: mean and variance of rewards, scaled to [0, 1].
    """

    spec: ArmsSpec
    mean: float
    variance: float

    @cached_property
    def _question(self) -> Any:
        return self.spec.typical_question()

    @property
    def by_feature(self) -> bool:
        """Whether a report is about a single feature, and not about a key made of all features."""
        return isinstance(self._question, FeatureMeans)

    @cached_property
    def _terms(self) -> Terms:
        spec, batch = self.spec, self.spec.largest_batch()
        return calibrate(spec.privacy, batch, self._question, spec.min_reports(batch), spec.reports)

    @property
    def batches_by_policy(self) -> Iterator[list[int]]:
        """Lists of batch sizes under each policy, which holds until the number of reports has grown enough."""
        n_planned, batches, n_at_start = 0, list[int](), 0
        for planned_round in self.spec.planned_rounds():
            if batches and n_planned >= (1 + _POLICY_GROWTH) * n_at_start:
                yield batches
                batches, n_at_start = [], n_planned
            batches.append(planned_round.batch_size)
            n_planned += planned_round.batch_size
        yield batches

    def precisions(self, batches: Sequence[int], keys: Array, arms: Array, asked_shares: Array) -> Array:
        """Return the precisions of the mean rewards of every cell and arm from rounds, (..., cells, arms).

        keys: share of participants in every cell, (..., cells).
        arms: share of each arm in a cell, (..., cells, arms).
        asked_shares: share of participants who are asked about the cell's feature, (..., cells).
        """
        sizes, counts = np.unique(batches, return_counts=True)
        shares = (keys[..., None], arms, asked_shares[..., None])
        pairs = zip(counts, sizes.tolist(), strict=True)
        return np.asarray(sum(count * self._round_precisions(float(size), *shares) for count, size in pairs))

    def _round_precisions(self, batch: float, keys: Array, arms: Array, asked_shares: Array) -> Array:
        """Return the precisions of mean rewards from a round of ``batch``, (..., cells, arms); 0 without an arm."""
        in_turns = self.spec.has_single_arm_rounds or self.spec.has_coin_plan
        mechanism, question, cell = self._terms.mechanism, self._question, keys * np.maximum(arms, _SHARE_MIN)
        is_joint = isinstance(mechanism, FeatureSums)
        n_reports: Any = np.maximum(1.0, batch * asked_shares) if self.by_feature and not is_joint else batch
        cell_shares: Any = {"key": keys, "arm": np.maximum(arms, _SHARE_MIN)}
        key_information = measure_information(
            mechanism, AskedCell(question, n_reports, **cell_shares, in_turns=in_turns)
        )
        # Questions about features are for residuals, at most max(mean, 1 - mean); questions about keys are for bits.
        unit = max(self.mean, 1 - self.mean) ** 2 if self.by_feature else 1 / 4
        if isinstance(mechanism, NamedSymbol) and mechanism.is_named and self.by_feature:
            unit *= (1 + question.below**2) / 2  # residuals of rare rewards are never far below 0
        with np.errstate(divide="ignore"):
            noise = unit / np.where(asked_shares > 0, asked_shares * key_information, 0.0)
        # A record has all features, and the noise of sums does not include the variance of rewards.
        noise = noise + self.variance / cell if is_joint else noise
        return np.where(arms > 0, batch / np.maximum(noise, _SHARE_MIN), 0.0)


def feature_error(spec: ArmsSpec, n_features: int, n_participants: int) -> float:
    """Return the standard error of an option's mean reward, scaled to [0, 1], among a quarter of the participants.

    Questions are spread evenly over features, and a declared mean reward is taken as true.
    """
    table = spec.experiment.model_copy(update={"horizon": n_participants, "evaluation_fraction": 0.0})
    standard_deviation = spec.reward.standard_deviation
    mean = 0.5 if spec.reward.expected_rate is None else spec.reward.expected_rate
    variance = mean * (1 - mean) if standard_deviation is None else (standard_deviation / spec.reward.span) ** 2
    reports = CellReports(spec.model_copy(update={"experiment": table}), mean, variance)
    arm_share = np.full((1, 1), 1 / min(sum(spec.playable), _CONTENDERS_MAX))
    cell = (np.array([_CELL_SHARE]), arm_share, np.array([1 / (1 + n_features)]))
    precision = sum(float(reports.precisions(batches, *cell)[0, 0]) for batches in reports.batches_by_policy)
    return precision**-0.5 if precision > 0 else float("inf")


def required_participants(spec: ArmsSpec, n_features: int) -> int:
    """Return the number of participants required to learn the effects of ``n_features`` features, to two digits."""
    mean = 0.5 if spec.reward.expected_rate is None else spec.reward.expected_rate
    target, n = _TARGET_ERROR * 2 * (mean * (1 - mean)) ** 0.5, max(spec.experiment.horizon, spec.experiment.round_size)
    error, next_error = feature_error(spec, n_features, n), feature_error(spec, n_features, 4 * n)
    slope = max(0.25, float(np.log(error / next_error) / np.log(4)))
    return int(float(f"{n * (error / target) ** (1 / slope):.2g}"))


def describe_horizon_concerns(spec: Spec) -> Iterator[str]:
    """Yield a concern if features cannot be learned within the horizon, with a remedy; none about people of a file."""
    if not isinstance(spec, ArmsSpec) or not spec.privacy.trust.promises or not spec.features or spec.sources:
        return
    if spec.experiment.reports_per_person > 1:  # fewer participants with more reports
        return
    if "path" in (spec.population or {}):  # whose features, often drafted from a log, are known to tell or not
        return
    if not issubclass(spec.question, KeyedMeans | FeatureMeans) or issubclass(spec.question, SmallDomainMeans):
        return
    n_features, horizon = len(spec.features), spec.experiment.horizon
    if (n_min := required_participants(spec, n_features)) <= horizon:
        return
    n_few = next((k for k in range(n_features - 1, 0, -1) if required_participants(spec, k) <= horizon), 0)
    features = "the feature" if n_features == 1 else f"{n_features} features"
    few = f"{n_few} at most" if n_few > 1 else "one"
    few += "" if n_few else f", which alone takes about {required_participants(spec, 1):,}"
    advice = f"Name {few}, or run" if n_features >= _MANY_FEATURES else "Run"
    yield (
        f"{horizon:,} people tell little of {features} under this promise: it takes about {n_min:,} until they repay "
        f"what noise costs. {advice} a randomized log first: `privateer spec-from` finds in it which features pay"
    )
