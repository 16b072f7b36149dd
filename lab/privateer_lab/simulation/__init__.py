"""Experiments in one process: schedule, policies and mechanisms of the services, and simulated people."""
