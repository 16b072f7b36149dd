"""Mechanisms for bounded vectors, whose sum is wanted."""
