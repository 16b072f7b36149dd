"""Simulated people over HTTP: the real client code, a light transport, and what they learned."""

from privateer_lab.load.driver import LoadResult, run_load

__all__ = ["LoadResult", "run_load"]
