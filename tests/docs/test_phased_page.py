"""What the guide to phased elimination has readers type works, through services."""

import json
import os
from pathlib import Path

import httpx
import pytest

from privateer_core.algorithms.phased import PhasedSpec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.services.processes import free_port, run_services
from tests.docs.test_readme import blocks, execute, run_snippet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "phased-run.md").read_text()


@pytest.mark.nightly
def test_the_pages_commands_and_device(tmp_path: Path) -> None:
    """The load is the nightly tests' to run in full: here those few of the people are that a short wait takes."""
    create, load = (line for block in blocks("sh", PAGE) for line in block.splitlines())
    with run_services(tmp_path, free_port(), free_port(), token="change-me-to-something-random") as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER_URL": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        execute(create, environment)
        document = json.loads(execute(f"{load} --users 200 --json", environment))
        assert (document["over"], document["accepted"] + document["people"]["held"]["needed"]) == (False, 101)
        (snippet,) = blocks("python", PAGE)
        run_snippet(snippet, at, environment)
        facts = httpx.get(f"{at.server}/experiments/stations").json()
        assert (facts["algorithm"], facts["version"]) == ("phased", 1)


def test_the_figures_of_the_page_are_those_of_the_example() -> None:
    spec = load_spec(ROOT / "examples" / "stations.toml", [])
    assert isinstance(spec, PhasedSpec)
    n_participants = sum(spec.phase_size(phase) for phase in range(1, spec.phases + 1))
    assert f"{n_participants:,} people in {spec.phases} phases" in PAGE
