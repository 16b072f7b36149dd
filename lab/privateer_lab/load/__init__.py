"""Simulated people over HTTP: the real client code, a light transport, and what they learned."""
