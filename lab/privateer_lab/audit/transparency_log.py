"""Following a server's public log: every entry and head is checked, and heads that others were shown are compared."""

import base64
import binascii
from typing import Any, Final

import httpx
import msgspec

from privateer_core.errors import Malformed, ProofInvalid, Unavailable, Untrusted
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.identity import SIGNED_HEADER, check_signed, key_changed, read_keys
from privateer_core.wire.merkle import Peaks, consistent
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, check_order, forked

_BYTES_MAX: Final = 64 << 20
_GONE: Final = frozenset({404, 410})
_REMEDY: Final = "keep the evidence, and ask the server's operator"


class AuditorState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state that an auditor keeps between runs."""

    key: str  # the server's public key, hexadecimal
    head: str  # the last head, as it was signed
    peaks: list[bytes]  # roots of the complete subtrees over its leaves
    versions: dict[str, int]  # the last version of each experiment in the log


class LogFindings(msgspec.Struct, frozen=True):
    """Counts of an audit: entries that are new, publications that were read, and those that are not served."""

    size: int
    entries: int
    read: int
    unserved: int


class LogContradiction(Exception):
    """Evidence that a server contradicts itself."""

    def __init__(self, cause: Untrusted, evidence: dict[str, Any]) -> None:
        super().__init__(str(cause))
        self.cause, self.evidence = cause, {"problem": cause.slug, "detail": cause.detail, **evidence}


class LogSource:
    """A server's public pages.

    url: its address.
    http: how to reach it.
    field: what errors call the address.
    """

    def __init__(self, url: str, http: httpx.Client, field: str = "URL") -> None:
        self.url, self._http, self._field = url.rstrip("/"), http, field

    def get(self, page: str, **asked: Any) -> httpx.Response:
        """Return the answer of a page, whatever it is."""
        headers = {"accept": MEDIA_TYPE}
        try:
            with self._http.stream("GET", f"{self.url}{page}", params=asked, headers=headers) as answer:
                response = _read(answer)
        except (httpx.HTTPError, httpx.InvalidURL):
            raise Unavailable("no answer from the server", field=self._field, remedy="is this its address?") from None
        if response is None or (response.status_code not in _GONE and not response.is_success):
            raise self._other()
        return response

    def read(self, page: str, **asked: Any) -> Any:
        """Return a page's JSON."""
        try:
            return msgspec.json.decode(self.get(page, **asked).content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._other() from None

    def key(self) -> bytes:
        """Return the key that the server names; nobody else vouches for it."""
        named = read_keys(str(self.read("/log/key").get("key", "")), self._field)
        if len(named) != 1:
            raise self._other()
        return next(iter(named))

    def head(self, key: bytes) -> Head:
        """Return the head of the log, which this key has signed."""
        return Head.open(self.shown(), key)

    def shown(self) -> str:
        """Return what the server shows as the head of its log."""
        response = self.get("/log/head")
        if response.status_code in _GONE:
            raise self._other()
        return response.text

    def consistency(self, first: int, second: int) -> list[bytes]:
        """Return what the server gives as the proof that its log of one size begins with that of another."""
        hashes = self.read("/log/consistency", first=first, second=second).get("hashes", [])
        try:
            return [base64.b64decode(one, validate=True) for one in hashes]
        except (TypeError, ValueError, binascii.Error):
            return []

    def _other(self) -> Unavailable:
        return Unavailable("not the answer of a learning server", field=self._field, remedy="is this its address?")


def audit(source: LogSource, key: bytes | None, before: AuditorState | None) -> tuple[AuditorState, LogFindings]:
    """Check all that is new in a log, and return what to keep.

    key: the key that the server must have; None: that of the state, or the one that it names.
    """
    known = bytes.fromhex(before.key) if before else None
    pinned = key or known or source.key()
    last = Head.open(before.head, bytes.fromhex(before.key)) if before else None
    try:
        head = source.head(pinned)
        check_order(head, last)
        return _followed(source, pinned, head, last, before)
    except Untrusted as error:
        shown = source.shown()
        raise LogContradiction(error, {"known": before.head if before else None, "head": shown}) from None


def _followed(
    source: LogSource, key: bytes, head: Head, last: Head | None, before: AuditorState | None
) -> tuple[AuditorState, LogFindings]:
    peaks = Peaks(last.size, before.peaks) if last and before else Peaks(0, [])
    versions = dict(before.versions) if before else {}
    entries = list[Entry]()
    while peaks.size < head.size:
        new = _entries(source, peaks.size, head.size)
        for entry in new:
            peaks.add(entry.leaf)
        entries += new
    if peaks.root != head.root:
        if last and not consistent(
            last.size, last.root, head.size, head.root, source.consistency(last.size, head.size)
        ):
            raise forked()
        raise ProofInvalid("the entries of the log are not those of its head", field="entries", remedy=_REMEDY)
    for entry in entries:
        _check_version(entry, versions)
    read = sum(_is_served(source, entry, key) for entry in entries)
    state = AuditorState(key.hex(), head.signed, peaks.hashes, versions)
    return state, LogFindings(head.size, len(entries), read, len(entries) - read)


def _entries(source: LogSource, start: int, end: int) -> list[Entry]:
    listed = source.read("/log/entries", start=start, end=end).get("entries")
    try:
        found = [Entry(one["experiment"], one["version"], bytes.fromhex(one["digest"])) for one in listed]
    except (TypeError, KeyError, ValueError):
        found = []
    if not found or len(found) > end - start:
        raise ProofInvalid("the server does not list the entries of its log", field="entries", remedy=_REMEDY)
    return found


def _check_version(entry: Entry, versions: dict[str, int]) -> None:
    """Refuse a second publication of a version, or an older version after a newer one."""
    if entry.version <= versions.get(entry.experiment, 0):
        detail = f"the log has another publication of {entry.experiment} at version {entry.version} or later before"
        raise ProofInvalid(detail, field="version", remedy=_REMEDY)
    versions[entry.experiment] = entry.version


def _is_served(source: LogSource, entry: Entry, key: bytes) -> bool:
    """Whether the server serves a publication, which must be the one in the log, and signed."""
    response = source.get(f"/experiments/{entry.experiment}/policy/{entry.version}")
    if response.status_code in _GONE:
        return False
    check_signed(response.headers.get(SIGNED_HEADER, ""), response.content, {key})
    try:
        facts = decode_publication(response.content).round
    except Malformed:
        facts = None
    if facts is None or (facts.experiment, facts.version, digest(response.content)) != (
        entry.experiment,
        entry.version,
        entry.digest,
    ):
        detail = f"version {entry.version} of {entry.experiment} is not the publication in the log"
        raise ProofInvalid(detail, field="digest", remedy=_REMEDY)
    return True


def compare(source: LogSource, state: AuditorState, other: str) -> Head:
    """Check that a head that somebody else was shown is of the same log, and return it."""
    key = bytes.fromhex(state.key)
    try:
        own, theirs = Head.open(state.head, key), Head.open(other, key)
        if own.origin != theirs.origin:
            raise key_changed()
        first, second = sorted((own, theirs), key=lambda head: head.size)
        check_order(second, first)
        if first.size and first.size < second.size:
            proof = source.consistency(first.size, second.size)
            if not consistent(first.size, first.root, second.size, second.root, proof):
                raise forked()
    except Untrusted as error:
        raise LogContradiction(error, {"known": state.head, "head": other}) from None
    return theirs


def _read(answer: httpx.Response) -> httpx.Response | None:
    """Return a whole answer, or None: one that does not end is not read to its end."""
    body = bytearray()
    for chunk in answer.iter_bytes():
        body += chunk
        if len(body) > _BYTES_MAX:
            return None
    kept = {name: answer.headers[name] for name in (SIGNED_HEADER, "content-type") if name in answer.headers}
    return httpx.Response(answer.status_code, headers=kept, content=bytes(body))
