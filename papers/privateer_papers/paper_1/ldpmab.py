"""The spec and policy of LDPMAB (paper 1, Algorithms 2 and 3), with honest noise."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition import PartitionPolicy, PartitionSection, PartitionSpec
from privateer_core.mechanisms import AnyMechanism, KeyedMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.privacy.terms import Terms
from privateer_core.spec.spec import Source
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_papers.published_trust import PublishedPrivacy


class LdpmabSection(PartitionSection):
    """The ``[algorithm]``: nothing is forgotten."""

    name: Literal["paper-1-ldpmab"]  # type: ignore[assignment] # one of its own
    memory: None = None


class LdpmabSpec(PartitionSpec):
    """An experiment with LDPMAB, in simulation alone."""

    returns: ClassVar[bool] = False

    privacy: PublishedPrivacy
    algorithm: LdpmabSection

    @override
    def _check_shares(self, source: Source, where: str) -> None:
        # Counts are reported as well, so that nobody needs to know who played what.
        if source.shares != "unknown":
            super()._check_shares(source, where)

    @property
    @override
    def cohorts(self) -> tuple[str, ...]:
        return (*(source.name for source in self.sources), "")

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._instance({"model": "local", "epsilon": 16.0}, name="paper-1-ldpmab")}


@dataclass(frozen=True)
class LaplaceTerms(Terms):
    """Terms whose mechanism may be the paper's."""

    mechanism: AnyMechanism | LaplaceCells  # type: ignore[assignment] # which no device has


@dataclass(frozen=True)
class LdpmabPolicy(PartitionPolicy):
    """A partition whose people report on all arms at once."""

    mechanisms: ClassVar[Any] = KeyedMechanism | LaplaceCells

    terms: LaplaceTerms

    @classmethod
    def of(cls, policy: PartitionPolicy) -> Self:
        """Return a partition's policy as one of this algorithm."""
        return cls(**_values(policy) | {"terms": LaplaceTerms(**_values(policy.terms))})

    @property
    @override
    def tells_age(self) -> bool:
        return False

    @property
    @override
    def coins_ask(self) -> bool:
        return False

    @override
    def recall(
        self,
        contexts: NDArray[np.float64],
        coins: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> KeyedValues:
        return self.contribute(contexts, coins, Arms(arms), rewards)


def _values(made: Any) -> dict[str, Any]:
    return {one.name: getattr(made, one.name) for one in fields(made)}


ALGORITHM: Final = Algorithm(LdpmabSpec, LdpmabPolicy)
