"""Tables in a pipe are as wide as COLUMNS says, and else as wide as they need to be."""

import os
import subprocess
import sys

import pytest

_CODE = """
from privateer_lab.cli.output import print_rows
print_rows("Options", [{"option": "free delivery " * 5, "effect": 0.25, "why": "words " * 10}])
"""


@pytest.mark.parametrize(("columns", "is_within"), [("60", True), ("", False)])
def test_tables_follow_columns_in_a_pipe(columns: str, is_within: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = columns
    run = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=environment)
    assert (max(map(len, run.stdout.splitlines())) <= 60) == is_within
