"""The programs of others that `make interop` installs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NODE_FOLDER = ROOT / "requirements" / "interop"
PYTHON = Path(sys.prefix + "-interop") / "bin" / "python"


def run(
    command: list[str | Path], folder: Path, text: str | None = None, environment: dict[str, str] | None = None
) -> str:
    """The output of a program; it fails the test with all it says."""
    process = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=600, env=environment
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def ask_strangers(question: dict[str, Any]) -> dict[str, Any]:
    """What each library in JavaScript and Python answers, by its name."""
    parent, text = Path(__file__).parent, json.dumps(question)
    # A module of its own folder would not find the packages.
    in_node = run(["node", "--input-type=module", "-e", (parent / "strangers.mjs").read_text()], NODE_FOLDER, text)
    in_python = run([PYTHON, parent / "strangers.py"], ROOT, text)
    return json.loads(in_node) | json.loads(in_python)  # type: ignore[no-any-return]
