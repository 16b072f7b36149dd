"""A page in an operator's browser has its name resolve to the private listener, and reads it as its own site.

Real services are asked as a browser asks them then: at the loopback address, by the name of the page. A page cannot
choose what its browser sends as ``Host``.
"""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.problem import slug_of
from privateer_lab.services.processes import IssuerProcess, Services, free_port, running
from privateer_shuffler.settings import read_settings

EVIL = ["evil.example", "evil.example:8002", "127.0.0.1.evil.example", "localhost.evil.example", "0x7f000001", "127.1"]
NONE = ["", "evil.example@127.0.0.1", "[::1", "127.0.0.1 evil.example", "[evil.example]"]
OWN = ["127.0.0.1", "127.0.0.1:8002", "[::1]:8002", "localhost:8002", "LOCALHOST", "server.localhost", "10.1.2.3:80"]
GIVEN = ["operations.internal", "operations.internal.:8002", "OPERATIONS.internal"]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PRIVATEER_ADMIN_NAMES", "other.internal, operations.internal")
        ports = free_port(), free_port()
        issuing = IssuerProcess("test", free_port())
        with running(tmp_path_factory.mktemp("data"), *ports, quiet=True, issuing=issuing) as at:
            yield at


def ask(url: str, host: str | None, page: str = "/metrics") -> tuple[int, bytes]:
    """The status and the body of an answer to a request by such a name."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    named = "" if host is None else f"Host: {host}\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as to:
        to.sendall(f"GET {page} HTTP/1.1\r\n{named}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: to.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("host", [*EVIL, *NONE, None])
def test_a_rebound_name_reads_nothing(services: Services, host: str | None) -> None:
    pages = [(services.admin, page) for page in ("/metrics", "/", "/dashboard/operator/token.mjs", "/experiments")]
    for url, page in [*pages, (services.shuffler_admin, "/metrics")]:
        status, body = ask(url, host, page)
        assert (status, slug_of(body)) == (421, "host-refused"), (url, page, body[:200])


@pytest.mark.parametrize("host", [*OWN, *GIVEN])
def test_the_operators_own_names_are_answered(services: Services, host: str) -> None:
    for url in (services.admin, services.shuffler_admin):
        assert ask(url, host)[0] == 200


def test_strangers_name_the_public_listener_as_they_like(services: Services) -> None:
    """It has nothing that others may not read, and devices know it by names that the service does not know."""
    for url in (services.server, services.shuffler):
        assert ask(url, "learn.example", "/healthz")[0] == 200


@pytest.mark.parametrize("names", ["server:8002", "http://server", "Server.internal", "a b/c", "*"])
def test_names_that_are_none_are_refused(names: str) -> None:
    with pytest.raises(SpecError, match="is no name of a host") as caught:
        read_settings({"PRIVATEER_ADMIN_NAMES": names})
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_ADMIN_NAMES", True)
