"""Twenty thousand people of a curator, whose server is killed in epochs: none is lost, and no noise is drawn twice."""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from privateer_core.errors import Unavailable
from privateer_core.wire.publication import decode_publication
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services
from tests.integration.test_kills import create
from tests.integration.test_pipeline import facts, services
from tests.support.servers import MSGPACK
from tests.support.sparse import sparse_spec

PEOPLE = 20_000
KILLS = 5


@contextmanager
def readers(at: Services) -> Iterator[dict[int, set[str]]]:
    """Digests of every publication that somebody saw, by version."""
    seen: dict[int, set[str]] = defaultdict(set)
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            try:
                body = httpx.get(f"{at.server}/experiments/test/policy", headers=MSGPACK, timeout=5).content
                seen[decode_publication(body).round.version].add(sha256(body).hexdigest())
            except Exception:  # the server is dead, or gives half an answer
                continue

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@contextmanager
def kills(at: Services, rng: random.Random) -> Iterator[list[str]]:
    """Kill the server some times, seconds apart, so that epochs end in between."""
    killed: list[str] = []
    over = threading.Event()

    def run() -> None:
        while len(killed) < KILLS and not over.wait(rng.uniform(1.0, 5.0)):
            at.processes.kill("server")
            at.processes.start("server")
            killed.append("server")
            with suppress(Unavailable):  # a busy machine takes its time; the devices go on asking
                at.processes.wait("server")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.nightly
def test_kills_in_epochs_lose_no_report_and_draw_no_noise_twice(tmp_path: Path) -> None:
    spec = sparse_spec(context__features=100, experiment__horizon=PEOPLE + 1000).without_people()
    with services(tmp_path) as at:
        create(at, spec)
        with readers(at) as digests_by_version, kills(at, random.Random(5)) as killed:
            result = run_load(
                "test",
                at.server,
                None,
                users=PEOPLE,
                population={"name": "needles"},
                batch=20,
                sender_key=at.sender_key,
            )
        status = facts(at)
    assert len(killed) >= 3
    n_refused = sum(result.refused.values())
    assert result.accepted + n_refused == result.people
    # A sender who is cut off between storing and answer may find the round closed when asking again.
    assert result.accepted <= status["accepted"] <= result.accepted + n_refused
    assert len(digests_by_version) >= 4
    assert {version: len(digests) for version, digests in digests_by_version.items() if len(digests) > 1} == {}
