"""The spec of the partition bandit (Ma et al. 2025)."""

from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
from pydantic import model_validator
from typing_extensions import override

from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.half_life import HalfLife, check_half_lives, half_life_concerns, list_half_lives
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities, example_promises

_UNINFORMATIVE_RATE: Final = 0.5  # the declared rate that is equivalent to none


class PartitionSection(Section):
    """The ``[algorithm]`` of the partition bandit."""

    name: Literal["partition"]
    half_life: HalfLife = None  # of evidence, where rewards may change

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives that a learner compares, in participants, the infinite one first; empty without forgetting."""
        return list_half_lives(self.half_life)


class PartitionSpec(ArmsSpec):
    """A spec of an experiment with the partition bandit."""

    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        ArmsSpec.capabilities, takes_tiers=True, takes_sources=True, takes_several_reports=True, context_decides=True
    )

    algorithm: PartitionSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        check_half_lives(self.algorithm.half_lives, self.experiment.round_size)
        return self

    def concerns(self) -> list[str]:
        """Return warnings, among them of rounds too large for the half-life."""
        return super().concerns() + half_life_concerns(self.algorithm.half_lives, self.largest_batch())

    @property
    @override
    def has_single_arm_rounds(self) -> bool:
        return self.privacy.has_arm_in_key

    @override
    def typical_question(self) -> KeyedMeans:
        """Return a question without keys, at the cost of any number of keys; with a declared rate, about a single bin.

        Questions about rare events depend on the keys. Rounds begin with one bin, or with several bins for levels or
        many features, which only a learner knows.
        """
        in_key, rate = self.privacy.has_arm_in_key, self.reward.expected_rate
        has_rate, n_keys = rate is not None and rate != _UNINFORMATIVE_RATE, sum(self.playable)
        if not in_key:
            layout = Layout(0, np.zeros((int(has_rate), self.arm_count - 1), np.uint32))
            return KeyedMeans(layout, rate=rate if has_rate else None, has_counts=True)
        if not has_rate:
            return KeyedMeans(Layout.ungrouped(0, 0), has_counts=True)
        return KeyedMeans(Layout.ungrouped(n_keys, 0), key_share=1 / n_keys, rate=rate, has_counts=True)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return small instances of every trust model, and further ones that hide arms or forget."""
        promises = example_promises(cls.question)
        specs = {name: cls._example(promise) for name, promise in promises.items()}
        specs |= {
            f"{name}-hidden": cls._example(promises[name] | {"arm_visibility": "hidden"})
            for name, spec in specs.items()
            if spec.privacy.has_arm_in_key
        }
        batched = next(name for name, spec in specs.items() if spec.privacy.trust.crowd is Crowd.BATCH)
        tiers = {"tiers": [{"name": "careful", "epsilon": 1.0, "share": 0.5}]}
        specs["local-tiers"] = cls._example(promises["local"] | tiers)
        specs[f"{batched}-as-local"] = cls._example(promises[batched] | {"arm_visibility": "as-local"})
        return specs | {f"{name}-memory": cls._example(table, half_life="auto") for name, table in promises.items()}

    @classmethod
    def _example(cls, privacy: Any, **algorithm: Any) -> Self:
        unit = {"low": 0.0, "high": 1.0}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "min_round_fraction": 0.1},
            "context": {"features": {"x1": unit, "x2": unit}},
            "privacy": privacy,
            "algorithm": {"name": "partition", **algorithm},
        }
        return parse_section(cls, data)
