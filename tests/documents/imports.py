"""Which of our modules a device loads: at ``import privateer_client``, and until its first choice."""

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


def documents() -> dict[Path, str]:
    """The list."""
    return {LIST: json.dumps(loaded(), indent=1) + "\n"}
