"""The spec of paper 2's linear bandit, with joint reports and the textbook's noise.

The product's `JointLearner` learns it, whatever the noise of the reports is.
"""

from typing import Final, Literal, Self

from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec, LinearTable
from privateer_papers.published_trust import PublishedPrivacy


class PublishedLinearTable(LinearTable):
    """The ``[algorithm]``: everybody reports x x^T and y x."""

    name: Literal["paper-2-linear"]  # type: ignore[assignment] # one of its own
    report: Literal["joint"] = "joint"


class PublishedLinearSpec(LinearSpec):
    """An experiment with linear rewards as the paper has it, in simulation alone."""

    privacy: PublishedPrivacy
    algorithm: PublishedLinearTable

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._instance({"model": "local", "epsilon": 4.0, "delta": 1e-6}, {"name": "paper-2-linear"})}


ALGORITHM: Final = Algorithm(PublishedLinearSpec, LinearPolicy)
