"""The spec of the partition bandit (Ma et al. 2025)."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import field_validator, model_validator
from typing_extensions import override

from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.memory import check_rounds, checked_memory, concerns_of_rounds
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import example_promises

MEMORIES: Final = (math.inf, 30_000.0, 10_000.0, 3_000.0)
"""Half-lives in people, of which ``memory = "auto"`` uses the one that predicts best."""
_EVEN: Final = 0.5
"""A rate that says as much as none."""


class PartitionSection(Section):
    """The ``[algorithm]`` of the partition bandit."""

    name: Literal["partition"]
    # how what was learned fades, where rewards move: people after whose reports it counts half; ``auto``: whichever of
    # `MEMORIES` predicts best; ``none``, as if not given: it never fades
    memory: float | Literal["auto", "none"] | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _half_life(cls, memory: Any) -> Any:
        return checked_memory(memory, ("auto", "none"))

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives that a learner keeps side by side, in people, the endless one first; empty without memory."""
        if self.memory is None or self.memory == "none":
            return ()
        return MEMORIES if self.memory == "auto" else (math.inf, self.memory)


class PartitionSpec(ArmsSpec):
    """An experiment with the partition bandit."""

    capabilities: ClassVar[Capabilities] = replace(
        ArmsSpec.capabilities, takes_sources=True, takes_several_reports=True, context_decides=True
    )

    algorithm: PartitionSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _can_forget(self) -> Self:
        if self.algorithm.half_lives:
            check_rounds(min(self.algorithm.half_lives), self.experiment.round_size)
        return self

    def concerns(self) -> list[str]:
        """Say that rounds are too large for the memory, if they are."""
        lives = self.algorithm.half_lives
        return super().concerns() + (concerns_of_rounds(min(lives), self.largest_batch()) if lives else [])

    @property
    @override
    def takes_turns(self) -> bool:
        return self.privacy.arm_in_key

    @override
    def usual_question(self) -> KeyedMeans:
        """Return a question of no key, which costs as much as one of many; or of one bin where a rate is declared.

        What is asked about rare events depends on the keys. Rounds begin with one bin, or with several of levels or of
        many features, which only a learner knows.
        """
        in_key, rate = self.privacy.arm_in_key, self.reward.expected
        if rate is not None and rate != _EVEN:
            return self._of_one_bin(rate)
        layout = Layout.ungrouped(0, 0) if in_key else Layout(0, np.zeros((0, self.arm_count - 1), np.uint32))
        return KeyedMeans(layout, counted=True)

    def _of_one_bin(self, rate: float) -> KeyedMeans:
        if not self.privacy.arm_in_key:
            return KeyedMeans(Layout(0, np.zeros((1, self.arm_count - 1), np.uint32)), rate=rate, counted=True)
        keys = sum(self.playable)
        return KeyedMeans(Layout.ungrouped(keys, 0), key_share=1 / keys, rate=rate, counted=True)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        made = {name: cls._instance(promise) for name, promise in promises.items()}
        made |= {
            f"{name}-hidden": cls._instance(promises[name] | {"arms": "hidden"})
            for name, spec in made.items()
            if spec.privacy.arm_in_key
        }
        batched = next(name for name, spec in made.items() if spec.privacy.trust.batched)
        made[f"{batched}-as-local"] = cls._instance(promises[batched] | {"arms": "as-local"})
        return made | {f"{name}-memory": cls._instance(promise, memory="auto") for name, promise in promises.items()}

    @classmethod
    def _instance(cls, privacy: Any, **algorithm: Any) -> Self:
        unit = {"low": 0.0, "high": 1.0}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "round_growth": 0.1},
            "context": {"features": {"x1": unit, "x2": unit}},
            "privacy": privacy,
            "algorithm": {"name": "partition", **algorithm},
        }
        return parse_section(cls, data)
