"""The spec of linear and generalized linear bandits, with all checks."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS, DesignMatrix
from privateer_core.errors import SpecError
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_symbol import REPEATS_MAX
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import L2VectorSum, Question
from privateer_core.primitives.row_ball import JOINT, RowBall, count_moments
from privateer_core.privacy.trust import Crowd, Curator, NoiseOrigin
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities, example_promises

COORDINATES_MAX: Final = 1 << 16
_CURATED_MOMENT_SHARE: Final = 0.3
_BATCHED_MOMENT_SHARE: Final = 0.1
"""Shares of second moments in a report to a curator, and in a batch at five coordinates."""
_REFERENCE_DIMENSION: Final = 5
_LOCAL_MOMENT_SHARE: Final = 0.1
_MIN_MOMENT_EPSILON: Final = 3.0
"""Share of second moments in a locally private report, and the minimum epsilon for them."""
_BYTES: Final = 4  # bytes of a coordinate in a report with all coordinates


class LinearTable(Section):
    """The ``[algorithm]`` of linear and generalized linear bandits."""

    name: Literal["linear"]
    # ``identity``: the expected reward is x theta_k. ``logistic``: it is 1 / (1 + exp(-x theta_k)).
    link: str = "identity"
    # alpha, the scale of posterior standard deviations in Thompson sampling
    exploration_scale: float = Field(default=0.5, gt=0, le=1, allow_inf_nan=False)
    # ``residual``; or ``joint``, of second moments and products with normal noise (Zheng et al.), as a reference
    report_statistic: Literal["residual", "joint"] = "residual"
    # under ``shuffle``, the maximum number of messages of a report. Each costs devices and services as a report does.
    messages_per_report: int = Field(default=1, ge=1, le=REPEATS_MAX)

    @field_validator("link")
    @classmethod
    def _check_link(cls, link: str) -> str:
        """Refuse an unknown link."""
        if link not in LINKS:
            detail = f"must be one of {', '.join(map(repr, LINKS))}"
            raise SpecError(detail, field="algorithm.link", remedy="choose one")
        return link


class LinearSpec(ArmsSpec):
    """A spec of an experiment with linear or generalized linear rewards."""

    question: ClassVar[type[Question]] = L2VectorSum
    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        ArmsSpec.capabilities,
        takes_several_reports=True,
        context_decides=True,
        batched_keys=frozenset({"messages_per_report"}),
    )

    algorithm: LinearTable  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse joint reports without delta or as under the local model, and reports that are too large."""
        if self.moment_share == 1 and self.privacy.trust.promises and self.privacy.delta == 0:
            detail = "must be above 0 with algorithm.report_statistic = 'joint', whose noise is normal"
            raise SpecError(detail, field="privacy.delta", remedy="set it: 1e-6 is usual")
        if self.moment_share == 1 and self.privacy.is_as_local:
            detail = "'as-local' is not for joint reports: no symbol tells them alone"
            raise SpecError(detail, field="privacy.arm_visibility", remedy="remove it")
        self._check_messages()
        if self._n_coordinates > COORDINATES_MAX:
            size = f"{self._n_coordinates} coordinates, {_BYTES * self._n_coordinates} bytes"
            detail = f"make reports of {size}; at most {COORDINATES_MAX}"
            raise SpecError(detail, field="context.features", remedy="list fewer levels, or leave features out")
        return self

    def _check_messages(self) -> None:
        """Refuse several messages a report where they are impossible or useless."""
        trust = self.privacy.trust
        has_batch = trust.crowd is Crowd.BATCH
        for is_refused, detail in (
            (not has_batch, f"must be 1 under the model '{trust.name}': only a crowd makes several cheap"),
            (not self.privacy.has_arm_in_key, "must be 1 with hidden arms: coins of a report are those of its choice"),
            (self.moment_share == 1, "must be 1 for joint reports"),
            (self.reports > 1, "must be 1 where experiment.reports_per_person is above 1"),
        ):
            if is_refused and self.algorithm.messages_per_report > 1:
                raise SpecError(detail, field="algorithm.messages_per_report", remedy="remove it")

    @property
    def moment_share(self) -> float:
        """Share of a report's squared length for second moments of contexts, if noise is small enough."""
        if self.algorithm.report_statistic == "joint":
            return JOINT
        trust = self.privacy.trust
        growth = math.sqrt(self.design.dimension / _REFERENCE_DIMENSION)  # more coordinates have more second moments
        if trust.noise is not NoiseOrigin.DEVICES:
            return _CURATED_MOMENT_SHARE
        if trust.crowd is Crowd.BATCH and not self.privacy.is_as_local:
            return min(_CURATED_MOMENT_SHARE, _BATCHED_MOMENT_SHARE * growth)
        return _LOCAL_MOMENT_SHARE if (self.privacy.epsilon or 0.0) >= _MIN_MOMENT_EPSILON else 0.0

    @property
    @override
    def informative_share(self) -> float:
        return 1.0 - self.moment_share if self.moment_share < 1 else 1.0

    @property
    def _n_coordinates(self) -> int:
        """Number of coordinates of a report's vector."""
        d = self.design.dimension
        if self.algorithm.report_statistic == "joint":
            return self.arm_count * (count_moments(d) + d)
        return self.arm_count * d + (count_moments(d) if self.moment_share else 0)

    @property
    def design(self) -> DesignMatrix:
        """The map from encoded contexts to rows."""
        return DesignMatrix(self.blocks)

    @property
    def has_favoured_arm(self) -> bool:
        """Whether a round favours one arm for all participants, since a report may not contain the choice's coins."""
        return self.privacy.has_arm_in_key and self.privacy.trust.crowd is Crowd.BATCH

    has_single_arm_rounds = has_favoured_arm

    @property
    @override
    def extreme_batches(self) -> tuple[int, ...]:
        # With several messages a calibration takes seconds, and the first round is calibrated in any case.
        return super().extreme_batches[: 1 if self.algorithm.messages_per_report > 1 else None]

    @property
    def n_releases(self) -> int:
        """Number of rounds with released running sums: all rounds, if they are equally large; 0: no running sums.

        If rounds grow, the last ones have most participants, and their own sums are more accurate. If participants
        return, their reports of several rounds would add up in all later sums.
        """
        trust, table = self.privacy.trust, self.experiment
        if (
            self.moment_share == 1
            or table.min_round_fraction
            or self.reports > 1
            or trust.noise is not NoiseOrigin.CURATOR
        ):
            return 0
        steps = -(-table.horizon // self.first_batch(""))
        rows = self.row_ball
        return steps if steps > 1 and rows and RunningVectors.can_store_noise(rows, steps) else 0

    @property
    def ball(self) -> Ball:
        """Return the ball of vectors that devices make; joint ones with noise of their own have a smaller distance."""
        is_joint = self.moment_share == 1 and self.privacy.trust.crowd is Crowd.NOBODY
        return Ball("joint" if is_joint else "l2", 1.0, self._n_coordinates)

    @property
    def row_ball(self) -> RowBall | None:
        """The vectors that a curator makes from records; None: devices make vectors."""
        if self.privacy.trust.curator is Curator.NOBODY:
            return None
        return RowBall(self.arm_count, self.design.dimension, self.moment_share)

    def make_question(self, seed: int) -> L2VectorSum:
        """Return the question of a round, with sums by class if reports may have the choices' coins."""
        has_classes = self.moment_share < 1 and not self.privacy.has_arm_in_key
        classes = sum(self.playable) if has_classes else 1
        messages = self.algorithm.messages_per_report
        return L2VectorSum(self.ball, seed, classes, self.moment_share == 1, self.n_releases, messages, self.row_ball)

    @override
    def typical_question(self) -> L2VectorSum:
        return self.make_question(0)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance of every trust model, and further ones of reports and messages."""
        promises = example_promises(cls.question)
        # Reports with a small epsilon have few directions.
        overrides = {"local": {"epsilon": 1.0}, "shuffle": {"local_epsilon_max": 1.0}}
        specs = {name: cls._example({**promise, **overrides.get(name, {})}, {}) for name, promise in promises.items()}
        joint = {"report_statistic": "joint"}
        specs["joint"] = cls._example({"model": "local", "epsilon": 4.0, "delta": 1e-6}, joint)
        specs["joint-central"] = cls._example(promises["central"], joint)
        batched = {**promises["shuffle"], "honest_fraction": 0.45}
        specs["as-local"] = cls._example({**promises["shuffle"], "arm_visibility": "as-local"}, {})
        specs["messages"] = cls._example(batched, {"messages_per_report": 3})
        return specs

    @classmethod
    def _example(cls, privacy: Mapping[str, Any], algorithm: Mapping[str, Any]) -> Self:
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 600, "round_size": 200},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {**privacy, "min_batch": 100},
            "algorithm": {"name": "linear", **algorithm},
        }
        return parse_section(cls, data)
