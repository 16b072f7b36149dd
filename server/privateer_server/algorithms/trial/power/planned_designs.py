"""What a spec plans of a trial: its designs, and its epochs as their mechanisms will be calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import ValueParts
from privateer_core.privacy.terms import calibrate
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.evidence.value_sums import PlannedValues


@dataclass(frozen=True)
class TrialDesigns:
    """The designs for people who are asked about their segment, and for those who are asked about everybody."""

    segments: TrialDesign
    everybody: TrialDesign | None

    def with_shares(self, shares: Sequence[float] | None) -> "TrialDesigns":
        """Return the designs for other shares of segments; those without people count as the smallest."""
        if shares is None:
            return self
        given = np.array(shares)
        return replace(self, segments=replace(self.segments, segments=np.maximum(given, given[given > 0].min())))


def designs(spec: TrialSpec) -> TrialDesigns:
    """Return what a spec plans: people of all epochs, by what coins ask them."""
    terms, people, questions = spec.planned(""), spec.experiment.horizon, spec.questions
    own = TrialDesign(spec.algorithm.level, people, np.array(spec.arm_shares), spec.segment_shares)
    own = replace(own, numeric=spec.numeric)
    mechanism = terms.mechanism if terms else None
    if questions:
        own = replace(own, people=people * questions[0].share)
    if not isinstance(mechanism, NamedSymbol) or mechanism.named:
        return TrialDesigns(own, None)
    own = replace(own, counted=False, hit=1 / mechanism.buckets)
    about = next((question.share for question in questions if question.everybody), None)
    if about is None:
        return TrialDesigns(own, None)
    hit = mechanism.response.gain + 2 * mechanism.response.other
    return TrialDesigns(own, replace(own, people=people * about, segments=np.ones(1), hit=hit))


def planned_epochs(spec: TrialSpec) -> list[PlannedEpoch]:
    """Return the epochs to come, as their mechanisms will be calibrated: people asked for the reward by segment."""
    share = spec.questions[0].share if spec.questions else 1.0
    batches = np.diff([0, *spec.looks]).tolist()
    return [_planned(spec, batch, batch * share, look) for look, batch in enumerate(batches)]


def _planned(spec: TrialSpec, batch: int, people: float, look: int) -> PlannedEpoch:
    """Return the epoch of a look, from 0: where slopes are learned, each look before it has told one."""
    mechanism: Any = calibrate(spec.privacy, batch, spec.question_after(look)).mechanism
    if isinstance(mechanism, CellPairs):
        values = _valued(spec, mechanism.parts, look, rounded=False)
        return PlannedEpoch(people, noise=spec.answers * mechanism.noise, values=values)
    levels = mechanism.levels
    keep, each = mechanism.response.gain, spec.answers * mechanism.response.other
    values = _valued(spec, ValueParts.levels(levels), look, rounded=True)
    if spec.names_arms:
        return PlannedEpoch(people, keep, noise=people * each * (1 - each), values=values)
    return PlannedEpoch(people, keep, each * levels / 2, values=values)


def _valued(spec: TrialSpec, parts: ValueParts, look: int, *, rounded: bool) -> PlannedValues | None:
    told = spec.deviation_after(look)
    return None if told is None else PlannedValues.of(spec.rate, told, parts, rounded=rounded)
