"""What the page on high-dimensional bandits has readers type is read as it should be."""

import shlex
from pathlib import Path

from privateer_lab.audit.suite import target_names
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.plans import EPSILONS, make_variants
from privateer_papers.catalogue import all_reproductions
from privateer_server.rounds.loop import Schedule
from tests.docs.test_readme import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sparse.md").read_text()


def test_the_pages_commands() -> None:
    """Simulations themselves are in tests/simulation, shorter."""
    lines = [shlex.split(line) for block in blocks("sh", PAGE) for line in block.splitlines()]
    names = ("simulate", "plan", "audit", "reproduce", "audit")
    assert [line[:2] for line in lines] == [["privateer", name] for name in names]
    for _, name, path, *options in lines[:2]:
        pairs = dict(zip(options[::2], options[1::2], strict=True))
        settings = [pairs["--set"]] if "--set" in pairs else []
        spec = load_spec(ROOT / path, settings, int(pairs["--users"]))
        assert spec.algorithm.name == "sparse"
        models = pairs.get("--models", "central").split(",")
        for variant in make_variants(spec, models, EPSILONS[:: len(EPSILONS) - 1] if name == "plan" else (1.0,)):
            Schedule(variant.spec).open(0)
    assert lines[2][3] in target_names()
    assert lines[3][2] in all_reproductions()
    assert lines[4][3] in target_names()
