"""What all partition learners share: whose turn it is, and how a policy is put together."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer.coins import Layout
from privateer.questions import KeyedMeans
from privateer.result import Result
from privateer.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step

S = TypeVar("S")


class Turns(ABC):
    """The schedule of the partition bandit: the spec fixes the sizes of its rounds, cohort by cohort.

    Learner states have ``turn`` and ``heard``: the cohort whose round was learned from last, and its people whose
    reports opened so far.
    """

    repeats: ClassVar[bool] = False
    growth: ClassVar[tuple[str, str]] = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: PartitionSpec) -> None:
        self.spec = spec

    @abstractmethod
    def policy(self, state: Any, version: int, batch: int, seed: int, cohort: str = "") -> PartitionPolicy:
        """Return the policy for one round of ``batch`` reports of a cohort, or the final one for 0."""

    def next(self, state: Any, version: int, seed: int) -> Step:
        """Return the next round: what did not open takes nobody's place."""
        turn = self.spec.turn(state.turn, state.heard)
        return Step(state, self.policy(state, version, turn.batch, seed, turn.cohort), turn.batch, turn.seen)

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
        """Return the number of bins."""
        return {"bins": len(state.depths)}


def heard(state: S, policy: PartitionPolicy, reports: int) -> S:
    """Return the state after so many reports of the policy's cohort."""
    before: Any = state
    so_far = before.heard if before.turn == policy.cohort else 0
    after: S = replace(before, turn=policy.cohort, heard=so_far + reports)
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
        The policy's ``axes``, ``depths``, ``paths``, ``active`` and ``bins``.
    """
    in_key = spec.privacy.arm_in_key
    asked: NDArray[np.bool_] = bins["active"][bins["bins"]]
    reported = Layout(layout.seed, np.zeros((int(asked.sum()), 0), np.uint32)) if in_key else layout
    question, promise = KeyedMeans(reported, *shares), spec.privacy_of(cohort)
    terms = calibrate(promise, batch, question) if batch else nobody_asked(promise, question)
    return PartitionPolicy(
        version=version,
        dimension=spec.dimension,
        terms=terms,
        choice=layout if in_key else None,
        cohort=cohort,
        **bins,
    )
