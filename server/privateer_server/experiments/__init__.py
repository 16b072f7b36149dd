"""Experiments of a running server: created, loaded, changed, exported."""
