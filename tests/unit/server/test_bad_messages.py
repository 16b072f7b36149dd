"""One person's bad messages in a shuffled phase: the round stands, and one person is counted as refused."""

import os
import random
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.verification import Limits
from privateer.wire.batch import SIGNATURE_HEADER, sign_batch
from privateer.wire.envelope import Envelope, encode_envelope, pieces
from privateer_client.phase import Phase
from privateer_client.sealing import Sealer
from tests.support.phased import tables
from tests.support.servers import ADMIN, Api

FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.clients": 20, "privacy.min_batch": 12}
UNLIMITED = float("inf")
LIMITS = Limits(epsilon=UNLIMITED, local_epsilon=UNLIMITED, honest_fraction=1.0, min_batch=1)
BAD: dict[str, Callable[[Phase], bytes]] = {
    "unopenable": lambda phase: os.urandom(phase.round.sealed_size),
    "out-of-range": lambda phase: Sealer(phase.round, phase.header).seal(b"\xff\xff\x01"),
}


@pytest.mark.parametrize("reason", BAD)
async def test_one_persons_bad_messages(api: Api, shuffler_key: Ed25519PrivateKey, reason: str) -> None:
    await api.client.post("/experiments", json=tables(FEW, "shuffle"), headers=ADMIN)
    phase = Phase(await api.publication(), "test", LIMITS)
    good = b"".join(phase.reports(np.zeros((phase.round.batch - 1, len(phase.plays)))))
    messages = pieces(good, phase.round.sealed_size) + [BAD[reason](phase) for _ in range(phase.round.messages)]
    random.Random(3).shuffle(messages)
    body = encode_envelope(Envelope(phase.header, b"".join(messages)))
    answer = await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: sign_batch(body, shuffler_key)})
    assert answer.json() == {"accepted": phase.round.batch - 1, "refused": {reason: 1}, "closed": True}
    facts = await api.facts()
    assert (facts["version"], facts["status"], facts["refused"]) == (2, "open", {reason: 1})
    state = (await api.client.get("/experiments/test/state")).json()["state"]
    assert (state["phase"], state["failed"]) == (1, False)
