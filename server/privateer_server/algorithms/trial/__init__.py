"""The trial's learner and its statistics."""
