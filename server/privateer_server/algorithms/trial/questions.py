"""What a trial tells of its questions: which coins ask, and how many people every segment turned out to have."""

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.result import Table
from privateer_server.algorithms.trial.boundaries import critical_values, information
from privateer_server.algorithms.trial.state import TrialState

_DIGITS = 6


def questions_table(spec: TrialSpec) -> list[Table]:
    """Return which question coins ask with which share of the people; nothing if everybody answers all."""
    facts = ("the reward", *spec.algorithm.guardrails)
    rows = tuple(
        (
            "being in the segment" if one.fact is None else facts[one.fact],
            EVERYBODY if one.everybody else "a segment",
            round(one.share, _DIGITS),
        )
        for one in spec.questions
    )
    return [Table("what coins ask", ("question", "about", "share of people"), rows)] if rows else []


def shares_table(state: TrialState, spec: TrialSpec) -> list[Table]:
    """Return the segments' shares of the people with intervals, if they were asked; nothing between looks."""
    asked, design = state.asked, state.evidence.design
    critical = critical_values(information(state.evidence.people, design.people), design.alpha)[-1]
    if asked is None or not np.isfinite(critical):
        return []
    half = critical * np.sqrt(asked.variance)
    ends = np.stack([asked.estimate, asked.estimate - half, asked.estimate + half], axis=1).clip(0, 1).round(_DIGITS)
    rows = tuple((name, *row) for name, row in zip(spec.segment_names, ends.tolist(), strict=True))
    return [Table("shares of people", ("segment", "share", "low", "high"), rows)]
