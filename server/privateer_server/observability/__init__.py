"""Observability for operators: metrics, gauges, traces."""
