"""An attack by anonymous uploads on a shuffler of one core: people with tokens hardly wait, and nothing is opened."""

import http.client
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from privateer_core.wire.token import Challenge, PendingToken, authorization, server_name
from privateer_core.wire.token_keys import Directory
from privateer_lab.services.processes import IssuerProcess, Services, free_port, running
from tests.attacks.endpoints import SHUFFLED, SLOWER
from tests.integration.test_pipeline import create, held
from tests.support.floods import Flood
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK
from tests.support.specs import make_spec

PEOPLE = 100
"""Honest people whose median is taken."""
ROUNDS = 4
CONNECTIONS = 128
LEAST = 2
"""Uploads of an attack for each that one person could send in the same time, however busy the machine is."""
PATH = "/experiments/test/reports"


@dataclass
class Gated:
    """Services that take reports with tokens alone, the shuffler on one core, and people with tokens."""

    at: Services
    tokens: list[bytes]
    bodies: list[bytes]

    def person(self) -> float:
        """Seconds that one honest person waits."""
        where, token, body = urlsplit(self.at.shuffler), self.tokens.pop(), self.bodies.pop()
        started = time.perf_counter()
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
        connection.request("POST", PATH, body, {"Authorization": authorization(token)})
        assert connection.getresponse().status == 202
        connection.close()
        return time.perf_counter() - started

    def median(self) -> float:
        return statistics.median(self.person() for _ in range(PEOPLE))

    def cpu(self) -> float:
        """Seconds of processor time of the shuffler."""
        fields = Path(f"/proc/{self.at.processes.pid('shuffler')}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def gated(folder: Path) -> Iterator[Gated]:
    with running(folder, free_port(), free_port(), quiet=True, issuing=IssuerProcess("test", free_port())) as at:
        create(at, make_spec(SHUFFLED))
        publication = httpx.get(f"{at.server}/experiments/test/policy", headers=MSGPACK).content
        page = httpx.get(f"{at.shuffler}/experiments/test/token-keys").content
        key, people = Directory.decode(page).keys("test")[0], 3 * ROUNDS * PEOPLE
        challenge = Challenge(server_name(at.issuer), server_name(at.shuffler), "test")
        with httpx.Client() as http_client:

            def token() -> bytes:
                pending = PendingToken.draw(challenge, key)
                answer = http_client.post(f"{at.issuer}/experiments/test/tokens", content=pending.request)
                return pending.finish(key, answer.content)

            tokens = [token() for _ in range(people)]
        bodies = [body_of(publication, [sealed]) for sealed in sealed_reports(publication, people)]
        os.sched_setaffinity(at.processes.pid("shuffler"), {min(os.sched_getaffinity(0))})
        yield Gated(at, tokens, bodies)


def anonymous(services: Gated) -> str:
    return ""


def forged(services: Gated) -> str:
    """The header of a token with a nonce that nobody signed."""
    token = services.tokens[0]
    return f"Authorization: {authorization(token[:2] + bytes(32) + token[34:])}\r\n"


@pytest.mark.nightly
@pytest.mark.parametrize("header", [anonymous, forged])
def test_people_with_tokens_hardly_wait(tmp_path: Path, header: Callable[[Gated], str]) -> None:
    with gated(tmp_path) as services:
        body = services.bodies[0]
        more = f"Host: here\r\nContent-Length: {len(body)}\r\n{header(services)}\r\n"
        request = f"POST {PATH} HTTP/1.1\r\n{more}".encode() + body
        services.median()  # the first people find everything cold
        figures = []
        for _ in range(ROUNDS - 1):
            quiet = services.median()
            flood = Flood(services.at.shuffler, request, CONNECTIONS)
            time.sleep(0.5)
            cpu, started = services.cpu(), time.perf_counter()
            attacked = services.median()
            share = (services.cpu() - cpu) / (time.perf_counter() - started)
            flood.end()
            figures.append((attacked / max(quiet, services.median()), quiet, attacked, flood.rate, share))
            times, quiet, attacked, rate, share = figures[-1]
            print(
                f"{header.__name__}: {rate:,.0f} uploads/s, {share:.0%} of the core; "
                f"people wait {1e3 * attacked:.2f} ms, else {1e3 * quiet:.2f} ms: {times:.2f} times as long"
            )
            if times < SLOWER:
                break
        # A busy machine slows people down now and then; the service would do so every time.
        assert min(figures)[0] < SLOWER
        assert max(rate * quiet for _, quiet, _, rate, _ in figures) > LEAST
        assert "privateer_shuffler_storing 1.0" in httpx.get(f"{services.at.shuffler_admin}/metrics").text
        people = 3 * ROUNDS * PEOPLE - len(services.tokens)
    assert held(tmp_path / "shuffler") == people  # and nothing else, so that nothing else is ever opened
