"""Policies to compare with, found by name: what others do with the same people (docs/baselines.md)."""
