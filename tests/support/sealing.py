"""Sealed reports for tests, made with the core as a device makes them, from a seed."""

import os
import random
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.policies.gain_policy import decode_policy
from privateer_core.policies.policy import Arms, Points, prefix_ages
from privateer_core.wire.publication import (
    Envelope,
    Header,
    Publication,
    decode_publication,
    digest,
    encode_envelope,
    hpke_info,
    report_header,
    split_bytes,
)
from privateer_lab.simulation.scores import SeededNoise

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def header_for(publication: bytes) -> Header:
    """The header of reports made for an encoded publication."""
    return report_header(decode_publication(publication).round, digest(publication))


def plain_reports(publication: bytes, count: int, seed: int = 0) -> list[bytes]:
    """Randomized messages of ``count`` people with uniform contexts and rewards, unsealed and without id."""
    published = decode_publication(publication)
    spec = parse_spec(msgspec.json.decode(published.spec))
    policy: Any = decode_policy(published.policy, algorithm(spec.algorithm.name).policy)
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, spec.dimension))
    coins = rng.integers(0, 2**32, count, dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    shape = (count,) if isinstance(decisions, Arms) else (count, len(decisions.actions))
    if isinstance(decisions, Points) and spec.rewards > 1:
        shape = (count, spec.rewards)
    contributions = policy.contribute(contexts, coins, decisions, rng.random(shape))
    rows = policy.terms.mechanism.randomize(contributions, SeededNoise(seed))
    reports = split_bytes(rows.tobytes(), policy.terms.mechanism.report_size)
    return prefix_ages(reports, np.zeros(count, np.int64)) if policy.tells_age else reports


def seal(publication: bytes, plaintext: bytes, header: Header | None = None) -> bytes:
    """Anything, sealed as a report of the published round."""
    published: Publication = decode_publication(publication)
    key = X25519PublicKey.from_public_bytes(published.round.public_key)
    return _SUITE.encrypt(plaintext, key, info=hpke_info(header or header_for(publication), published.round.model))


def sealed_reports(publication: bytes, count: int, seed: int = 0) -> list[bytes]:
    """Valid sealed reports of ``count`` people with fresh ids, all messages of a person together."""
    messages = decode_publication(publication).round.messages
    sealed = [seal(publication, os.urandom(16) + message) for message in plain_reports(publication, count, seed)]
    return [b"".join(sealed[start : start + messages]) for start in range(0, len(sealed), messages)]


def permuted(publication: bytes, people: list[bytes], rng: random.Random) -> list[bytes]:
    """Return the participants' messages as a shuffler sends them on: permuted within each kind."""
    facts = decode_publication(publication).round
    size = facts.sealed_size * facts.messages_of_kind
    kinds = [
        [message for person in people for message in split_bytes(split_bytes(person, size)[kind], facts.sealed_size)]
        for kind in range(facts.groups)
    ]
    return [message for kind in kinds for message in rng.sample(kind, len(kind))]


def body_of(publication: bytes, sealed: list[bytes], header: Header | None = None) -> bytes:
    """A request body with these reports."""
    return encode_envelope(Envelope(header or header_for(publication), b"".join(sealed)))
