"""The spec and policy of DP-DPE (paper 5), as printed."""

from dataclasses import dataclass
from typing import Final, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.phased import PhasedPolicy, PhasedSection, PhasedSpec
from privateer_core.errors import SpecError
from privateer_core.primitives.clipping import Ball
from privateer_papers.paper_5.bits import EPSILON_MAX
from privateer_papers.published_trust import PublishedPrivacy

_SERVED: Final = ("local", "shuffle", "central")


class DpDpeSection(PhasedSection):
    """The ``[algorithm]``."""

    name: Literal["paper-5-dp-dpe"]  # type: ignore[assignment] # one of its own


class DpDpeSpec(PhasedSpec):
    """An experiment with DP-DPE, in simulation alone."""

    privacy: PublishedPrivacy
    algorithm: DpDpeSection

    @model_validator(mode="after")
    def _within_the_theorem(self) -> Self:
        if self.privacy.trust.batched and self.privacy.bound > EPSILON_MAX:
            raise SpecError(
                f"must be at most {EPSILON_MAX:g} by the theorem", field="privacy.epsilon", remedy="lower it"
            )
        return self

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promise = {"epsilon": 4.0, "delta": 1e-6}
        return {model: cls._instance({"model": model, **promise}, 1.0, name="paper-5-dp-dpe") for model in _SERVED}


@dataclass(frozen=True)
class DpDpePolicy(PhasedPolicy):
    """A policy of one phase, in which shuffled averages may be clipped farther out."""

    @override
    def _bounded(self, ball: Ball, spec: PhasedSpec) -> bool:
        return ball.bound >= spec.reward.half_range


ALGORITHM: Final = Algorithm(DpDpeSpec, DpDpePolicy)
