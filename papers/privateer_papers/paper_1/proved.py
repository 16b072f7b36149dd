"""The spec of paper 1's elimination with a finite-sample guarantee; policies and promises are the product's."""

from typing import Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition import PartitionPolicy, PartitionSection, PartitionSpec
from privateer_core.spec.spec import example_promises


class ProvedSection(PartitionSection):
    """The ``[algorithm]``: bounds hold if nothing moves, so nothing is forgotten.

    Attributes
    ----------
    lipschitz
        Of every arm's mean reward (rewards and features scaled to [0, 1], Euclidean norm).
    density_bound
        The most that the density of contexts is.
    failure
        The probability that an arm is ever dropped where it is best.
    """

    name: Literal["paper-1-proved"]  # type: ignore[assignment] # one of its own
    memory: None = None
    lipschitz: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    density_bound: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    failure: float = Field(default=0.05, gt=0, lt=1)


class ProvedSpec(PartitionSpec):
    """An experiment with elimination by proved bounds."""

    algorithm: ProvedSection

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        made = {name: cls._instance(promise, name="paper-1-proved") for name, promise in promises.items()}
        hidden = [name for name, spec in made.items() if spec.privacy.arm_in_key]
        return made | {
            f"{name}-hidden": cls._instance(promises[name] | {"arms": "hidden"}, name="paper-1-proved")
            for name in hidden
        }


ALGORITHM: Final = Algorithm(ProvedSpec, PartitionPolicy)
