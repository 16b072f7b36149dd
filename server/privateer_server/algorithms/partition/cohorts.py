"""The base of partition learners: rounds cohort by cohort, policies put together, and mean rewards by bin."""

import math
from abc import abstractmethod
from dataclasses import replace
from statistics import NormalDist
from typing import Any, ClassVar, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec, by_whole
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import AnswerPart, BinMeans, MeansOfBin
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.arms import PlannedRound
from privateer_core.spec.context import columns_of, conditions_of, inhabited
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.partition.allocation import thresholds
from privateer_server.algorithms.partition.round_estimates import expected_key_shares

Array = NDArray[np.float64]
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
    same: ClassVar[tuple[str, ...]] = ("algorithm", "experiment.arms", "context.features", "reward")

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
    def begun(self, state: S, before: PartitionSpec) -> S:
        known = ["", *(source.name for source in before.sources)]
        fresh = super().begun(state, before)
        for cohort in self.cohorts:
            if cohort not in known:
                detail = "the experiment to begin with has no such source"
                raise SpecError(detail, field=f"sources.{cohort}", remedy="remove it, or begin without")
        return self.rearmed(self.of_cohorts(fresh, [known.index(cohort) for cohort in self.cohorts]), before)

    @override
    def anew(self, state: S) -> S:
        before: Any = state
        return cast(S, replace(before, rounds=0, seen=0, cohort=self.spec.cohorts[0], reported=0))

    def of_cohorts(self, state: S, rows: list[int]) -> S:
        """Return the state with those cohorts of another experiment, where it tells cohorts apart."""
        del rows
        return state

    @staticmethod
    def counted(state: S, policy: PartitionPolicy, reports: int) -> S:
        """Return the state after a round of the policy's cohort with so many reports."""
        before: Any = state
        so_far = before.reported if before.cohort == policy.cohort else 0
        counts = {"rounds": before.rounds + 1, "seen": before.seen + reports, "reported": so_far + reports}
        return cast(S, replace(before, cohort=policy.cohort, **counts))

    @override
    def answer(self, state: Any) -> Answer:
        """Return what is known of mean rewards in the bins, and what else was found."""
        means = (self.bin_means(state),) if self.has_evidence(state) else ()
        parts = (*means, *self.findings(state))
        return self.answered(state, people=state.seen, rounds=state.rounds, parts=parts)

    def has_evidence(self, state: Any) -> bool:
        """Whether anybody reported, in this experiment or in the one that it began with."""
        return bool(state.seen)

    @abstractmethod
    def bin_means(self, state: S) -> BinMeans:
        """Return mean rewards by bin, with intervals."""

    def findings(self, state: S) -> tuple[AnswerPart, ...]:
        """Return what else was found: nothing, unless a learner finds more."""
        del state
        return ()

    @override
    def figures(self, state: S) -> dict[str, float]:
        """Return the number of bins in which anybody can be."""
        return {"bins": int(inhabited(self.spec.features, *self.edges(state)).sum())}

    def policy_of_coins(
        self,
        ahead: NewRound,
        layout: Layout,
        expected: tuple[float, float] = (1.0, 1.0),
        rate: float | None = None,
        **bins: Any,
    ) -> PartitionPolicy:
        """Return a policy with the terms of its round.

        layout: what the coins of a choice mean.
        expected: shares of people who are expected to have a key at all, and to have a typical key.
        rate: the mean value that is expected, in [0, 1]; None: nobody knows.
        bins: the policy's ``axes``, ``depths``, ``paths``, ``active``, ``bins`` and ``wholes``, if any.
        """
        in_key = self.spec.privacy.arm_in_key
        asked: NDArray[np.bool_] = by_whole(bins["active"][bins["bins"]], bins.get("wholes"))
        reported = Layout.ungrouped(int(asked.sum()), layout.seed) if in_key else layout
        return PartitionPolicy(
            version=ahead.version,
            dimension=self.spec.dimension,
            terms=self.terms(ahead, KeyedMeans(reported, *expected, rate, counted=True)),
            choice=layout if in_key else None,
            cohort=ahead.cohort,
            **bins,
        )

    def policy_of_shares(
        self, ahead: NewRound, shares: Array, people: Array, rate: float | None = None, /, **bins: Any
    ) -> PartitionPolicy:
        """Return a policy whose coins share arms out.

        shares (asked bins, arms): probability of each arm.
        people (asked bins,): share of the cohort's people in each. Where these are parts of ``wholes``, reports are
            about the wholes.
        rate, bins: as of `policy_of_coins`.
        """
        layout = Layout(ahead.seed, thresholds(shares, bins["active"][bins["bins"]]))
        keyed = people[:, None] * expected_key_shares(self.spec, shares, ahead.cohort)
        masses = by_whole(keyed, bins.get("wholes"))
        typical = (min(1.0, float(masses.sum())), float(np.max(masses, initial=0.0)))
        return self.policy_of_coins(ahead, layout, typical, rate, **bins)


def bin_means(
    active: NDArray[np.bool_],
    edges: tuple[Array, Array],
    means: Array,
    radii: Array,
    spec: PartitionSpec,
    confidence: float,
) -> BinMeans:
    """Return each active arm's mean reward with its interval, for every bin in which anybody can be.

    active (bins, arms): arms that are played.
    edges: lower and upper corners of the bins, each (bins, columns).
    means, radii (bins, arms): nothing is known where a radius is not finite.
    spec: that of the experiment: it names the arms, and says which bins nobody can be in.
    confidence: the probability with which each interval by itself holds.
    """
    bounds, (lower, upper) = (spec.reward.low, spec.reward.high), edges
    rows = []
    for b in np.flatnonzero(inhabited(spec.features, *edges)):
        known = (
            Estimate.within(spec.experiment.arms[k], round(float(means[b, k]), _DIGITS), float(radii[b, k]), bounds)
            for k in np.flatnonzero(active[b])
            if math.isfinite(means[b, k]) and math.isfinite(radii[b, k])
        )
        where = conditions_of(spec.features, lower[b], upper[b])
        rows.append(MeansOfBin(tuple(lower[b].tolist()), tuple(upper[b].tolist()), where, tuple(known)))
    return BinMeans(tuple(columns_of(spec.features)), tuple(rows), confidence)
