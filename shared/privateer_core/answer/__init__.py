"""The types of an experiment's results and policy, which every interface renders."""

from privateer_core.answer.answer import ESTIMATES_MAX, Answer, Ending, Stage

__all__ = ["ESTIMATES_MAX", "Answer", "Ending", "Stage"]
