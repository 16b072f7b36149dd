"""What all partition learners share: rounds cohort by cohort, and how a policy is put together."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec, by_whole
from privateer_core.coins import Layout
from privateer_core.context import inhabited
from privateer_core.errors import SpecError
from privateer_core.questions import KeyedMeans
from privateer_core.result import Result
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step, must_agree
from privateer_server.algorithms.partition.allocation import thresholds
from privateer_server.algorithms.partition.estimates import expected_key_shares

Array = NDArray[np.float64]
S = TypeVar("S")

_THE_SAME: Final = ("algorithm", "experiment.arms", "context.features", "reward")
"""What an experiment has in common with the one that it begins with."""


class CohortLearner(ABC):
    """A learner whose spec fixes the sizes of its rounds, cohort by cohort.

    States have ``rounds`` and ``seen``, closed rounds and people who reported, and ``turn`` and ``heard``: the cohort
    of the last round, and its people whose reports opened so far.

    Attributes
    ----------
    cohorts
        The experiment's own people, whose name is empty, and the sources.
    """

    repeats: ClassVar[bool] = False
    publishes_result: ClassVar[bool] = False
    growth: ClassVar[tuple[str, str]] = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: PartitionSpec) -> None:
        self.spec = spec
        self.cohorts = ["", *(source.name for source in spec.sources)]

    @abstractmethod
    def start(self, _seed: int) -> Any:
        """Return the state before any report."""

    @abstractmethod
    def policy(self, state: Any, version: int, batch: int, seed: int, cohort: str = "") -> PartitionPolicy:
        """Return the policy for one round of ``batch`` reports of a cohort, or the final one for 0."""

    def next(self, state: Any, version: int, seed: int) -> Step:
        """Return the next round: what did not open takes nobody's place."""
        turn = self.spec.turn(state.turn, state.heard)
        return Step(state, self.policy(state, version, turn.batch, seed, turn.cohort), turn.batch, turn.seen)

    def last(self, state: Any, version: int, seed: int) -> Step:
        """Return the step that asks nobody, with the best arm in every bin."""
        return Step(state, self.policy(state, version, 0, seed), 0)

    def changed(self, state: Any, before: PartitionSpec) -> Any:
        """Return the state under the learner's spec; a longer horizon alone changes nothing in it."""
        if before.experiment.arms == self.spec.experiment.arms and before.playable == self.spec.playable:
            return state
        return self.rearmed(state, self.spec.arm_count - before.arm_count)

    @abstractmethod
    def rearmed(self, state: Any, added: int) -> Any:
        """Return the state with so many more arms at the end, of which nothing is known, and without retired ones."""

    def begun(self, state: Any, before: PartitionSpec) -> Any:
        """Return the state of a new experiment with the same arms and features: evidence stays, people count anew."""
        rows = self.rows_of_cohorts(before)
        fresh = replace(state, rounds=0, seen=0, turn=self.spec.cohorts[0], heard=0)
        return self.rearmed(self.of_cohorts(fresh, rows), 0)

    def rows_of_cohorts(self, before: PartitionSpec) -> list[int]:
        """Return the places of the learner's cohorts in another experiment that it begins with.

        Raises
        ------
        SpecError
            If the other one has other arms or features, or lacks a source.
        """
        must_agree(before, self.spec, _THE_SAME)
        known = ["", *(source.name for source in before.sources)]
        for cohort in self.cohorts:
            if cohort not in known:
                detail = "the experiment to begin with has no such source"
                raise SpecError(detail, field=f"sources.{cohort}", remedy="remove it, or begin without")
        return [known.index(cohort) for cohort in self.cohorts]

    def of_cohorts(self, state: Any, rows: list[int]) -> Any:
        """Return the state with those cohorts, where it tells cohorts apart."""
        del rows
        return state

    @property
    def playable(self) -> NDArray[np.bool_]:
        """Which arms are not retired, shape (arms,)."""
        return np.array(self.spec.playable)

    def miss(self, state: S, _policy: PartitionPolicy, *, again: bool) -> S:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: Any) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def result(self, _state: Any) -> Result | None:
        """Publish nothing beside the policy."""
        return None

    def bulk(self, first: Step) -> list[Bulk]:
        """Return the largest round of any cohort."""
        return [Bulk(self.spec.largest_batch(), 1, first.policy.terms.mechanism.report_size)]

    def figures(self, state: Any) -> dict[str, float]:
        """Return the number of bins in which anybody can be."""
        return {"bins": int(inhabited(self.spec.features, *self.edges(state)).sum())}

    @abstractmethod
    def edges(self, state: Any) -> tuple[Array, Array]:
        """Return the lower and upper corners of a state's bins, (bins, columns) each."""


def counted(state: S, policy: PartitionPolicy, reports: int) -> S:
    """Return the state after a round of the policy's cohort with so many reports."""
    before: Any = state
    so_far = before.heard if before.turn == policy.cohort else 0
    counts = {"rounds": before.rounds + 1, "seen": before.seen + reports, "heard": so_far + reports}
    after: S = replace(before, turn=policy.cohort, **counts)
    return after


def make_policy(
    spec: PartitionSpec,
    version: int,
    batch: int,
    cohort: str,
    layout: Layout,
    shares: tuple[float, float] = (1.0, 1.0),
    **bins: Any,
) -> PartitionPolicy:
    """Return a policy with the terms of its round.

    Parameters
    ----------
    layout
        What the coins of a choice mean.
    shares
        Shares of people who are expected to have a key at all, and to have a typical key.
    bins
        The policy's ``axes``, ``depths``, ``paths``, ``active``, ``bins`` and ``wholes``, if any.
    """
    in_key = spec.privacy.arm_in_key
    asked: NDArray[np.bool_] = by_whole(bins["active"][bins["bins"]], bins.get("wholes"))
    reported = Layout(layout.seed, np.zeros((int(asked.sum()), 0), np.uint32)) if in_key else layout
    question, promise = KeyedMeans(reported, *shares), spec.privacy_of(cohort)
    terms = calibrate(promise, batch, question, None, spec.reports) if batch else nobody_asked(promise, question)
    return PartitionPolicy(
        version=version,
        dimension=spec.dimension,
        terms=terms,
        choice=layout if in_key else None,
        cohort=cohort,
        **bins,
    )


def sharing_policy(
    spec: PartitionSpec,
    version: int,
    batch: int,
    seed: int,
    cohort: str,
    shares: Array,
    people: Array,
    tree: dict[str, Any],
) -> PartitionPolicy:
    """Return a policy whose coins share arms out.

    Parameters
    ----------
    shares
        Shape (asked bins, arms): probability of each arm.
    people
        Shape (asked bins,): share of the cohort's people in each. Where these are parts of ``wholes``, of its tree,
        reports are about the wholes.
    tree
        As ``bins`` of `make_policy`.
    """
    layout = Layout(seed, thresholds(shares, tree["active"][tree["bins"]]))
    masses = by_whole(people[:, None] * expected_key_shares(spec, shares, cohort), tree.get("wholes"))
    typical = (min(1.0, float(masses.sum())), float(np.max(masses, initial=0.0)))
    return make_policy(spec, version, batch, cohort, layout, typical, **tree)
