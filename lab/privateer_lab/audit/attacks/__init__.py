"""Attacks that use the internals of a learner, or of a paper's algorithm that no spec can name."""
