"""What an experiment has found and what its policy is, as types that every face renders."""

from privateer_core.answer.answer import ESTIMATES_MAX, Answer, Ending, Stage

__all__ = ["ESTIMATES_MAX", "Answer", "Ending", "Stage"]
