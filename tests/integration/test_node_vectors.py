"""All vectors of the wire format, not only the vectors in git: the client in JavaScript agrees with each."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents import wire

pytestmark = pytest.mark.node
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
