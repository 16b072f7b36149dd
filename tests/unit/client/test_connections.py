"""Connections are new for each request of a single participant, shared among many participants, and time out."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import certifi
import pytest

from privateer_client import Client
from privateer_client.async_client import AsyncExchange
from privateer_client.connections import ServiceConnections
from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Silence, Steps


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
