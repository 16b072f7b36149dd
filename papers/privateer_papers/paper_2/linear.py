"""Paper 2's linear bandit with the joint report and the textbook's noise: its spec, and what learns."""

from typing import Final, Literal, Self

from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec, LinearTable
from privateer_papers.trust import PublishedPrivacy
from privateer_server.algorithms import Learner
from privateer_server.algorithms.linear.learner import JointLearner


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


def learner(spec: PublishedLinearSpec) -> Learner:
    """Return the learner of a spec: that of joint reports, whatever their noise is."""
    return JointLearner(spec)
