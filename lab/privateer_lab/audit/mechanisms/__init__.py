"""Attacks on mechanisms, by the question that they answer."""
