"""Answers of other libraries to a question from standard input; run in the environment of `make interop`."""

import json
import sys
from typing import Any

import jcs
from pyhpke import AEADId, CipherSuite, KDFId, KEMId


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What each library says."""
    if "documents" in question:
        return {"jcs": [jcs.canonicalize(json.loads(document)).decode() for document in question["documents"]]}
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
    key, public, info = (bytes.fromhex(question[name]) for name in ("key", "public", "info"))
    secret, recipient = suite.kem.deserialize_private_key(key), suite.kem.deserialize_public_key(public)

    def seal(message: str) -> str:
        encapsulated, sender = suite.create_sender_context(recipient, info)
        return (encapsulated + sender.seal(bytes.fromhex(message))).hex()

    def open_report(sealed: str) -> str:
        report = bytes.fromhex(sealed)
        return suite.create_recipient_context(report[:32], secret, info).open(report[32:]).hex()

    messages, reports = question["messages"], question["sealed"]
    return {"pyhpke": {"sealed": list(map(seal, messages)), "opened": list(map(open_report, reports))}}


json.dump(answer(json.load(sys.stdin)), sys.stdout)
