"""Policies: their base, decisions, ages of reports, analyzers, public draws."""
