"""Servers on processors of two kinds share their data: noise that depends on earlier noise goes on at either."""

import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_core.accounting.events import Gaussian
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.wire.publication import decode_publication
from privateer_server.data import open_data
from privateer_server.rounds.open_round import add_stored_sums, restore_without_sums
from tests.integration.test_replica_kills import SERVERS, Pair
from tests.support.postgres import Cluster
from tests.support.processors import old_processor
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import ADMIN, MSGPACK

pytestmark = pytest.mark.postgres
ROUNDS, SIZE = 5, 20
SPEC: dict[str, Any] = {
    "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 42 * SIZE, "round_size": SIZE},
    "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
    "algorithm": {"name": "linear"},
}
"""A norm by BLAS over 42 rounds has other last digits on an old processor."""


def published(client: httpx.Client, url: str, version: int) -> bytes:
    """Return the publication of a version at a server, which hears of it from the other server."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        body = client.get(f"{url}/experiments/test/policy", headers=MSGPACK).content
        if decode_publication(body).round.version == version:
            return body
        time.sleep(0.02)
    raise TimeoutError(f"version {version} is not published")


def noise(shared: Shared) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Noise of earlier releases that the open round has, (steps, coordinates)."""
    data = open_data(shared.settings())
    stored = data.store.experiment("test")
    blank = restore_without_sums(stored.current)
    full = add_stored_sums(blank, data.store.sums("test", ROUNDS + 1), data.keys.find_decryptor(blank.round.public_key))
    data.close()
    return np.asarray(full.total.noise)


def test_two_processors_continue_noise_and_certify_alike(postgres: Cluster, tmp_path: Path) -> None:
    shared = Shared.make(postgres, tmp_path)
    at = Pair(shared, 0.0, {SERVERS[1]: old_processor()})
    try:
        with httpx.Client(auth=Signing(), timeout=30) as client:
            created = client.post(f"{at.private['one']}/experiments", json=SPEC, headers=ADMIN)
            assert created.status_code == 201, created.text
            for version in range(1, ROUNDS + 1):
                url = at.public[SERVERS[version % 2]]
                first = published(client, url, version)
                answer = client.post(f"{url}/reports", content=body_of(first, sealed_reports(first, SIZE)))
                assert answer.json()["accepted"] == SIZE
            for url in at.public.values():
                published(client, url, ROUNDS + 1)
            records = [client.get(f"{url}/experiments/test/privacy").json() for url in at.public.values()]
    finally:
        at.processes.stop()
    assert records[0] == records[1]
    certificate = read_certificates(records[0])[""]
    assert isinstance(certificate.claims[0].event, Gaussian), "one event: every round has the same noise"
    assert noise(shared).shape[0] == ROUNDS
