"""An auditor of a server's transparency log: it checks all entries and heads, and compares heads of other clients."""

import base64
import binascii
from typing import Any, Final

import httpx
import msgspec

from privateer_core.errors import Malformed, ProofInvalid, Unavailable, Untrusted
from privateer_core.wire.identity import SIGNED_HEADER, key_changed_error, parse_public_keys, verify_signature
from privateer_core.wire.merkle import Peaks, is_consistent
from privateer_core.wire.publication import MEDIA_TYPE, decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, check_order, fork_error
from privateer_lab.services.rest import UnboundedResponse, bounded_request

_GONE_STATUSES: Final = frozenset({404, 410})
_REMEDY: Final = "keep the evidence, and ask the server's operator"


class AuditorState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state that an auditor keeps between runs."""

    key: str  # the server's public key, hexadecimal
    head: str  # the last head, as it was signed
    peaks: list[bytes]  # roots of the complete subtrees over its leaves
    versions: dict[str, int]  # the last version of each experiment in the log


class LogFindings(msgspec.Struct, frozen=True):
    """Counts of an audit: log size, new entries, publications read, and publications that are not served."""

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
    """A server's public pages, fetched with one client; errors name ``field``."""

    def __init__(self, url: str, http: httpx.Client, field: str = "URL") -> None:
        self.url, self._http, self._field = url.rstrip("/"), http, field

    def get(self, page: str, **query: Any) -> httpx.Response:
        """Fetch a page; a missing page is returned, too."""
        request: dict[str, Any] = {"params": query, "headers": {"Accept": MEDIA_TYPE}}
        try:
            response = bounded_request("GET", f"{self.url}{page}", http=self._http, **request)
        except UnboundedResponse:
            raise self._unexpected_answer() from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise Unavailable("no answer from the server", field=self._field, remedy="is this its address?") from None
        if response.status_code not in _GONE_STATUSES and not response.is_success:
            raise self._unexpected_answer()
        return response

    def read(self, page: str, **query: Any) -> Any:
        """Fetch the JSON object of a page."""
        try:
            return msgspec.json.decode(self.get(page, **query).content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._unexpected_answer() from None

    def fetch_key(self) -> bytes:
        """Fetch the public key that the server states, which nothing else confirms."""
        keys = parse_public_keys(str(self.read("/log/key").get("key", "")), self._field)
        if len(keys) != 1:
            raise self._unexpected_answer()
        return next(iter(keys))

    def fetch_head(self, key: bytes) -> Head:
        """Fetch the head of the log, and check its signature by this key."""
        return Head.verify(self.fetch_head_text(), key)

    def fetch_head_text(self) -> str:
        """Fetch the signed text of the head of the log."""
        response = self.get("/log/head")
        if response.status_code in _GONE_STATUSES:
            raise self._unexpected_answer()
        return response.text

    def check_consistency(self, first: Head, second: Head) -> None:
        """Check, by the server's proof, that the log of the second head continues the log of the first."""
        hashes = self.read("/log/consistency", first=first.size, second=second.size).get("hashes", [])
        try:
            proof = [base64.b64decode(encoded, validate=True) for encoded in hashes]
        except (TypeError, ValueError, binascii.Error):
            proof = []
        if not is_consistent(first.size, first.root, second.size, second.root, proof):
            raise fork_error()

    def _unexpected_answer(self) -> Unavailable:
        return Unavailable("not the answer of a learning server", field=self._field, remedy="is this its address?")


def audit_log(source: LogSource, key: bytes | None, previous: AuditorState | None) -> tuple[AuditorState, LogFindings]:
    """Check a log's new entries by the given key, else the state's or the server's own; return new state and counts."""
    stored_key = bytes.fromhex(previous.key) if previous else None
    expected_key = key or stored_key or source.fetch_key()
    last_head = Head.verify(previous.head, bytes.fromhex(previous.key)) if previous else None
    try:
        head = source.fetch_head(expected_key)
        check_order(head, last_head)
        return _follow_log(source, expected_key, head, last_head, previous)
    except Untrusted as error:
        head_text = source.fetch_head_text()
        raise LogContradiction(error, {"known": previous.head if previous else None, "head": head_text}) from None


def _follow_log(
    source: LogSource, key: bytes, head: Head, last_head: Head | None, previous: AuditorState | None
) -> tuple[AuditorState, LogFindings]:
    """Read the entries since the last head, refuse another history or publication, and count what is served."""
    peaks = Peaks(last_head.size, previous.peaks) if last_head and previous else Peaks(0, [])
    versions = dict(previous.versions) if previous else {}
    entries = list[Entry]()
    while peaks.size < head.size:
        new_entries = _read_entries(source, peaks.size, head.size)
        for entry in new_entries:
            peaks.add(entry.leaf)
        entries += new_entries
    if peaks.root != head.root:
        if last_head:
            source.check_consistency(last_head, head)
        raise ProofInvalid("the entries of the log are not those of its head", field="entries", remedy=_REMEDY)
    for entry in entries:
        if entry.version <= versions.get(entry.experiment, 0):
            detail = f"the log has another publication of {entry.experiment} at version {entry.version} or later before"
            raise ProofInvalid(detail, field="version", remedy=_REMEDY)
        versions[entry.experiment] = entry.version
    n_served = sum(_is_served(source, entry, key) for entry in entries)
    state = AuditorState(key.hex(), head.signed, peaks.hashes, versions)
    return state, LogFindings(head.size, len(entries), n_served, len(entries) - n_served)


def _read_entries(source: LogSource, start: int, end: int) -> list[Entry]:
    """Fetch entries from `start` on; refuse an answer that has none, too many or malformed ones."""
    rows = source.read("/log/entries", start=start, end=end).get("entries")
    try:
        entries = [Entry(row["experiment"], row["version"], bytes.fromhex(row["digest"])) for row in rows]
    except (TypeError, KeyError, ValueError):
        entries = []
    if not entries or len(entries) > end - start:
        raise ProofInvalid("the server does not list the entries of its log", field="entries", remedy=_REMEDY)
    return entries


def _is_served(source: LogSource, entry: Entry, key: bytes) -> bool:
    """Whether the server serves the publication of an entry, which must be signed and match the entry."""
    response = source.get(f"/experiments/{entry.experiment}/policy/{entry.version}")
    if response.status_code in _GONE_STATUSES:
        return False
    verify_signature(response.headers.get(SIGNED_HEADER, ""), response.content, {key})
    try:
        facts = decode_publication(response.content).round
        served = (facts.experiment, facts.version, digest(response.content))
    except Malformed:
        served = None
    if served != (entry.experiment, entry.version, entry.digest):
        detail = f"version {entry.version} of {entry.experiment} is not the publication in the log"
        raise ProofInvalid(detail, field="digest", remedy=_REMEDY)
    return True


def check_same_log(source: LogSource, state: AuditorState, other: str) -> Head:
    """Check that a head from another client is of the same log, and return it."""
    key = bytes.fromhex(state.key)
    try:
        known_head, other_head = Head.verify(state.head, key), Head.verify(other, key)
        if known_head.origin != other_head.origin:
            raise key_changed_error()
        first, second = sorted((known_head, other_head), key=lambda head: head.size)
        check_order(second, first)
        if first.size and first.size < second.size:
            source.check_consistency(first, second)
    except Untrusted as error:
        raise LogContradiction(error, {"known": state.head, "head": other}) from None
    return other_head
