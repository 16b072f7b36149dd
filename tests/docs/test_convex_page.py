"""What the page on convex sets has readers type works, through services."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_lab.cli.input_files import load_spec
from privateer_lab.services.processes import free_port, run_services
from tests.docs.test_readme import blocks, execute, run_snippet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "convex.md").read_text()


def test_the_page_names_the_experiment_of_its_commands_and_rewards_that_it_takes() -> None:
    create, load = (line for block in blocks("sh", PAGE) for line in block.splitlines())
    path = create.split()[-1]
    spec: Any = load_spec(ROOT / path, [])
    assert spec.name in load.split()
    assert path in load.split()
    (snippet,) = blocks("python", PAGE)
    calls: list[str] = []

    class Session:
        """What the snippet asks of a session, with points of the spec's dimension."""

        def choose(self) -> dict[str, list[float]]:
            return {name: [1.0] + [0.0] * (spec.domain.dimension - 1) for name in ("first", "second")}

        def report(self, rewards: dict[str, float]) -> None:
            assert rewards.keys() == self.choose().keys()
            assert all(spec.reward.low <= reward <= spec.reward.high for reward in rewards.values())
            calls.append("report")

    class Client:
        def __init__(self, *_: str, **__: str) -> None: ...

        def join(self, name: str) -> Session:
            assert name == spec.name
            return Session()

    exec(snippet.replace("from privateer_client import Client", ""), {"Client": Client})
    assert calls == ["report"]


@pytest.mark.nightly
def test_the_pages_commands_and_device(tmp_path: Path) -> None:
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
        (snippet,) = blocks("python", PAGE)
        run_snippet(snippet, at, environment)
        assert httpx.get(f"{at.server}/experiments/convex-two-point").json()["received"] == 1
        document = json.loads(execute(f"{load.replace('2000', '300')} --json", environment))
        assert (document["accepted"], document["took_part"]) == (299, 300)
        assert document["regret"] < document["uniform_regret"]
        state = httpx.get(f"{at.server}/experiments/convex-two-point/state").json()["answer"]
        assert state["people"] == 300
