"""Reports that are sealed ahead, so that a benchmark measures those who take them and not those who make them."""

import time
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, encode_envelope
from privateer_lab.load.driver import LIMITS
from privateer_lab.services.demo import demo_spec


class Sealed(NamedTuple):
    """What people of one round send.

    Attributes
    ----------
    bodies
        The bodies of their uploads.
    requests
        Whole HTTP requests with these bodies.
    seconds
        Processor time that it took to decide, randomize and seal, of all people.
    """

    bodies: list[bytes]
    requests: list[bytes]
    seconds: float


def bench_spec(name: str, endpoint: str, people: int, rounds: int = 2) -> Spec:
    """Return the spec of an experiment with rounds of so many people, whose devices randomize and report there."""
    spec = demo_spec(rounds * people, name=name, round_size=people, round_growth=0.0)
    trust = next(one for one in TRUST.values() if one.endpoint == endpoint and not one.curated)
    changes = {"model": trust.name, "delta": spec.privacy.delta if trust.batched else 0.0}
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update=changes)})


def seal_round(publication: bytes, name: str, people: int, batch: int, key: Ed25519PrivateKey) -> Sealed:
    """Make the uploads of people who answer the round of a publication, ``batch`` people's reports in each."""
    part = Participation(publication, name, LIMITS)
    started = time.process_time()
    reports = _reports(part, people)
    seconds = time.process_time() - started
    path = "/reports" if part.round.endpoint == "server" else f"/experiments/{name}/reports"
    bodies = [
        encode_envelope(Envelope(part.header, b"".join(reports[start : start + batch])))
        for start in range(0, people, batch)
    ]
    requests = [_request(path, one, key if batch > 1 else None) for one in bodies]
    return Sealed(bodies, requests, seconds)


def _reports(part: Participation, people: int) -> list[bytes]:
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((people, len(part.spec.features))), part.coins(people)
    decisions = part.decide(contexts, coins)
    return part.reports(contexts, coins, decisions, rng.random(people))


def _request(path: str, body: bytes, key: Ed25519PrivateKey | None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}"]
    if key is not None:
        lines.append(f"{UPLOAD.header}: {UPLOAD.sign(body, key)}")
    return "\r\n".join([*lines, "", ""]).encode() + body
