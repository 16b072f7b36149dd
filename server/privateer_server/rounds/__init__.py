"""Rounds: they open, close, are missed, and finish."""
