"""How much a night runs of what could run for ever; before a release it is more (CONTRIBUTING.md)."""

import os

KILLS = int(os.environ.get("PRIVATEER_KILLS", "30"))
"""Kills of a test of kills."""
