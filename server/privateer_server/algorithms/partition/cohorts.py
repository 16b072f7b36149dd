"""The base of partition learners: rounds by cohort, construction of policies, and mean rewards by bin."""

import math
from abc import abstractmethod
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final, TypeVar, cast

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec, sum_by_parent
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import AnswerPart, BinMeans, MeansOfBin
from privateer_core.arrays import Array, Bools
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.arms import PlannedRound
from privateer_core.spec.context import describe_box, find_inhabited_boxes, name_columns
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.partition.allocation import compute_slot_thresholds
from privateer_server.algorithms.partition.round_estimates import expected_key_shares

S = TypeVar("S")
CONFIDENCE: Final = 0.95
"""The probability with which the interval of one mean holds, about: estimates are nearly normal."""
DEVIATIONS: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors to either side of a mean that make its interval."""
_DIGITS: Final = 4


class CohortLearner(RoundsLearner[PartitionSpec, S, PartitionPolicy]):
    """A learner whose spec fixes the sizes of its rounds, cohort by cohort.

    States have ``rounds`` and ``seen``, closed rounds and people who reported, and ``cohort`` and ``reported``: the
    cohort of the last round, and its people whose reports opened so far. A subclass has `edges` and `bin_means`.
    """

    publishes_result = False
    inherited_fields = "algorithm", "experiment.arms", "context.features", "reward"

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        # the experiment's own people, whose name is empty, and the sources
        self.cohorts = ["", *(source.name for source in spec.sources)]
        self.playable = np.array(spec.playable)

    @abstractmethod
    def edges(self, state: S) -> tuple[Array, Array]:
        """Return the lower and upper corners of a state's bins, (bins, columns) each."""

    @override
    def planned_round(self, state: Any) -> PlannedRound:
        return self.spec.next_round(state.cohort, state.reported)

    @override
    def start_from_state(self, state: S, old_spec: PartitionSpec) -> S:
        old_cohorts = ["", *(source.name for source in old_spec.sources)]
        renewed = super().start_from_state(state, old_spec)
        for cohort in self.cohorts:
            if cohort not in old_cohorts:
                detail = "the experiment to begin with has no such source"
                raise SpecError(detail, field=f"sources.{cohort}", remedy="remove it, or begin without")
        rows = [old_cohorts.index(cohort) for cohort in self.cohorts]
        return self.apply_arm_change(self.select_cohorts(renewed, rows), old_spec)

    @override
    def keep_evidence_only(self, state: S) -> S:
        old_state: Any = state
        return cast(S, replace(old_state, rounds=0, seen=0, cohort=self.spec.cohorts[0], reported=0))

    def select_cohorts(self, state: S, rows: list[int]) -> S:
        """Return the state with the given cohorts of another experiment, if it has statistics by cohort."""
        del rows
        return state

    @staticmethod
    def count_round(state: S, policy: PartitionPolicy, reports: int) -> S:
        """Return the state after a round of the policy's cohort with ``reports`` reports."""
        old_state: Any = state
        n_reports = old_state.reported if old_state.cohort == policy.cohort else 0
        counts = {"rounds": old_state.rounds + 1, "seen": old_state.seen + reports, "reported": n_reports + reports}
        return cast(S, replace(old_state, cohort=policy.cohort, **counts))

    @override
    def answer(self, state: Any) -> Answer:
        """Return mean rewards in the bins, and further findings."""
        means = (self.bin_means(state),) if self.has_evidence(state) else ()
        parts = (*means, *self.findings(state))
        return self.build_answer(state, people=state.seen, rounds=state.rounds, parts=parts)

    def has_evidence(self, state: Any) -> bool:
        """Whether there are reports, in this experiment or in the one that it continues."""
        return bool(state.seen)

    @abstractmethod
    def bin_means(self, state: S) -> BinMeans:
        """Return mean rewards by bin, with intervals."""

    def findings(self, state: S) -> tuple[AnswerPart, ...]:
        """Return further findings; by default none."""
        del state
        return ()

    @override
    def figures(self, state: S) -> dict[str, float]:
        """Return the number of bins that can have participants."""
        return {"bins": int(find_inhabited_boxes(self.spec.features, *self.edges(state)).sum())}

    def build_policy_from_coins(
        self,
        next_round: NewRound,
        layout: Layout,
        expected: tuple[float, float] = (1.0, 1.0),
        rate: float | None = None,
        **bins: Any,
    ) -> PartitionPolicy:
        """Return a policy with the terms of its round, whose coins choose arms by ``layout``.

        expected: shares of participants who are expected to have a key at all, and to have a typical key.
        rate: the expected mean value, in [0, 1]; None: unknown.
        bins: the policy's ``axes``, ``depths``, ``paths``, ``active``, ``bins`` and ``wholes``, if any.
        """
        in_key = self.spec.privacy.has_arm_in_key
        is_asked: Bools = sum_by_parent(bins["active"][bins["bins"]], bins.get("wholes"))
        key_layout = Layout.ungrouped(int(is_asked.sum()), layout.seed) if in_key else layout
        return PartitionPolicy(
            version=next_round.version,
            dimension=self.spec.dimension,
            terms=self.calibrate_terms(next_round, KeyedMeans(key_layout, *expected, rate, has_counts=True)),
            choice=layout if in_key else None,
            cohort=next_round.cohort,
            **bins,
        )

    def build_policy_from_shares(
        self, next_round: NewRound, shares: Array, people: Array, rate: float | None = None, /, **bins: Any
    ) -> PartitionPolicy:
        """Return a policy with the given shares of arms, and with terms for its expected keys.

        shares (asked bins, arms): probability of each arm.
        people (asked bins,): share of the cohort's people in each. Where these are parts of ``wholes``, reports are
            about the wholes.
        rate, bins: as of `build_policy_from_coins`.
        """
        layout = Layout(next_round.seed, compute_slot_thresholds(shares, bins["active"][bins["bins"]]))
        key_shares = people[:, None] * expected_key_shares(self.spec, shares, next_round.cohort)
        masses = sum_by_parent(key_shares, bins.get("wholes"))
        expected_shares = (min(1.0, float(masses.sum())), float(np.max(masses, initial=0.0)))
        return self.build_policy_from_coins(next_round, layout, expected_shares, rate, **bins)


def build_bin_means(
    active: Bools, edges: tuple[Array, Array], means: Array, radii: Array, spec: PartitionSpec, confidence: float
) -> BinMeans:
    """Return each active arm's mean reward with its interval, unknown if its radius is infinite, by inhabited bin."""
    bounds, (lower, upper) = (spec.reward.low, spec.reward.high), edges
    rows = []
    for b in np.flatnonzero(find_inhabited_boxes(spec.features, *edges)):
        estimates = (
            Estimate.within(spec.experiment.arms[k], round(float(means[b, k]), _DIGITS), float(radii[b, k]), bounds)
            for k in np.flatnonzero(active[b])
            if math.isfinite(means[b, k]) and math.isfinite(radii[b, k])
        )
        conditions = describe_box(spec.features, lower[b], upper[b])
        rows.append(MeansOfBin(tuple(lower[b].tolist()), tuple(upper[b].tolist()), conditions, tuple(estimates)))
    return BinMeans(tuple(name_columns(spec.features)), tuple(rows), confidence)
