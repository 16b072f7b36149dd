"""Environments whose people follow a formula."""
