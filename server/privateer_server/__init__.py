"""The server: opens reports, learns, and publishes the policy."""

import os

# Matrices of learners are small: threads of linear algebra would wait for each other, and take processors from others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
