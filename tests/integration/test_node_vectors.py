"""All vectors of the wire format, and not only those in git: the client in JavaScript does what each of them says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents import wire

pytestmark = pytest.mark.node
SDK = Path(__file__).parents[2] / "sdk" / "js"
FILES = ("vectors", "families", "offline", "token-vectors", "hostile")


def test_the_client_in_javascript_meets_all_vectors(tmp_path: Path) -> None:
    made = {name: found for module in wire.MODULES for name, found in module.files().items()}
    people = {name: sum(one["people"] for one in made[name]) for name in ("decisions", "offline")}
    assert min(people.values()) >= 10_000, people
    for path, text in wire.written(made, tmp_path).items():
        path.write_text(text)
    command = shutil.which("node")
    assert command, "Node 20 or newer is missing: install it, or leave out `make sdk`"
    tests = [f"test/{name}.test.js" for name in FILES]
    environment = os.environ | {"PRIVATEER_VECTORS": str(tmp_path)}
    done = subprocess.run(
        [command, "--test", *tests], cwd=SDK, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(made["terms"]) > 100
    assert made["terms"][-1]["name"] in done.stdout
