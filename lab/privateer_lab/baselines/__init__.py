"""Baseline policies, which play the same participants as an experiment (docs/baselines.md)."""
