"""The lab: command line, simulation and benchmarks. May import every role; nothing imports it."""
