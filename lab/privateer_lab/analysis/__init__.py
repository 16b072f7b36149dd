"""Tests that have been run: their effects, by the statistics of a trial."""
