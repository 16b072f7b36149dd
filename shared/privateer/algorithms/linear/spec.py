"""The spec of linear and generalized linear bandits, with all refusals."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from privateer.algorithms.linear.design import Design
from privateer.algorithms.linear.links import LINKS
from privateer.algorithms.linear.reports import Asks, coordinates
from privateer.errors import SpecError
from privateer.questions import Question, VectorSum
from privateer.sections import Section, parse_section
from privateer.spec import ArmsSpec, example_promises
from privateer.trust import check_amplified
from privateer.vectors import Ball

COORDINATES_MAX: Final = 1 << 16
_BYTES: Final = 4
"""Bytes of a coordinate, where a report has them all."""


class LinearTable(Section):
    """The ``[algorithm]`` of linear and generalized linear bandits.

    Attributes
    ----------
    link
        ``identity``: the expected reward is x theta_k. ``logistic``: it is 1 / (1 + exp(-x theta_k)).
    exploration
        alpha, how far the coins of people move what is known of an arm, in standard deviations.
    report
        ``residual``; or ``joint``, paper 2's report of second moments and products, as a reference.
    """

    name: Literal["linear"]
    link: str = "identity"
    exploration: float = Field(default=0.5, gt=0, le=1, allow_inf_nan=False)
    report: Literal["residual", "joint"] = "residual"

    @field_validator("link")
    @classmethod
    def _known(cls, link: str) -> str:
        if link not in LINKS:
            detail = f"must be one of {', '.join(map(repr, LINKS))}"
            raise SpecError(detail, field="algorithm.link", remedy="choose one")
        return link


class LinearSpec(ArmsSpec):
    """An experiment with linear or generalized linear rewards."""

    question: ClassVar[type[Question]] = VectorSum

    algorithm: LinearTable  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.experiment.conversion_window:
            detail = "reports on earlier rounds' decisions mean something else"
            raise SpecError(detail, field="experiment.conversion_window", remedy="remove it")
        if self.privacy.calibration == "published" and self.algorithm.report != "joint":
            detail = "the published report is the joint one"
            raise SpecError(detail, field="algorithm.report", remedy="set it to 'joint', or use 'tight'")
        if self.privacy.trust.batched:
            self._check_batches()
        self._check_size()
        return self

    def _check_batches(self) -> None:
        if self.privacy.calibration == "published":
            detail = "paper 2 has no such form under this trust model"
            raise SpecError(detail, field="privacy.calibration", remedy="use 'tight'")
        check_amplified(self.privacy)

    def _check_size(self) -> None:
        most = max(coordinates(asks, self.arm_count, self.design.dimension) for asks in self.questions)
        if most > COORDINATES_MAX:
            detail = f"make reports of {most} coordinates, {_BYTES * most} bytes; at most {COORDINATES_MAX}"
            remedy = "list fewer levels, or leave features out"
            raise SpecError(detail, field="context.features", remedy=remedy)

    @property
    def questions(self) -> tuple[Asks, ...]:
        """What rounds may ask."""
        if self.algorithm.report == "joint":
            return ("joint",)
        return ("residual", "moments") if self.learns_moments else ("residual",)

    @property
    def learns_moments(self) -> bool:
        """Whether some rounds ask for second moments of contexts: where noise is small enough for them to say much."""
        return self.privacy.trust.batched or self.privacy.trust.curated

    @property
    def design(self) -> Design:
        """How encoded contexts become rows."""
        return Design(self.blocks)

    @property
    def fresh_coins(self) -> bool:
        """Whether reports have coins of their own, since somebody may see the arms that those of the choices explain."""
        return self.privacy.arm_in_key

    def ball(self, asks: Asks) -> Ball:
        """Return where the vectors of a round lie."""
        return Ball("l2", 1.0, coordinates(asks, self.arm_count, self.design.dimension))

    def question_of(self, asks: Asks, seed: int) -> VectorSum:
        """Return what a round asks; sums by class are wanted where coins of choices are in reports."""
        by_class = asks == "residual" and not self.fresh_coins
        return VectorSum(self.ball(asks), seed, sum(self.playable) if by_class else 1)

    def usual_question(self) -> VectorSum:
        """Return a question as the first round asks it, without its public coins."""
        return self.question_of(self.questions[-1], 0)

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model."""
        promises = {str(one["model"]): one for one in example_promises()}
        made = {name: cls._instance(promise, {}) for name, promise in promises.items()}
        published = {"model": "local", "epsilon": 4.0, "delta": 1e-6, "calibration": "published"}
        made["joint"] = cls._instance(published, {"report": "joint"})
        return made

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any], algorithm: Mapping[str, Any]) -> Self:
        data = {
            "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 3000, "round_growth": 1.0},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {**privacy},
            "algorithm": {"name": "linear", **algorithm},
        }
        return parse_section(cls, data)
