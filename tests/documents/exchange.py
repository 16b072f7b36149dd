"""Vectors of the exchange of two servers: keys, contexts, the shares of a report, and the leader's answer."""

import hashlib
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.mechanisms.mechanism import NO_KEY
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedSums, SharedTriples, SharedVotes
from privateer_core.primitives.public_coins import Layout
from privateer_core.vdaf.prio3 import NONCE_BYTES
from privateer_core.wire.publication import Header
from privateer_core.wire.share_keys import derive_sealing_key, derive_verification_key, sealing_public_key
from privateer_core.wire.shares import ShareParty, ShareSeal, share_context

MECHANISMS: Final[dict[str, SharedVotes]] = {
    "shared-sums": SharedSums(Layout.ungrouped(2, 5), 6.0),
    "shared-pairs": SharedPairs(Layout.ungrouped(3, 5), 2.0),
    "shared-triples": SharedTriples(Layout.ungrouped(2, 5), 2.0),
}
_HEADER: Final = Header("test", 4, bytes(range(8)), bytes(range(32)))


def _stream(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


def files() -> dict[str, Any]:
    """The file of the exchange."""
    return {"exchange": [_vector(name, mechanism) for name, mechanism in MECHANISMS.items()]}


def _vector(name: str, mechanism: SharedVotes) -> dict[str, Any]:
    signing_key = Ed25519PrivateKey.from_private_bytes(_stream(f"{name} helper", 32))
    round_key = X25519PrivateKey.from_private_bytes(_stream(f"{name} leader", 32))
    signing_public = signing_key.public_key().public_bytes_raw()
    context, prio3 = share_context(_HEADER.digest), mechanism.prio3
    key = derive_verification_key(round_key, sealing_public_key(signing_public), context)
    nonce, randomness = _stream(f"{name} nonce", NONCE_BYTES), _stream(f"{name} randomness", prio3.random_bytes)
    vote = np.zeros(1, mechanism.message)
    vote["slot"], vote["key"], vote["parts"][0, -1] = 77, 1, mechanism.unit
    (bits,) = mechanism.encode(vote)
    shares = prio3.shard(context, bits, nonce, randomness)
    seal = ShareSeal(_HEADER, "split", nonce, shares.public)
    verified = [
        prio3.verify(key, context, party, nonce, shares.public, share) for party, share in enumerate(shares.inputs)
    ]
    verifiers = [verifier for _, verifier in verified]
    assert int(vote["key"][0]) != NO_KEY
    return {
        "mechanism": name,
        "keys": mechanism.layout.keys,
        "chunk": prio3.circuit.chunk_length,
        "signing_key": _stream(f"{name} helper", 32).hex(),
        "sealing_key": derive_sealing_key(signing_key).private_bytes_raw().hex(),
        "sealing_public_key": sealing_public_key(signing_public).hex(),
        "round_key": round_key.private_bytes_raw().hex(),
        "context": context.hex(),
        "verification_key": key.hex(),
        "vote": vote.tobytes().hex(),
        "bits": bits,
        "nonce": nonce.hex(),
        "randomness": randomness.hex(),
        "public": shares.public.hex(),
        "leader": (vote["slot"].tobytes() + shares.inputs[0]).hex(),
        "helper": shares.inputs[1].hex(),
        "infos": {party.value: seal._info(party).hex() for party in ShareParty},
        "answer": (prio3.encode_verifier(verifiers[0]) + verified[0][0].joint_seed).hex(),
        "joint_seed": prio3.decide(context, verifiers).hex(),
        "sealed_size": mechanism.sealed_size,
    }
