"""Vectors of shares of votes: what a device sends to two servers, given its randomness."""

import hashlib
import json
from typing import Any, Final

from privateer_core.vdaf.circuits import Circuit, ball, blocks, box, histogram, multihot, simplex
from privateer_core.vdaf.prio3 import NONCE_BYTES, Prio3

CIRCUITS: Final[dict[str, tuple[Circuit, tuple[Any, ...], tuple[tuple[int, ...], ...]]]] = {
    "histogram": (histogram(5), (5,), ((0, 0, 0, 1, 0), (1, 0, 0, 0, 0))),
    "blocks": (blocks((2, 3)), ((2, 3),), ((0, 1, 1, 0, 0), (1, 0, 0, 0, 1))),
    "multihot": (multihot(4, 2), (4, 2), ((0, 0, 0, 0, 0, 0), (1, 0, 0, 1, 1, 1))),
    "box": (box(3, 5), (3, 5), ((0, 0, 0, 1, 1, 1, 1, 0, 0), (1, 0, 1, 0, 1, 0, 0, 0, 1))),
    "simplex": (simplex(2, 3), (2, 3), ((1, 0, 0, 1), (1, 1, 0, 0))),
    "ball": (ball(2, 3, 10), (2, 3, 10), ((1, 0, 0, 1, 0, 1, 0, 0), (1, 1, 0, 1, 1, 1, 1, 1))),
}
"""Circuits, the arguments that make them, and bits of votes."""
ALGORITHM: Final = 0xFFFF0000
CONTEXT: Final = b"privateer test vectors"


def files() -> dict[str, Any]:
    """The file of shares."""
    return {"shares": [vector for kind in CIRCUITS for vector in _vectors(kind)]}


def _vectors(kind: str) -> list[dict[str, Any]]:
    circuit, arguments, votes = CIRCUITS[kind]
    prio3 = Prio3(circuit, ALGORITHM)
    vectors = []
    for number, bits in enumerate(votes):
        stream = hashlib.shake_128(f"{kind} {number}".encode()).digest(NONCE_BYTES + prio3.random_bytes)
        nonce, randomness = stream[:NONCE_BYTES], stream[NONCE_BYTES:]
        shares = prio3.shard(CONTEXT, bits, nonce, randomness)
        vectors.append({
            "circuit": kind,
            "arguments": json.loads(json.dumps(arguments)),
            "algorithm": ALGORITHM,
            "context": CONTEXT.hex(),
            "bits": list(bits),
            "nonce": nonce.hex(),
            "randomness": randomness.hex(),
            "public": shares.public.hex(),
            "leader": shares.inputs[0].hex(),
            "helper": shares.inputs[1].hex(),
        })  # fmt: skip
    return vectors
