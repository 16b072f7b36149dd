"""Everything that a user does with an algorithm, by the command line: FOLDER ALGORITHM [TRUST MODEL ...].

A test runs this on a copy of the tree to which an algorithm was added. It finds what the services published in
``FOLDER/published.json``.
"""

import io
import json
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import httpx

from privateer_core.privacy.trust import TRUST
from privateer_lab.cli.command_line import main
from privateer_lab.services.processes import Services, free_port, run_services

SPEC = """[experiment]
name = "{model}"
arms = ["a", "b", "c"]
horizon = 600
round_size = 150
[context.features]
x1 = {{ low = 0.0, high = 1.0 }}
x2 = {{ low = 0.0, high = 1.0 }}
[privacy]
model = "{model}"
min_batch = 100
{promise}
[algorithm]
name = "{algorithm}"
[population]
name = "peaks"
"""


def cli(*words: Any) -> Any:
    """Run a command; return what it prints as JSON, or as text."""
    string_io, code = io.StringIO(), None
    with redirect_stdout(string_io):
        try:
            main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
    assert not code, (words, string_io.getvalue())
    return json.loads(string_io.getvalue()) if "--json" in words else string_io.getvalue()


def write_spec(folder: Path, algorithm: str, model: str) -> Path:
    promise = "\n".join(f"{key} = {value!r}" for key, value in TRUST[model].example.items())
    path = folder / f"{model}.toml"
    path.write_text(SPEC.format(model=model, algorithm=algorithm, promise=promise))
    return path


def run_in_one_process(specs: dict[str, Path], algorithm: str) -> None:
    quick = ("--seeds", 2, "--jobs", 1)
    for spec in specs.values():
        assert cli("simulate", spec, *quick, "--json")
    first = next(iter(specs.values()))
    promising = ",".join(model for model in specs if TRUST[model].promises)
    assert cli("plan", first, "--models", promising, "--epsilons", "4", *quick, "--json")
    table = first.parent / "sweep.csv"
    cli("simulate", first, "--vary", "privacy.epsilon=1,4", "--out", table, *quick)
    assert len(table.read_text().splitlines()) > 2
    audit = cli("audit", "--mechanism", algorithm, "--samples", 1000, "--json")
    assert audit["holds"]
    assert {finding["model"] for finding in audit["findings"]} >= {model for model in specs if TRUST[model].promises}


def run_over_http(specs: dict[str, Path], at: Services) -> dict[str, Any]:
    """Return what is published of each experiment when it is over, by trust model."""
    published = {}
    for model, spec in specs.items():
        cli("create", spec, "--token", at.token, "--admin-url", at.admin)
        addresses = ("--url", at.server, "--shuffler", at.shuffler, "--sender-key", at.sender_key)
        load = cli("load", model, *addresses, "--users", 600, "--batch", 50, "--json")
        assert load["accepted"] == 600, load
        wait(f"{at.server}/experiments/{model}")
        progress = cli("answer", model, "--as", "progress", "--url", at.server, "--json")
        assert progress["status"] == "finished", progress
        policy = cli("answer", model, "--as", "policy", "--url", at.server, "--json")["policy"]
        assert {arm for row in policy["shows"]["bins"] for arm in row["arms"]} <= {"a", "b", "c"}
        check_drawings(model, at)
        record = spec.with_suffix(".json")
        record.write_text(json.dumps(cli("account", "experiment", model, "--url", at.server, "--json")))
        cli("account", "verify", record)
        published[model] = fetch_published(f"{at.server}/experiments/{model}")
    return published


def check_drawings(model: str, at: Services) -> None:
    """The command line draws the policy as a map, and so does the page of a report."""
    text = cli("answer", model, "--as", "policy", "--url", at.server)
    assert "A = a, B = b, C = c" in text
    page = Path(tempfile.mkdtemp()) / "page.html"
    cli("answer", model, "--as", "report", "--url", at.server, "--out", page)
    assert "<img" in page.read_text()
    assert cli("answer", model, "--as", "progress", "--url", at.server)


def fetch_published(page: str) -> Any:
    """Return what the dashboard asks for: the policy, the answer and the spec."""
    policy, state, facts = (httpx.get(f"{page}{route}").json() for route in ("/policy", "/state", ""))
    return {"policy": policy["policy"], "answer": state["answer"], "spec": facts["spec"]}


def wait(page: str) -> None:
    """Batches arrive some time after the shuffler took their last report."""
    deadline = time.monotonic() + 60
    while httpx.get(page).json()["status"] != "finished":
        assert time.monotonic() < deadline, httpx.get(page).json()
        time.sleep(0.05)


def everything(folder: Path, algorithm: str, *models: str) -> None:
    specs = {model: write_spec(folder, algorithm, model) for model in models or TRUST}
    run_in_one_process(specs, algorithm)
    with run_services(folder / "data", free_port(), free_port(), quiet=True) as at:
        published = run_over_http(specs, at)
    (folder / "published.json").write_text(json.dumps(published))
    print(*specs)


if __name__ == "__main__":
    everything(Path(sys.argv[1]), *sys.argv[2:])
