"""Mechanisms for sums of bounded vectors."""
