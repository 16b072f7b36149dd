"""An experiment that estimates effects, over HTTP under shuffle privacy, and what its operator gets to see."""

import json
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from privateer_lab.cli import app
from privateer_lab.load import run_load
from privateer_lab.services import free_port, running
from privateer_lab.specs import load_spec

SPEC = Path(__file__).parents[2] / "examples" / "trial.toml"
PEOPLE = 12_000
SMALL = [f"experiment.horizon={PEOPLE}", "experiment.round_size=2000", "algorithm.allocation=fixed"]
EFFECT = ["population.effects={ gentle = 0.2, bold = -0.2 }"]
TRUE = {"gentle": 0.2, "bold": -0.2}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> tuple[dict, str, Path]:
    """The result, the Markdown report and the picture of an experiment that has ended."""
    folder = tmp_path_factory.mktemp("effects")
    spec = load_spec(SPEC, [*SMALL, *EFFECT])
    with running(folder / "data", free_port(), free_port(), quiet=True) as at:
        body = spec.without_people().model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).raise_for_status()
        keys = {"users": PEOPLE, "batch": 100, "seed": 1, "sender_key": at.sender_key}
        sent = run_load("trial", at.server, at.shuffler, population=spec.population, **keys)
        assert sent.accepted == PEOPLE
        deadline = time.monotonic() + 60
        while httpx.get(f"{at.server}/experiments/trial").json()["status"] != "finished":
            assert time.monotonic() < deadline, "batches arrive some time after the shuffler took their last report"
            time.sleep(0.1)
        words = ["effects", "trial", "--url", at.server, "--json", "--markdown", str(folder / "report.md")]
        done = CliRunner().invoke(app, [*words, "--plot", str(folder / "picture")])
        assert done.exit_code == 0, done.output
        return json.loads(done.output), (folder / "report.md").read_text(), folder / "picture.png"


def test_effects_over_http_are_those_of_the_people(shown) -> None:
    """False alarms: each of ten intervals misses with probability .05 at most, so four of them with less than .001."""
    result, _, _ = shown
    found = {one["name"]: one for one in result["estimates"]}
    assert len(found) == 10
    missed = [name for name, one in found.items() if not one["low"] <= TRUE[name.split(":")[0]] <= one["high"]]
    assert len(missed) < 4, missed
    assert found["gentle: everybody"]["low"] > 0 > found["bold: everybody"]["high"]
    assert (result["recommended"], result["stopped"]) == ("gentle", True)


def test_the_report_says_what_was_found_and_promised(shown) -> None:
    result, report, picture = shown
    for table in result["tables"]:
        assert table["title"].capitalize() in report
    assert "gentle: everybody" in report
    assert "server and shuffler" in report
    assert picture.stat().st_size > 10_000
