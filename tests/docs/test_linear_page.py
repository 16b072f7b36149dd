"""What the page on linear bandits has readers type is read as it should be."""

import shlex
from pathlib import Path

from privateer_lab.cli.input_files import load_spec
from tests.docs.test_readme import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "linear.md").read_text()


def test_the_pages_commands() -> None:
    """The simulations themselves are in tests/simulation, shorter."""
    lines = [shlex.split(line) for block in blocks("sh", PAGE) for line in block.splitlines()]
    assert len(lines) == 2
    for program, command, path, *options in lines:
        assert (program, command) == ("privateer", "simulate")
        pairs = dict(zip(options[::2], options[1::2], strict=True))
        assert set(pairs) <= {"--users", "--seeds", "--set"}
        spec = load_spec(ROOT / path, [pairs["--set"]] if "--set" in pairs else [], int(pairs["--users"]))
        assert (spec.algorithm.name, spec.experiment.horizon) == ("linear", 100_000)
