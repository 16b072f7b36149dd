"""Learners: pure functions from state and release to state. One file an algorithm."""

from typing import Any, Protocol

from privateer.algorithms.partition import PartitionPolicy
from privateer.experiment import Spec
from privateer_server.algorithms.partition.practical import PartitionLearner
from privateer_server.algorithms.partition.proved import ProvedPartitionLearner
from privateer_server.algorithms.partition.published import PublishedPartitionLearner


class Learner(Protocol):
    """What turns releases into policies. States are frozen dataclasses that round-trip through `privateer.codec`."""

    state_type: type[Any]

    def start(self) -> Any:
        """The state before any report."""
        ...

    def policy(self, state: Any, version: int, batch: int, seed: int, cohort: str = "") -> PartitionPolicy:
        """The policy that lives for one round of ``batch`` reports of a cohort (0: the final one); ``seed`` public."""
        ...

    def learn(self, state: Any, policy: PartitionPolicy, release: Any) -> Any:
        """The state after a round's release."""
        ...

    def describe(self, state: Any) -> dict[str, Any]:
        """The state for people."""
        ...


def learner_for(spec: Spec) -> Learner:
    """The learner that a spec names."""
    if spec.privacy.calibration == "published":
        return PublishedPartitionLearner(spec)
    return ProvedPartitionLearner(spec) if spec.algorithm.confidence == "proved" else PartitionLearner(spec)
