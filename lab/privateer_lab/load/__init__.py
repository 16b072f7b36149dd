"""Simulated people over HTTP: the real client code, a light transport, and what they learned."""

from privateer_lab.load.driver import LoadResult
from privateer_lab.load.load_run import run_load

__all__ = ["LoadResult", "run_load"]
