"""Vectors of signatures, of the public log and of its proofs: what a device accepts, and its name of each lie."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from privateer_core.errors import Untrusted
from privateer_core.wire.identity import verify_signature
from privateer_core.wire.merkle import MerkleTree, is_consistent, is_included
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Entry, Head, Proof, continuation_block, verify_proof
from tests.support.notary import ORIGIN, Notary

_SIZE = 70
_SEED, _OTHER = bytes(range(32)), bytes(range(32, 64))


def files() -> dict[str, Any]:
    """Return the content of the file, by its name."""
    notary = _grow_notary(_SIZE)
    log = {
        "key": notary.key,
        "log": ORIGIN,
        "signatures": _signatures(notary),
        "leaves": [_leaf(entry) for entry in notary.entries[:3]],
        "inclusion": _inclusion(notary),
        "consistency": _consistency(notary),
        "proofs": [_case(*case) for case in _proofs(notary)],
    }
    return {"log": log}


def _entry(place: int, name: str = "test") -> Entry:
    return Entry(name, place + 1, hashlib.sha256(f"{name} {place + 1}".encode()).digest())


def _grow_notary(size: int, seed: bytes = _SEED, origin: str = ORIGIN, first: str = "test") -> Notary:
    notary = Notary(seed, origin)
    for place in range(size):
        notary.enter(_entry(place, "test" if place else first))
    return notary


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except Untrusted as error:
        return error.slug
    return None


def _signatures(notary: Notary) -> list[dict[str, Any]]:
    body, other = b"the bytes of a publication", Notary(_OTHER)
    good = notary.identity.signature_header(digest(body))
    cases: dict[str, tuple[str, list[str]]] = {
        "by the key that is known": (good, [notary.key]),
        "by the first key": (good, []),
        "by one of two keys": (good, [other.key, notary.key]),
        "by another key": (other.identity.signature_header(digest(body)), [notary.key]),
        "of another publication": (notary.identity.signature_header(digest(b"another")), [notary.key]),
        "no signature": ("", []),
        "upper case": (good.upper(), []),
        "cut off": (good[:-2], []),
    }
    entries = []
    for name, (header, known_keys) in cases.items():
        keys = frozenset(map(bytes.fromhex, known_keys))
        refused = _refusal(lambda header=header, keys=keys: verify_signature(header, body, keys))  # type: ignore[misc]
        entries.append({"name": name, "body": body.hex(), "header": header, "known": known_keys, "refused": refused})
    return entries


def _leaf(entry: Entry) -> dict[str, Any]:
    encoded = msgspec.msgpack.encode(entry)
    fields = {"experiment": entry.experiment, "version": entry.version, "digest": entry.digest.hex()}
    return fields | {"entry": encoded.hex(), "leaf": entry.leaf.hex()}


def _inclusion(notary: Notary) -> list[dict[str, Any]]:
    leaves = [entry.leaf for entry in notary.entries]
    tree, entries = MerkleTree(leaves), []
    for index, size in ((0, 1), (0, 2), (6, 7), (3, 8), (69, 70), (31, 64)):
        path, root = tree.inclusion_proof(index, size), tree.root(size)
        for leaf, proof in ((leaves[index], path), (leaves[(index + 1) % 70], path), (leaves[index], [*path, root])):
            holds = is_included(leaf, index, size, proof, root)
            entries.append({"index": index, "size": size, "leaf": leaf.hex(), "root": root.hex(), "path": _hex(proof)})
            entries[-1]["holds"] = holds
    return entries


def _consistency(notary: Notary) -> list[dict[str, Any]]:
    tree, entries = MerkleTree(entry.leaf for entry in notary.entries), []
    for first, second in ((1, 2), (4, 8), (6, 7), (32, 70), (33, 70), (70, 70)):
        path, roots = tree.consistency_proof(first, second), (tree.root(first), tree.root(second))
        for proof, (old, new) in ((path, roots), (path, roots[::-1]), ([*path, roots[0]], roots)):
            entry = {"first": first, "first_root": old.hex(), "second": second, "second_root": new.hex()}
            entries.append(entry | {"path": _hex(proof), "holds": is_consistent(first, old, second, new, proof)})
    return entries


def _hex(hashes: list[bytes]) -> list[str]:
    return [digest.hex() for digest in hashes]


_Case = tuple[str, Notary, int, Proof, Head | None]


def _proofs(notary: Notary) -> list[_Case]:
    forked, other_log = _grow_notary(_SIZE, first="other"), _grow_notary(_SIZE, origin="privateer/log/0000000000000001")
    good, last, early = notary.proof("test", _SIZE), notary.head(50), notary.head(9)

    def lie(**changes: Any) -> Proof:
        return msgspec.structs.replace(good, **changes)

    return [
        ("the first", notary, _SIZE, good, None),
        ("the last head is some leaves back", notary, _SIZE, good, last),
        ("nothing new", notary, _SIZE, good, notary.head()),
        ("the last head is where the leaves begin", notary, _SIZE, good, notary.head(good.start)),
        ("from the last head's block", notary, _SIZE, notary.proof("test", _SIZE, continuation_block(early)), early),
        ("another publication", notary, _SIZE - 1, good, last),
        ("another place", notary, _SIZE, lie(index=3), last),
        ("no path", notary, _SIZE, lie(inclusion=""), last),
        ("a leaf is missing", notary, _SIZE, lie(leaves=good.leaves[4:]), last),
        ("another start", notary, _SIZE, lie(start=1), last),
        ("no subtrees before", notary, _SIZE, lie(peaks=""), last),
        ("another key", notary, _SIZE, _grow_notary(_SIZE, _OTHER).proof("test", _SIZE), last),
        ("a changed size", notary, _SIZE, lie(head=good.head.replace("\n70\n", "\n71\n")), last),
        ("the head went back", notary, 50, _grow_notary(50).proof("test", 50), notary.head()),
        ("another log", notary, _SIZE, other_log.proof("test", _SIZE), last),
        ("a log that was forked before the last head", notary, _SIZE, forked.proof("test", _SIZE), last),
        ("a fork of the same size", notary, _SIZE, forked.proof("test", _SIZE), notary.head()),
    ]  # fmt: skip


def _case(name: str, notary: Notary, version: int, proof: Proof, last: Head | None) -> dict[str, Any]:
    entry, key = _entry(version - 1), notary.identity.public
    return {
        "name": name,
        "entry": _leaf(entry)["entry"],
        "last": last.signed if last else None,
        "proof": msgspec.to_builtins(proof),
        "refused": _refusal(lambda: verify_proof(proof, entry, key, last)),
    }
