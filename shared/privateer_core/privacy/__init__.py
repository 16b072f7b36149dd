"""Promises of privacy, the terms of a round that keep them, and the checks of devices and anybody else."""
