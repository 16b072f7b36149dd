"""Trials (paper 4): adaptive A/B tests of arms against a control, with effects by segment."""

from typing import Final

from privateer.algorithms import Algorithm
from privateer.algorithms.trial.policy import TrialPolicy
from privateer.algorithms.trial.spec import TrialSpec

__all__ = ["ALGORITHM", "TrialPolicy", "TrialSpec"]

ALGORITHM: Final = Algorithm(TrialSpec, TrialPolicy)
