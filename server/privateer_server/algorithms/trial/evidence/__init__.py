"""Sums of a trial's releases, and statistics of them."""
