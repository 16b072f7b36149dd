"""Policies: their base, decisions with their ages, analyzers, public draws."""
