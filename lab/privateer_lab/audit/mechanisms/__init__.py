"""Attacks on mechanisms, by what they are asked."""
