"""What the page on convex sets has readers type works, through services."""

import json
import os
from pathlib import Path

import httpx
import pytest

from privateer_lab.services.processes import free_port, running
from tests.docs.test_readme import blocks, execute, run_snippet

PAGE = (Path(__file__).parents[2] / "docs" / "convex.md").read_text()


@pytest.mark.nightly
def test_the_pages_commands_and_device(tmp_path: Path) -> None:
    create, load = (line for block in blocks("sh", PAGE) for line in block.splitlines())
    with running(tmp_path, free_port(), free_port(), token="change-me-to-something-random") as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        execute(create, environment)
        (snippet,) = blocks("python", PAGE)
        run_snippet(snippet, at, environment)
        assert httpx.get(f"{at.server}/experiments/convex-two-point").json()["received"] == 1
        said = json.loads(execute(f"{load.replace('2000', '300')} --json", environment))
        assert (said["accepted"], said["people"]) == (299, 300)
        assert said["regret"] < said["uniform_regret"]
        state = httpx.get(f"{at.server}/experiments/convex-two-point/state").json()["answer"]
        assert state["people"] == 300
