"""The server: opens reports, learns, and publishes the policy."""

import os

# Learners' matrices are small: threads of linear algebra would wait for each other, and take the processors of requests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
