"""Connections of a client, its imports, and the end of its process."""

import json
import os
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

import certifi
import msgspec
import pytest

from privateer_client import Client
from privateer_client.async_client import AsyncExchange
from privateer_client.connections import ServiceConnections
from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Silence, Steps
from privateer_core.wire.identity import SIGNED_HEADER
from tests.documents import imports
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec


class Service:
    """A service that counts connections and has a page that never ends."""

    def __init__(self) -> None:
        service = self
        self.connections = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                service.connections += 1
                super().setup()

            def do_GET(self) -> None:
                if self.path == "/drips":
                    self._drip()
                    return
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def _drip(self) -> None:
                try:
                    for letter in b"HTTP/1.1 200 " + b"x" * 100:
                        self.wfile.write(bytes([letter]))
                        time.sleep(0.05)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def ask(self, path: str = "/", timeout: float = 10.0) -> DeliveryRequest:
        return DeliveryRequest("GET", self.url + path, {}, timeout)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.shutdown()
    service.server.server_close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_people_share_a_connection_and_one_person_does_not(service: Service, is_shared: bool) -> None:
    exchange = ServiceConnections()
    if is_shared:
        exchange.keep_open()
    assert {exchange.send(service.ask()).body for _ in range(20)} == {b"ok"}
    assert service.connections == (1 if is_shared else 20)
    exchange.close()


def test_a_participant_of_many_does_not_close_shared_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a participant who closes the shared connections, and a client that leaves them open."""
    closed = list[str]()
    monkeypatch.setattr("privateer_client.transport.HttpExchange.close", lambda _: closed.append("connections"))
    with Client("http://server") as client:
        client.person("a").close()
        assert not closed
    assert closed == ["connections"]


def test_an_answer_without_end_is_broken_off_on_a_connection_that_was_used_before(service: Service) -> None:
    exchange = ServiceConnections()
    exchange.keep_open()
    exchange.send(service.ask())
    began = time.monotonic()
    assert exchange.send(service.ask("/drips", 0.3)).silence is Silence.LATE
    assert time.monotonic() - began < 2.0
    assert service.connections == 1
    assert exchange.send(service.ask()).body == b"ok"
    exchange.close()


def test_a_process_that_forks_leaves_the_connections_to_the_first(service: Service) -> None:
    exchange = ServiceConnections()
    exchange.keep_open()
    exchange.send(service.ask())
    child = os.fork()
    if child == 0:
        late = exchange.send(service.ask("/drips", 0.3)).silence is Silence.LATE  # its watchdogs wake, too
        os._exit(0 if late and exchange.send(service.ask()).body == b"ok" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert exchange.send(service.ask()).body == b"ok"
    assert service.connections == 3  # the child's: one is broken off
    exchange.close()


async def test_an_event_loop_asks_in_threads(service: Service) -> None:
    exchange = AsyncExchange()
    exchange.connections.keep_open()

    def steps() -> Steps[EndpointAnswer | None]:
        return (yield service.ask())

    answers = [await exchange.run(steps()) for _ in range(20)]
    assert {answer and answer.body for answer in answers} == {b"ok"}
    assert service.connections == 1
    await exchange.close()


def test_tls_trusts_the_named_authorities_and_loads_no_httpx(tmp_path: Path) -> None:
    """A context that ignores the environment has more than 100 authorities."""
    end = "-----END CERTIFICATE-----\n"
    (tmp_path / "one.pem").write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    code = """import sys
from privateer_client.connections import _public_authorities
print(len(_public_authorities().get_ca_certs()), "httpx" in sys.modules)"""

    def load(**environment: str) -> list[str]:
        named = {name: text for name, text in os.environ.items() if not name.startswith("SSL_CERT_")} | environment
        return subprocess.check_output([sys.executable, "-c", code], env=named, text=True).split()

    assert int(load()[0]) > 100
    assert load(SSL_CERT_FILE=str(tmp_path / "one.pem"), SSL_CERT_DIR=str(tmp_path)) == ["1", "False"]
    assert load(SSL_CERT_DIR=str(tmp_path)) == ["0", "False"]


N_AT_ONCE: Final = 4
N_PROCESSES: Final = 8
"""Half of the processes that do not wait for their thread abort: all succeed by chance in 1 of 250 runs."""
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


LATE = ("answer", "wire.attestation", "wire.blind_rsa", "wire.token", "store", "serving", "algorithms.")
"""A device loads no results, upload tokens or services of the core, and no algorithm until an experiment names it."""


def test_a_device_imports_the_listed_modules_alone() -> None:
    listed = json.loads(imports.LIST.read_text())
    assert imports.loaded() == listed, "if it has to: python -m tests.documents imports"
    assert listed["packages"] == ["cryptography", "msgspec", "numpy", "pydantic"]
    core = [name.removeprefix("privateer_core.") for name in listed["import"]]
    assert [name for name in core if name.startswith(LATE)] == []
    algorithms = {name for name in listed["first choice"] if name.startswith("privateer_core.algorithms.")}
    assert {name.split(".")[2] for name in algorithms} == {"partition"}
