"""The spec of linear and generalized linear bandits, with all refusals."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS, DesignMatrix
from privateer_core.algorithms.linear.reports import pairs
from privateer_core.errors import SpecError
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_symbol import REPEATS_MAX
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import L2VectorSum, Question
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import example_promises

COORDINATES_MAX: Final = 1 << 16
_CURATED: Final = 0.3
_BATCHED: Final = 0.1
"""Shares of second moments where noise is a curator's, or a batch's at five coordinates."""
_FEW: Final = 5
_ALONE: Final = 0.1
_CLEAR: Final = 3.0
"""Share of second moments where a report has all noise by itself, and the epsilon from which they are told there."""
_BYTES: Final = 4
"""Bytes of a coordinate, where a report has them all."""


class LinearTable(Section):
    """The ``[algorithm]`` of linear and generalized linear bandits."""

    name: Literal["linear"]
    # ``identity``: the expected reward is x theta_k. ``logistic``: it is 1 / (1 + exp(-x theta_k)).
    link: str = "identity"
    # alpha, how far the coins of people move what is known of an arm, in standard deviations
    exploration: float = Field(default=0.5, gt=0, le=1, allow_inf_nan=False)
    # ``residual``; or ``joint``, of second moments and products with normal noise (Zheng et al.), as a reference
    report: Literal["residual", "joint"] = "residual"
    # under ``shuffle``, the most messages that a report may be. Each costs devices and services as much as a report.
    messages: int = Field(default=1, ge=1, le=REPEATS_MAX)

    @field_validator("link")
    @classmethod
    def _known(cls, link: str) -> str:
        if link not in LINKS:
            detail = f"must be one of {', '.join(map(repr, LINKS))}"
            raise SpecError(detail, field="algorithm.link", remedy="choose one")
        return link


class LinearSpec(ArmsSpec):
    """An experiment with linear or generalized linear rewards."""

    question: ClassVar[type[Question]] = L2VectorSum
    capabilities: ClassVar[Capabilities] = replace(
        ArmsSpec.capabilities,
        takes_several_reports=True,
        context_decides=True,
        batched_keys=frozenset({"messages"}),
    )

    algorithm: LinearTable  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.share == 1 and self.privacy.trust.promises and self.privacy.delta == 0:
            detail = "must be above 0: joint reports have normal noise"
            raise SpecError(detail, field="privacy.delta", remedy="1e-6 is usual")
        if self.share == 1 and self.privacy.as_alone:
            detail = "'as-local' is not for joint reports: no symbol tells them alone"
            raise SpecError(detail, field="privacy.arms", remedy="remove it")
        self._check_messages()
        self._check_size()
        return self

    def _check_messages(self) -> None:
        trust = self.privacy.trust
        for wrong, detail in (
            (not trust.batched, f"must be 1 under the model '{trust.name}': only a crowd makes several cheap"),
            (not self.privacy.arm_in_key, "must be 1 with hidden arms: coins of a report are those of its choice"),
            (self.share == 1, "must be 1 for joint reports"),
            (self.reports > 1, "must be 1 where experiment.reports_per_person is above 1"),
        ):
            if wrong and self.algorithm.messages > 1:
                raise SpecError(detail, field="algorithm.messages", remedy="remove it")

    def _check_size(self) -> None:
        most = self._coordinates
        if most > COORDINATES_MAX:
            detail = f"make reports of {most} coordinates, {_BYTES * most} bytes; at most {COORDINATES_MAX}"
            remedy = "list fewer levels, or leave features out"
            raise SpecError(detail, field="context.features", remedy=remedy)

    @property
    def share(self) -> float:
        """Share of a report that is second moments of contexts: where noise is small enough for them to say much."""
        if self.algorithm.report == "joint":
            return 1.0
        trust = self.privacy.trust
        many = math.sqrt(self.design.dimension / _FEW)  # the more coordinates, the more second moments to be told
        if trust.curated:
            return _CURATED
        if trust.batched and not self.privacy.as_alone:
            return min(_CURATED, _BATCHED * many)
        return _ALONE if (self.privacy.epsilon or 0.0) >= _CLEAR else 0.0

    @property
    @override
    def telling(self) -> float:
        return 1.0 - self.share if self.share < 1 else 1.0

    @property
    def _coordinates(self) -> int:
        d = self.design.dimension
        if self.algorithm.report == "joint":
            return self.arm_count * (pairs(d) + d)
        return self.arm_count * d + (pairs(d) if self.share else 0)

    @property
    def design(self) -> DesignMatrix:
        """How encoded contexts become rows."""
        return DesignMatrix(self.blocks)

    @property
    def favours(self) -> bool:
        """Whether a round favours one arm for everybody, as coins in a report may not say which it was for a person."""
        return self.privacy.arm_in_key and self.privacy.trust.batched

    @property
    @override
    def takes_turns(self) -> bool:
        return self.favours

    @property
    @override
    def extreme_batches(self) -> tuple[int, ...]:
        # Of several messages a calibration takes seconds, and the first round's is made in any case.
        return super().extreme_batches[: 1 if self.algorithm.messages > 1 else None]

    @property
    def steps(self) -> int:
        """Rounds whose sum a curator tells since the first: all, if they are as large as each other; 0: none.

        Where rounds grow, the last ones have most of the people, and sums of their own say more. Where people come
        back, what they said in several rounds would add up in all sums since.
        """
        trust, table = self.privacy.trust, self.experiment
        if self.share == 1 or table.round_growth or self.reports > 1 or not (trust.curated and trust.promises):
            return 0
        steps = -(-table.horizon // self.first_batch(""))
        return steps if steps > 1 and RunningVectors.fits(self.ball, steps) else 0

    @property
    def ball(self) -> Ball:
        """Return where people's vectors lie."""
        return Ball("l2", 1.0, self._coordinates)

    def asked(self, seed: int) -> L2VectorSum:
        """Return what a round asks; sums by class are wanted where reports may have the coins of choices."""
        by_class = self.share < 1 and not self.privacy.arm_in_key
        classes = sum(self.playable) if by_class else 1
        messages = self.algorithm.messages
        return L2VectorSum(self.ball, seed, classes, self.share == 1, self.steps, messages)

    @override
    def usual_question(self) -> L2VectorSum:
        return self.asked(0)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(one["model"]): one for one in example_promises()}
        # Reports of small epsilons are made of few directions.
        least = {"local": {"epsilon": 1.0}, "shuffle": {"local_epsilon_max": 1.0}}
        made = {name: cls._instance({**promise, **least.get(name, {})}, {}) for name, promise in promises.items()}
        made["joint"] = cls._instance({"model": "local", "epsilon": 4.0, "delta": 1e-6}, {"report": "joint"})
        batched = {**promises["shuffle"], "honest_fraction": 0.45}
        made["as-local"] = cls._instance({**promises["shuffle"], "arms": "as-local"}, {})
        made["messages"] = cls._instance(batched, {"messages": 3})
        return made

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any], algorithm: Mapping[str, Any]) -> Self:
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 600, "round_size": 200},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {**privacy, "min_batch": 100},
            "algorithm": {"name": "linear", **algorithm},
        }
        return parse_section(cls, data)
