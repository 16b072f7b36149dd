"""The plan of a trial: its designs, and its epochs with calibrated mechanisms."""

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
    """The designs of reports on the participant's segment, and of reports on all participants."""

    segments: TrialDesign
    everybody: TrialDesign | None

    def with_shares(self, shares: Sequence[float] | None) -> "TrialDesigns":
        """Return the designs for other shares of segments; an empty segment gets the smallest positive share."""
        if shares is None:
            return self
        weights = np.array(shares)
        return replace(self, segments=replace(self.segments, segments=np.maximum(weights, weights[weights > 0].min())))


def build_designs(spec: TrialSpec) -> TrialDesigns:
    """Return the designs of a spec: participants of all epochs, by their questions."""
    terms, people, questions = spec.first_terms(""), spec.experiment.horizon, spec.questions
    design = TrialDesign(spec.algorithm.significance_level, people, np.array(spec.arm_shares), spec.segment_shares)
    design = replace(design, numeric=spec.is_numeric)
    mechanism = terms.mechanism if terms else None
    if questions:
        design = replace(design, people=people * questions[0].share)
    if not isinstance(mechanism, NamedSymbol) or mechanism.is_named:
        return TrialDesigns(design, None)
    design = replace(design, counted=False, hit=1 / mechanism.buckets)
    everybody_share = next((question.share for question in questions if question.everybody), None)
    if everybody_share is None:
        return TrialDesigns(design, None)
    hit_rate = mechanism.response.gain + 2 * mechanism.response.other
    return TrialDesigns(design, replace(design, people=people * everybody_share, segments=np.ones(1), hit=hit_rate))


def planned_epochs(spec: TrialSpec) -> list[PlannedEpoch]:
    """Return the planned epochs of reports on rewards by segment, with calibrated mechanisms."""
    share = spec.questions[0].share if spec.questions else 1.0
    batches = np.diff([0, *spec.looks]).tolist()
    return [_plan_epoch(spec, batch, batch * share, look) for look, batch in enumerate(batches)]


def _plan_epoch(spec: TrialSpec, batch: int, people: float, look: int) -> PlannedEpoch:
    """Return the epoch of a look, from 0; each earlier look has provided a learned slope."""
    mechanism: Any = calibrate(spec.privacy, batch, spec.question_after_learning(look)).mechanism
    if isinstance(mechanism, CellPairs):
        values = _plan_values(spec, mechanism.parts, look, rounded=False)
        return PlannedEpoch(people, noise=spec.n_answers * mechanism.noise, values=values)
    levels = mechanism.levels
    keep, false_hit_rate = mechanism.response.gain, spec.n_answers * mechanism.response.other
    values = _plan_values(spec, ValueParts.levels(levels), look, rounded=True)
    if spec.has_arm_in_report:
        return PlannedEpoch(people, keep, noise=people * false_hit_rate * (1 - false_hit_rate), values=values)
    return PlannedEpoch(people, keep, false_hit_rate * levels / 2, values=values)


def _plan_values(spec: TrialSpec, parts: ValueParts, look: int, *, rounded: bool) -> PlannedValues | None:
    """Return the planned distribution of numeric rewards at a look; None if rewards are bits."""
    standard_deviation = spec.standard_deviation_after(look)
    if standard_deviation is None:
        return None
    return PlannedValues.from_moments(spec.base_rate, standard_deviation, parts, rounded=rounded)
