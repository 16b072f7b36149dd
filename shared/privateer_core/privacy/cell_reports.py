"""What reports tell of the cells of features under a spec's promise, and how many people that takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.primitives.questions import FeatureMeans, KeyedMeans, SmallDomainMeans
from privateer_core.privacy.information import AskedCell, information
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec

Array = NDArray[np.float64]
_GROWTH: Final = 0.3
"""A policy is taken to hold until so many times as many people have reported."""
_COUNTED: Final = 0.9
"""Share of a vector that tells values, and not people."""
_NOBODY: Final = 1e-12
_QUARTER: Final = 0.25
_EFFECT: Final = 0.08
"""How exactly an option has to be known among a quarter of the people, where rewards are about 1/2."""
_CONTENDERS: Final = 6
"""Options that are in play while most is learned, at most."""
_SEVERAL: Final = 3
"""Features from which on naming fewer helps."""


@dataclass(frozen=True)
class CellReports:
    """What reports tell of the cells of a table under a spec's promise, by its own mechanism.

    spec: the experiment, with the algorithm whose question is asked.
    mean, variance: of rewards, scaled to [0, 1].
    """

    spec: ArmsSpec
    mean: float
    variance: float

    @cached_property
    def _question(self) -> Any:
        return self.spec.usual_question()

    @property
    def by_feature(self) -> bool:
        """Whether a report is about one feature, or all of them are about a key of all."""
        return isinstance(self._question, FeatureMeans)

    @cached_property
    def _terms(self) -> Terms:
        spec, batch = self.spec, self.spec.largest_batch()
        return calibrate(spec.privacy, batch, self._question, spec.fewest(batch), spec.reports)

    @property
    def policies(self) -> Iterator[list[int]]:
        """The batches under each policy, which holds until a few more people have reported."""
        seen, batches, since = 0, list[int](), 0
        for planned in self.spec.planned_rounds():
            if batches and seen >= (1 + _GROWTH) * since:
                yield batches
                batches, since = [], seen
            batches.append(planned.batch)
            seen += planned.batch
        yield batches

    def precisions(self, batches: Sequence[int], keys: Array, arms: Array, asked: Array) -> Array:
        """Return how exactly rounds tell the mean reward of every cell and arm, (cells, arms), as precisions.

        batches: people of the rounds.
        keys: share of people in every cell, (cells,).
        arms: share of these who have each arm, (cells, arms).
        asked: share of people who are asked about the cell's feature, (cells,).
        """
        sizes, counts = np.unique(batches, return_counts=True)
        each = [self._round(float(size), keys[:, None], arms, asked[:, None]) for size in sizes]
        return np.asarray(sum(count * one for count, one in zip(counts, each, strict=True)))

    def _round(self, people: float, keys: Array, arms: Array, asked: Array) -> Array:
        in_turns = self.spec.takes_turns or getattr(self.spec, "starts_from_levels", False)
        mechanism, question, cell = self._terms.mechanism, self._question, keys * np.maximum(arms, _NOBODY)
        of_all = isinstance(mechanism, CentralVectors)

        def told(key: Any, arm: Any, of: Any) -> Any:
            return information(mechanism, AskedCell(question, of, key=key, arm=arm, in_turns=in_turns)) + np.zeros_like(
                arm
            )

        # Estimates of a rate that is declared have a variance of each cell's own.
        by_cell = told if getattr(question, "rate", None) is None else np.vectorize(told)
        apart = np.maximum(1.0, people * asked) if self.by_feature and not of_all else people
        each = by_cell(keys, np.maximum(arms, _NOBODY), apart)
        # Features are asked about for residuals, of which the larger one is what is left of 1; keys for bits.
        unit = max(self.mean, 1 - self.mean) ** 2 if self.by_feature else 1 / 4
        if isinstance(mechanism, NamedSymbol) and mechanism.named and self.by_feature:
            unit *= (1 + question.ball.below**2) / 2  # residuals of rare rewards are never far below 0
        with np.errstate(divide="ignore"):
            noise = unit / np.where(asked > 0, asked * each, 0.0)
        # A vector is of all features, and by how much rewards vary is not in its noise.
        noise = noise / _COUNTED + self.variance / cell if of_all else noise
        return np.where(arms > 0, people / np.maximum(noise, _NOBODY), 0.0)


def feature_error(spec: ArmsSpec, features: int, people: int) -> float:
    """Return how exactly so many people tell the mean reward of an option among a quarter of them, from 0 to 1.

    Every feature is asked about alike, and a declared mean reward is believed.
    """
    table = spec.experiment.model_copy(update={"horizon": people, "gain_share": 0.0})
    spread = spec.reward.deviation
    mean = 0.5 if spec.reward.expected is None else spec.reward.expected
    variance = mean * (1 - mean) if spread is None else (spread / spec.reward.span) ** 2
    reports = CellReports(spec.model_copy(update={"experiment": table}), mean, variance)
    cell = (
        np.array([_QUARTER]),
        np.full((1, 1), 1 / min(sum(spec.playable), _CONTENDERS)),
        np.array([1 / (1 + features)]),
    )
    told = sum(float(reports.precisions(batches, *cell)[0, 0]) for batches in reports.policies)
    return told**-0.5 if told > 0 else float("inf")


def people_for(spec: ArmsSpec, features: int) -> int:
    """Return about how many people it takes until so many features can be told to matter, with two digits."""
    mean = 0.5 if spec.reward.expected is None else spec.reward.expected
    wanted, people = _EFFECT * 2 * (mean * (1 - mean)) ** 0.5, max(spec.experiment.horizon, spec.experiment.round_size)
    first, more = feature_error(spec, features, people), feature_error(spec, features, 4 * people)
    slope = max(0.25, float(np.log(first / more) / np.log(4)))
    return int(float(f"{people * (first / wanted) ** (1 / slope):.2g}"))


def concerns_of_features(spec: Spec) -> Iterator[str]:
    """Say that features cannot be learned within the horizon, and what helps."""
    if not isinstance(spec, ArmsSpec) or not spec.privacy.trust.promises or not spec.features or spec.sources:
        return
    if spec.experiment.reports_per_person > 1:  # the people are fewer, and tell more
        return
    if not issubclass(spec.question, KeyedMeans | FeatureMeans) or issubclass(spec.question, SmallDomainMeans):
        return
    count, people = len(spec.features), spec.experiment.horizon
    if (needed := people_for(spec, count)) <= people:
        return
    few = next((one for one in range(count - 1, 0, -1) if people_for(spec, one) <= people), 0)
    features = "the feature" if count == 1 else f"{count} features"
    named = f"Name {'one' if few < 2 else f'{few} at most'}, or run" if count >= _SEVERAL else "Run"
    yield (
        f"{people:,} people tell little of {features} under this promise: it takes about {needed:,} until they repay "
        f"what noise costs. {named} a randomized log first: `privateer spec-from` finds in it which features pay"
    )
