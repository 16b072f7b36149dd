"""What is imported: by a device, until its first choice, and by each command before it runs."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from privateer_core.wire.identity import SIGNED_HEADER
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

LIST: Final = Path("tests/unit/client/device_imports.json")
COMMANDS_LIST: Final = Path("tests/unit/lab/cli/command_imports.json")
_CODE: Final = """
import pickle, sys
import privateer_client
def ours(): return {name for name in sys.modules if name.startswith("privateer_")}
at_import, others = ours(), set(sys.modules)
import httpx
folder = sys.argv[1]
with open(folder + "/answers", "rb") as file:
    body, headers, proof = pickle.load(file)
def answer(request):
    is_proof = request.url.path.endswith("/log/proof")
    return httpx.Response(200, content=proof if is_proof else body, headers={} if is_proof else headers)
client = privateer_client.Client("http://s", ledger=folder + "/x.db", transport=httpx.MockTransport(answer))
session = client.join("test")
session.choose({"x1": 0.3, "x2": 0.9})
assert session.state == "chosen"
import json
large = {"asyncio", "cryptography", "httpx", "msgspec", "numpy", "pydantic", "scipy"}
packages = sorted({name.partition(".")[0] for name in others} & large)
print(json.dumps({"packages": packages, "import": sorted(at_import), "first choice": sorted(ours() - at_import)}))
"""


_COMMANDS_CODE: Final = """
import json, os, sys
from privateer_lab.cli.command_line import COMMANDS, load_command
large = ("fastapi", "httpx", "matplotlib", "numpy", "pandas", "pydantic", "rich", "scipy", "sqlalchemy", "typer")
packages = {}
for name in [name for commands in COMMANDS.values() for name in commands]:
    read, write = os.pipe()
    if not os.fork():
        load_command(name)
        os.write(write, " ".join(package for package in large if package in sys.modules).encode())
        os._exit(0)
    os.close(write)
    packages[name] = os.read(read, 1000).decode()
    os.wait()
print(json.dumps(packages))
"""


def loaded() -> dict[str, list[str]]:
    """Large packages and our modules that the import loads, and those more that the first choice does."""
    notary, body = Notary(), published(make_spec())
    headers = {SIGNED_HEADER: notary.sign(body)}
    proof = msgspec.json.encode(notary.proof("test", 1))
    with TemporaryDirectory() as folder:
        (Path(folder) / "answers").write_bytes(pickle.dumps((body, headers, proof)))
        run = [sys.executable, "-c", _CODE, folder]
        process = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(process.stdout))


def command_packages() -> dict[str, str]:
    """Large packages that each command imports, of processes that have imported the list of commands."""
    process = subprocess.run([sys.executable, "-c", _COMMANDS_CODE], capture_output=True, text=True, check=True)
    return dict(json.loads(process.stdout))


def documents() -> dict[Path, str]:
    """Both lists."""
    lists = {LIST: loaded(), COMMANDS_LIST: command_packages()}
    return {path: json.dumps(content, indent=1) + "\n" for path, content in lists.items()}
