"""A client in JavaScript, written from docs/ alone: its reports count, its tokens, and all vectors."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.publication import decode_publication
from privateer_lab.services.processes import Services, free_port, run_services
from tests.documents import wire
from tests.support.specs import tables

pytestmark = pytest.mark.node


_SDK = Path("sdk/js")
_BANDIT = {"algorithm.name": "bandit", "experiment.round_size": 300, "experiment.horizon": 300}
_LOCAL = {"privacy.epsilon": 4.0, "experiment.round_size": 300, "experiment.horizon": 300}
_SHUFFLED = _LOCAL | {"privacy.model": "shuffle", "privacy.delta": 1e-6, "privacy.min_batch": 300}
_SEVERAL = {
    "privacy.epsilon": 2.0,
    "privacy.local_epsilon_max": 16.0,
    "algorithm.messages_per_report": 8,
    "experiment.round_size": 600,
    "experiment.horizon": 1200,
}
_LARGE = {"experiment.round_size": 1000, "experiment.horizon": 1000}
_TRIAL = {
    "privacy.epsilon": 4.0,
    "experiment.round_size": 900,
    "experiment.horizon": 900,
    "algorithm.name": "trial",
    "algorithm.looks": 1,
    "segments.features": ["x1"],
    "segments.cuts": {"x1": [0.5]},
}
_ASKED = {"privacy.epsilon": 1.0, "segments.cuts": {"x1": [0.2, 0.35, 0.5, 0.65, 0.8]}, "algorithm.allocation": "fixed"}
_EVERYBODY = {name: value for name, value in _TRIAL.items() if not name.startswith("segments")} | {"context": None}
_LINEAR = {"algorithm.name": "linear"}
_CENTRAL = {
    "privacy.model": "central",
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-6,
    "experiment.round_size": 300,
    "experiment.horizon": 600,
}
_NONE = {"privacy.model": "none", "privacy.epsilon": None, "experiment.round_size": 300, "experiment.horizon": 600}
_EXPERIMENTS: dict[str, dict[str, Any]] = {
    "partition-local": _LOCAL,
    "partition-shuffled": _SHUFFLED,
    "bandit-local": _LOCAL | _BANDIT,
    "bandit-shuffled": _SHUFFLED | {"algorithm.name": "bandit"},
    "trial-local": _TRIAL,
    "trial-of-everybody": _EVERYBODY,
    "questions-local": _TRIAL | _ASKED,
    "partition-central": _CENTRAL,
    "bandit-none": _NONE | {"algorithm.name": "bandit"},
    "linear-local": _LOCAL | _LINEAR,
    "linear-shuffled": _SHUFFLED | _LINEAR,
    "linear-several": _SHUFFLED | _LINEAR | _SEVERAL,
    "linear-central": _CENTRAL | _LINEAR,
    "linear-none": _NONE | _LINEAR,
    "asks": _LOCAL,
    "asks-shuffled": _SHUFFLED | {"privacy.epsilon": 1.0, "privacy.min_batch": 1000} | _LARGE,
}


def node(*arguments: str) -> str:
    """Run Node, and return what it prints."""
    command = shutil.which("node")
    assert command, "Node 20 or newer is missing: install it, or leave out `make sdk`"
    process = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as at:
        headers = {"Authorization": f"Bearer {at.token}"}
        for name, changes in _EXPERIMENTS.items():
            spec = tables(changes | {"experiment.name": name})
            spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
            if changes.get("algorithm.name") == "bandit":
                del spec["context"]
            answer = httpx.post(f"{at.admin}/experiments", json=spec, headers=headers, timeout=60)
            assert answer.status_code == 201, answer.text
        yield at


@pytest.mark.parametrize("name", [name for name in _EXPERIMENTS if not name.startswith("asks")])
def test_its_reports_are_counted_and_learned_from(services: Services, name: str) -> None:
    """Arm "a" has reward 1, every other arm 0: the server must see "a" ahead.

    Of so many people a third get each arm. Its estimate is ahead of another by 1, in the trial in both segments, and
    the standard error of that difference is at most .15: honest reports miss it in fewer than one run of a billion.
    Where coins choose a question at epsilon 1, so few people tell nothing, and only what is accepted counts.
    """
    people = _EXPERIMENTS[name]["experiment.round_size"]
    is_exact = _EXPERIMENTS[name].get("privacy.model") == "none"
    allowed = {"epsilon": 1e999 if is_exact else 4.0, "local_epsilon": 16.0, "min_batch": 300, "allow_central": True}
    limits = json.dumps(allowed).replace(
        "Infinity", "1e999"
    )  # a number that JSON has, and JavaScript takes for infinity
    output = node(str(_SDK / "examples/people.js"), services.server, services.shuffler, name, str(people), limits)
    assert json.loads(output) == {"accepted": people}
    deadline = time.monotonic() + 30
    while (facts := _page(services, name, ""))["accepted"] < people or facts["version"] == 1:
        assert time.monotonic() < deadline, facts
        time.sleep(0.05)
    assert (facts["accepted"], facts["refused"]) == (people, {})
    if name.startswith("questions"):
        parts = _page(services, name, "/answer")["result"]["parts"]
        (shares,) = (part for part in parts if part["kind"] == "table")
        assert [row[-1] for row in shares["rows"]] == [0.72, 0.2, 0.08]
    elif name.startswith("trial"):
        estimates = _page(services, name, "/answer")["result"]["estimates"]
        # Two arms: in two segments and on average, or for everybody.
        assert len(estimates) == (2 if name.endswith("everybody") else 6)
        assert all(-1.5 < estimate["value"] < -0.5 and estimate["high"] < 0 for estimate in estimates)
    elif name.startswith("linear"):
        assert name != "linear-several" or _messages(services, name) > 1
        means = {arm: mean["1"] for arm, mean in _page(services, name, "/policy")["policy"]["shows"]["arms"].items()}
        assert name == "linear-local" or max(means, key=means.__getitem__) == "a", means
    elif "central" in name or "none" in name:
        shows = _page(services, name, "/policy")["policy"]["shows"]
        assert all(max(estimate["arms"], key=estimate["arms"].__getitem__) == "a" for estimate in shows[shows["kind"]])
    else:
        shows = _page(services, name, "/policy")["policy"]["shows"]
        assert all(estimate["arms"] == {"a": 1.0} for estimate in shows[shows["kind"]])


def _messages(services: Services, name: str) -> int:
    headers = {"Accept": "application/msgpack"}
    body = httpx.get(f"{services.server}/experiments/{name}/policy", headers=headers, timeout=30).content
    return decode_publication(body).round.messages


def _page(services: Services, name: str, page: str) -> dict[str, Any]:
    return dict(httpx.get(f"{services.server}/experiments/{name}{page}", timeout=30).json())


def test_it_refuses_terms_that_a_device_must_refuse(services: Services) -> None:
    """The default limits allow an epsilon of 1; nothing may be sent."""
    script = (
        "import { Client, MemoryLedger } from './sdk/js/src/index.js';"
        f"const client = new Client('{services.server}', {{ ledger: new MemoryLedger() }});"
        "await client.join('asks').catch((error) => console.log(error.type, error.field));"
        "await client.join('nobody').catch((error) => console.log(error.type));"
        "await client.join('asks-shuffled').catch((error) => console.log(error.type, error.field));"
    )
    output = node("--input-type=module", "-e", script)
    assert output.splitlines() == ["terms-refused epsilon", "not-found", "terms-refused shuffler"]


SDK = Path(__file__).parents[2] / "sdk" / "js"
FILES = ("vectors", "families", "offline", "token-vectors", "hostile")


@pytest.mark.timeout(900)  # all vectors, with all processors busy
def test_the_client_in_javascript_meets_all_vectors(tmp_path: Path) -> None:
    contents = {name: content for module in wire.MODULES for name, content in module.files().items()}
    people = {name: sum(case["people"] for case in contents[name]) for name in ("decisions", "offline")}
    assert min(people.values()) >= 10_000, people
    for path, text in wire.render(contents, tmp_path).items():
        path.write_text(text)
    command = shutil.which("node")
    assert command, "Node 20 or newer is missing: install it, or leave out `make sdk`"
    tests = [f"test/{name}.test.js" for name in FILES]
    environment = os.environ | {"PRIVATEER_VECTORS": str(tmp_path)}
    process = subprocess.run(
        [command, "--test", *tests], cwd=SDK, env=environment, capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(contents["terms"]) > 100
    assert contents["terms"][-1]["name"] in process.stdout
