"""Trials (Li, Shi and Simchi-Levi 2025): adaptive A/B tests of arms against a control, with effects by segment."""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.trial.policy import TrialPolicy
from privateer_core.algorithms.trial.spec import TrialSpec

__all__ = ["ALGORITHM", "TrialPolicy", "TrialSpec"]

ALGORITHM: Final = Algorithm(TrialSpec, TrialPolicy)
