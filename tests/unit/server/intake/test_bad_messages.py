"""Bad messages of one participant in a shuffled round: the round stands, and one participant is refused."""

import os
import random
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from tests.support.phased import tables
from tests.support.sealing import body_of, permuted, seal, sealed_reports
from tests.support.servers import ADMIN, Api

FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "privacy.min_batch": 12}
BAD: dict[str, Callable[[bytes], bytes]] = {
    "decryption-failed": lambda publication: os.urandom(decode_publication(publication).round.sealed_size),
    "out-of-range": lambda publication: seal(publication, os.urandom(16) + b"\xff\xff\x01"),
}


@pytest.mark.parametrize("reason", BAD)
async def test_bad_messages_are_one_refusal(api: Api, shuffler_key: Ed25519PrivateKey, reason: str) -> None:
    await api.client.post("/experiments", json=tables(FEW, "shuffle"), headers=ADMIN)
    publication = await api.publication()
    first_round = decode_publication(publication).round
    bad = b"".join(BAD[reason](publication) for _ in range(first_round.messages))
    messages = permuted(publication, [*sealed_reports(publication, first_round.batch_size - 1), bad], random.Random(3))
    body = body_of(publication, messages)
    answer = await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)})
    assert answer.json() == {"accepted": first_round.batch_size - 1, "refused": {reason: 1}, "closed": True}
    facts = await api.facts()
    assert (facts["version"], facts["status"], facts["refused"]) == (2, "open", {reason: 1})
    state = (await api.client.get("/experiments/test/state")).json()["answer"]
    assert (state["rounds"], state["stage"]) == (1, "learning")
