"""Attacks that know how what they attack works inside: a learner, or a paper's algorithm that no spec can name."""
