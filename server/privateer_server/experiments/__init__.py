"""Experiments of a running server: creation, loading, changes and exports."""
