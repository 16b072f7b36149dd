"""Simulated people over HTTP: the real client code, a light transport, and what they learned."""

from privateer_lab.load.people import LoadResult
from privateer_lab.load.phases import PhaseResult
from privateer_lab.load.run import run_load, run_phases

__all__ = ["LoadResult", "PhaseResult", "run_load", "run_phases"]
