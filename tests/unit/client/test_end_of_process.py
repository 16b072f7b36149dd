"""A process may end while a client is still joining: it ends at once, and as a process that succeeded."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec
import pytest

from privateer_core.wire.identity import SIGNED_HEADER
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

N_AT_ONCE: Final = 4
N_PROCESSES: Final = 8
"""Of processes that do not wait for their thread half abort or more: all succeed by chance in 1 of 250 runs."""
_PROGRAM: Final = """
import sys
from privateer_client import Client
client = Client(sys.argv[1], ledger=sys.argv[2])
arm = client.arm("test", {"x1": 0.3, "x2": 0.9}, default="a", within=float(sys.argv[3]))
"""


@contextmanager
def slow_server(seconds: float) -> Iterator[str]:
    """A learning server with slow responses."""
    notary, body = Notary(), published(make_spec())
    header, proof = notary.sign(body), msgspec.json.encode(notary.proof("test", 1))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            is_proof = self.path.partition("?")[0].endswith("/log/proof")
            content = proof if is_proof else body
            time.sleep(0 if is_proof else seconds)
            self.send_response(200)
            if not is_proof:
                self.send_header(SIGNED_HEADER, header)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(OSError):  # the device has gone
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# The answer comes when the process has just given up: its thread then verifies signatures in native code.
@pytest.mark.parametrize(("seconds", "within"), [(0.15, 0.3), (20.0, 0.1)], ids=["late", "hanging"])
def test_a_process_that_ends_while_it_joins_succeeds(tmp_path: Path, seconds: float, within: float) -> None:
    with slow_server(seconds) as url:
        began = time.monotonic()
        commands = [
            [sys.executable, "-c", _PROGRAM, url, str(tmp_path / f"{number}.db"), str(within)]
            for number in range(N_PROCESSES)
        ]
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            endings = list(pool.map(partial(subprocess.run, stderr=subprocess.PIPE, timeout=60), commands))
    assert [ending.returncode for ending in endings] == [0] * N_PROCESSES, endings[0].stderr
    assert time.monotonic() - began < 20 or seconds < 1  # nobody waits for the answer of a server that hangs
