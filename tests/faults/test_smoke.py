"""A few lists of faults, the same each time; the nightly run draws many."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from tests.faults.operations import OPERATIONS, run


@settings(max_examples=15, suppress_health_check=list(HealthCheck), phases=[Phase.generate], print_blob=True)
@given(OPERATIONS)
def test_faults_lose_and_double_nothing(operations: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(run(operations, Path(folder))))
