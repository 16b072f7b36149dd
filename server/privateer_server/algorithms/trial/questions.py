"""What a trial tells of its questions: which coins ask, and how many people every segment turned out to have."""

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import Intervals
from privateer_core.answer.tables import Kind, Table
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
    columns: dict[str, Kind] = {"question": "words", "about": "words", "share of people": "share"}
    return [Table.of("what coins ask", columns, rows)] if rows else []


def shares_of_people(state: TrialState, spec: TrialSpec) -> list[Intervals]:
    """Return the segments' shares of the people with intervals, if they were asked; nothing between looks."""
    asked, design = state.asked, state.evidence.design
    critical = critical_values(information(state.evidence.people, design.people), design.alpha)[-1]
    if asked is None or not np.isfinite(critical):
        return []
    rows = zip(spec.segment_names, asked.estimate.tolist(), (critical * np.sqrt(asked.variance)).tolist(), strict=True)
    shares = (
        Estimate.within(name, round(value, _DIGITS), round(half, _DIGITS), (0.0, 1.0)) for name, value, half in rows
    )
    return [Intervals("shares of people", "share", tuple(shares))]
