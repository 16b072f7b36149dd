"""The lab: command line, simulation and benchmarks. May import every role; nothing imports it."""

import os

# Work is shared out by processes, and matrices are small: threads of linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
