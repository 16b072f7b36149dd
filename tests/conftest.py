"""Property tests draw the same examples every time and have no clock, so that a failure is always a failure."""

import os

# Before numpy is imported: tests run side by side, and threads of linear algebra would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")
