"""Decoders of bytes from strangers, each with valid examples, a reader, and the encoding of what it read."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.algorithms import algorithm, parse_spec, read_spec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import decode_answer, encode_answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.export import read_export
from privateer_core.answer.facts import Table
from privateer_core.codec import decode, encode
from privateer_core.errors import NotFound
from privateer_core.wire.attestation import attest, verify_attestation
from privateer_core.wire.batch import BATCH, UPLOAD, decode_batch, sign_claim, verify_claim
from privateer_core.wire.identity import Identity, parse_public_keys, verify_signature
from privateer_core.wire.keys import TrustedKeys, load_or_create_key, read_signing_key, signing_key_id
from privateer_core.wire.problem import problem_body, read_slug
from privateer_core.wire.publication import (
    decode_envelope,
    decode_publication,
    digest,
    encode_envelope,
    encode_publication,
)
from privateer_core.wire.token import REQUEST_SIZE, TYPE, authorization, parse_token_request, read_authorization
from privateer_core.wire.token_keys import Directory, base64url, unbase64url
from privateer_core.wire.transparency_log import Head, check_start, read_proof, verify_proof
from privateer_lab.cli.input_files import read_document
from privateer_lab.toml_file import read_tables
from privateer_server.store.backup import restore
from privateer_server.store.schema import STORE_FILE
from privateer_server.store.schema import STORE_KIND as DATABASE
from tests.documents import exports, vectors
from tests.documents.logs import _entry, _grow_notary
from tests.support import issuing
from tests.support.sealing import body_of, sealed_reports
from tests.support.stores import embedded_store

_KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
_KEYS = {signing_key_id(_KEY.public_key()): _KEY.public_key()}
_NOW, _NAME, _SECRET = 1_000_000.0, "test", b"x" * 32


@dataclass(frozen=True)
class Decoder:
    """What reads bytes of strangers.

    Attributes
    ----------
    valid
        Makes examples that it takes.
    read
        Reads, and returns what was read as it is written; raises a `PrivateerError` or nothing.
    costly
        How many times fewer examples it is given.
    """

    valid: Callable[[], list[bytes]]
    read: Callable[[bytes], bytes]
    costly: int = 1


@cache
def _cases() -> list[tuple[Any, bytes]]:
    return [(spec, body) for _, spec, body in vectors.cases()]


@cache
def _publications() -> list[bytes]:
    return [body for _, body in _cases()]


@cache
def _bodies() -> list[bytes]:
    return [
        body_of(publication, sealed_reports(publication, people))
        for publication in _publications()[:2]
        for people in (1, 3)
    ]


def _policies(place: int) -> Decoder:
    spec, body = _cases()[place]
    kind = algorithm(spec.algorithm.name).policy

    def read(policy_body: bytes) -> bytes:
        policy = decode(policy_body, kind)
        encoded = encode(policy)
        policy.check(spec)
        return encoded

    return Decoder(lambda: [decode_publication(body).policy], read)


def _follow_publication(body: bytes) -> bytes:
    """Check a publication as a device does before it decides for a participant."""
    published = decode_publication(body)
    Participation(body, published.round.experiment, vectors.LIMITS)
    return encode_publication(published)


def _spec(body: bytes) -> bytes:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return parse_spec(data).model_dump_json().encode() if isinstance(data, dict) else b""


def _text(body: bytes) -> str:
    """Return the bytes as the text of a header, one character for each byte."""
    return body.decode("latin-1")


@contextmanager
def _file(body: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / name
        path.write_bytes(body)
        yield path


def _key_file(body: bytes) -> bytes:
    with _file(body, "one.key") as path:
        return read_signing_key(path, "FIELD").private_bytes_raw().hex().encode()


def _trusted(body: bytes) -> bytes:
    with _file(body, "one.pub") as path:
        return " ".join(key.public_bytes_raw().hex() for key in TrustedKeys([path]).by_id().values()).encode()


def _tables(body: bytes) -> bytes:
    with _file(body, "spec.toml") as path:
        return msgspec.json.encode(read_tables(path, [], "SPEC"))


def _document(body: bytes) -> bytes:
    with _file(body, "one.json") as path:
        return msgspec.json.encode(read_export(read_document(path), "FILE"))


def _backup(body: bytes) -> bytes:
    with _file(body, STORE_FILE) as path:
        restore(path, path.parent / "new", DATABASE)
        return b"" if body == b"" else (path.parent / "new" / STORE_FILE).read_bytes()


def _backups() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        store = embedded_store(Path(folder))
        try:
            with store.backup() as copy:
                return [copy.read()]
        finally:
            store.close()


def _proof(body: bytes) -> bytes:
    proof, key = read_proof(body), bytes.fromhex(_notary().key)
    check_start(proof, key)
    verify_proof(proof, _entry(39), key, _head(40))
    return msgspec.json.encode(proof)


@cache
def _notary() -> Any:
    return _grow_notary(70)


@cache
def _head(size: int) -> Head:
    return _grow_notary(size).head()


def _heads() -> list[bytes]:
    return [_notary().head().signed.encode()]


def _signed_head(body: bytes) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b""
    return Head.verify(text, bytes.fromhex(_notary().key)).signed.encode()


def _directory(body: bytes) -> bytes:
    directory = Directory.decode(body)
    for name in directory.experiments:
        directory.keys(name)
    return directory.encode()


def _signature(body: bytes) -> bytes:
    BATCH.verify(_text(body), _KEYS, _NOW)
    return body


def _upload(body: bytes) -> bytes:
    UPLOAD.verify(_text(body), _KEYS, _NOW)
    return body


def _claim(body: bytes) -> bytes:
    verify_claim(_NAME, _text(body), _KEYS, _NOW)
    return body


def _signed(body: bytes) -> bytes:
    verify_signature(_text(body), b"body", [])
    return body


def _attestation(body: bytes) -> bytes:
    verify_attestation(_text(body), _NAME, [_SECRET], _NOW)
    return body


def _request(body: bytes) -> bytes:
    last, blinded = parse_token_request(body)
    return TYPE + bytes([last]) + blinded


def _slug(body: bytes) -> bytes:
    read_slug(body)
    return b""


def _plain_toml(body: bytes) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b""
    return read_spec(text).model_dump_json().encode()


def _tomls() -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(__file__).parents[2].glob("examples/*.toml"))]


def _results() -> list[bytes]:
    estimates = Estimate("short", 0.5, 0.25, 1.0), Estimate("long", 0.0, -1.0, 0.0)
    table = Table.of("Sources", {"name": "words", "people": "count"}, (("one", 3.0), ("two", 4.0)))
    return [
        encode_answer(Answer("ended", 10, 2, 0.95, "short", estimates=estimates)),
        encode_answer(Answer("learning", None, None, 0.5, parts=(table,))),
    ]


def _key_pair() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        load_or_create_key(Path(folder) / "key", "FIELD")
        return [(Path(folder) / "key").read_bytes()]


def _read_keys(body: bytes) -> bytes:
    return ",".join(sorted(key.hex() for key in parse_public_keys(_text(body), "FIELD"))).encode()


_PUBLIC = _KEY.public_key().public_bytes_raw().hex()
DECODERS: dict[str, Decoder] = {
    "envelope": Decoder(_bodies, lambda body: encode_envelope(decode_envelope(body))),
    "batch": Decoder(_bodies, lambda body: encode_envelope(decode_batch(body))),
    "publication": Decoder(_publications, lambda body: encode_publication(decode_publication(body))),
    "publication that a device follows": Decoder(_publications, _follow_publication, 4),
    **{f"policy {place}": _policies(place) for place in range(10)},
    "spec in JSON": Decoder(lambda: [decode_publication(publication).spec for publication in _publications()], _spec),
    "spec in TOML": Decoder(_tomls, _plain_toml, 4),
    "file of a spec": Decoder(_tomls, _tables, 4),
    "result": Decoder(_results, lambda body: encode_answer(decode_answer(body))),
    "token": Decoder(
        lambda: [authorization(issuing.minted()).encode()],
        lambda body: authorization(TYPE + b"".join(read_authorization(body))).encode(),
    ),
    "request for a token": Decoder(lambda: [TYPE + bytes(REQUEST_SIZE - 2)], _request),
    "directory of token keys": Decoder(
        lambda: [Directory.from_keys("issuer", {"one": [issuing.key()], "two": [issuing.key(1)]}).encode()], _directory
    ),
    "file of a private key": Decoder(_key_pair, _key_file, 4),
    "file of public keys": Decoder(lambda: [f"{_PUBLIC}\n{'0' * 64}\n".encode()], _trusted, 4),
    "public keys of a server": Decoder(lambda: [f"{_PUBLIC}, {'0' * 64}".encode()], _read_keys),
    "export": Decoder(
        lambda: [
            msgspec.json.encode(exports.decode_export(exports.build_export(*_cases()[place]))) for place in (0, 4)
        ],
        _document,
        8,
    ),
    "backup": Decoder(_backups, _backup, 40),
    "head of the log": Decoder(_heads, _signed_head),
    "proof": Decoder(lambda: [msgspec.json.encode(_notary().proof("test", 40))], _proof),
    "signature of a batch": Decoder(lambda: [BATCH.sign(b"body", _KEY, _NOW).encode()], _signature),
    "signature of an upload": Decoder(lambda: [UPLOAD.sign(b"body", _KEY, _NOW).encode()], _upload),
    "claim": Decoder(lambda: [sign_claim(_NAME, _KEY, _NOW).encode()], _claim),
    "signature of a publication": Decoder(lambda: [Identity(_KEY).signature_header(digest(b"body")).encode()], _signed),
    "attestation": Decoder(lambda: [attest(_SECRET, _NAME, "me", int(_NOW) + 60).encode()], _attestation),
    "base64url": Decoder(
        lambda: [base64url(b"some bytes").encode()], lambda body: base64url(unbase64url(body)).encode()
    ),
    "problem": Decoder(lambda: [problem_body(NotFound("no"))], _slug),
}
