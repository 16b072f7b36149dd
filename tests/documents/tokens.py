"""Vectors of upload tokens: names, challenges, keys, blinding and its end, with randomness that is known."""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from privateer_core.errors import Malformed
from privateer_core.wire import blind_rsa
from privateer_core.wire.token import TYPE, Challenge, PendingToken, authorization, origin_name
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.signing_keys import Signer

_RFC = json.loads(Path("tests/unit/wire/rfc9578.json").read_text())
_KEY = TokenKey(bytes.fromhex(_RFC["pkS"]), 1000, 2000)
_N = _KEY.public.public_numbers().n
_URLS = (
    "https://issuer.example",
    "https://Issuer.Example:443/path",
    "https://issuer.example:8443",
    "http://issuer.example:443",
    "http://127.0.0.1:8001",
    "http://issuer",
    "http://[::1]:8001",
)
_NAMES = (
    ("issuer.example", "origin.example", "spring"),
    ("issuer.example", "origin.example", "spring-2"),
    ("127.0.0.1:8004", "127.0.0.1:8001", "a"),
)

_SEEDS = {
    "any token": 0,
    "a blinded message that begins with 0": 212,
    "an answer that begins with 0": 318,
    "a signature that begins with 0": 630,
}


def files() -> dict[str, Any]:
    """Return the content of the file, by its name."""
    tokens = {
        "names": [{"url": url, "name": origin_name(url)} for url in _URLS],
        "challenges": [_challenge(*names) for names in _NAMES],
        "tokens": [_of_the_rfc(), *_tokens()],
        "answers": [{"name": name, "response": answer.hex()} for name, answer in _wrong_answers()],
        "keys": [_key(*case) for case in _keys()],
        "directories": [_directory(*case) for case in _directories()],
    }
    return {"tokens": tokens}


def _challenge(issuer: str, origin: str, experiment: str) -> dict[str, str]:
    challenge = Challenge(issuer, origin, experiment)
    names = {"issuer": issuer, "origin": origin, "experiment": experiment}
    return names | {"challenge": challenge.encode().hex(), "digest": challenge.digest.hex()}


@cache
def _signer() -> Signer:
    key = load_pem_private_key(bytes.fromhex(_RFC["skS"]), None)
    assert isinstance(key, RSAPrivateKey)
    return Signer.from_private_key(key)


def _of_the_rfc() -> dict[str, str]:
    """The vector of RFC 9578, whose issuer signs as ours does."""
    digest = hashlib.sha256(bytes.fromhex(_RFC["token_challenge"])).digest()
    inverse = pow(int(_RFC["blind"], 16), -1, _N).to_bytes(256)
    vector = _token(_RFC["source"], digest, bytes.fromhex(_RFC["nonce"]), bytes.fromhex(_RFC["salt"]), inverse)
    assert [vector[name] for name in ("request", "response", "token")] == [
        _RFC[f"token_{name}".removesuffix("_token")] for name in ("request", "response", "token")
    ]
    return vector


def _token(name: str, digest: bytes, nonce: bytes, salt: bytes, inverse: bytes) -> dict[str, str]:
    unsigned = TYPE + nonce + digest + _KEY.id
    blinded = blind_rsa.blind(_KEY.public, unsigned, salt=salt, inverse=int.from_bytes(inverse))
    pending = PendingToken.from_blinded(unsigned, _KEY, blinded)
    response = _signer().sign(pending.request[3:])
    token = pending.finish(_KEY, response)
    randomness = {"nonce": nonce.hex(), "salt": salt.hex(), "inverse": inverse.hex()}
    messages = {"request": pending.request.hex(), "response": response.hex(), "token": token.hex()}
    return {"name": name, "digest": digest.hex(), **randomness, **messages, "authorization": authorization(token)}


def _tokens() -> Iterator[dict[str, str]]:
    """Tokens of ours: any, and those of which a number begins with a byte of 0."""
    digest = Challenge(*_NAMES[0]).digest
    for name, number in _SEEDS.items():
        seed = str(number).encode()
        inverse = b"\0" + hashlib.shake_256(b"inverse" + seed).digest(255)
        yield _token(name, digest, hashlib.sha256(seed).digest(), hashlib.sha384(seed).digest(), inverse)


def _wrong_answers() -> Iterator[tuple[str, bytes]]:
    """What an issuer might answer to the first request, and no token comes of."""
    good = bytes.fromhex(_RFC["token_response"])
    yield "nothing", b""
    yield "zero", bytes(256)
    yield "more than the modulus", b"\xff" * 256
    yield "a byte less", good[:-1]
    yield "a byte more", good + b"\0"
    yield "a flipped bit", good[:-1] + bytes([good[-1] ^ 1])


def _keys() -> Iterator[tuple[str, bytes]]:
    encoded = _KEY.encoded
    at = encoded.index(_N.to_bytes(256))
    yield "a key", encoded
    yield "nothing", b""
    yield "a byte less", encoded[:-1]
    yield "a byte more", encoded + b"\0"
    yield "another exponent", encoded[:-1] + b"\x03"
    yield "another algorithm", encoded[:20] + bytes([encoded[20] ^ 1]) + encoded[21:]
    yield "a modulus of 2047 bits", encoded[:at] + bytes([encoded[at] & 127]) + encoded[at + 1 :]


def _key(name: str, encoded: bytes) -> dict[str, Any]:
    try:
        return {"name": name, "key": encoded.hex(), "id": TokenKey(encoded, 0, 1).id.hex()}
    except Malformed:
        return {"name": name, "key": encoded.hex(), "id": None}


def _directories() -> Iterator[tuple[str, bytes]]:
    older, newer = _KEY, TokenKey(_KEY.encoded, 1500, 2500)
    whole = Directory.from_keys("issuer.example", {"spring": [older, newer], "autumn": [older]}).encode()
    yield "two keys, the older first", whole
    yield "no key of the experiment", Directory.from_keys("issuer.example", {"autumn": [older]}).encode()
    yield "a key of another type beside", whole.replace(b'"token-type":2', b'"token-type":1', 1)
    yield "a key that is no base64url", whole.replace(b'"token-key":"', b'"token-key":"+', 1)
    yield "times that are not in order", whole.replace(b'"not-after":2000', b'"not-after":1000', 1)
    yield "a time that is text", whole.replace(b'"not-after":2000', b'"not-after":"2000"', 1)
    yield "no issuer", whole.replace(b'"issuer":', b'"owner":')
    yield "no list of keys", whole.replace(b'"token-keys":', b'"keys":')
    yield "no JSON", whole[:-1]
    yield "a list", b"[]"


def _directory(name: str, body: bytes) -> dict[str, Any]:
    case: dict[str, Any] = {"name": name, "experiment": "spring", "body": body.decode()}
    try:
        read = Directory.decode(body)
        times = [[key.not_before, key.not_after] for key in read.keys("spring")]
    except Malformed:
        return case | {"issuer": None, "keys": None}
    return case | {"issuer": read.issuer, "keys": times}
