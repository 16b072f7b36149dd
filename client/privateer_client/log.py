"""Checks that a server has a single key and a single append-only log."""

import json
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlencode

from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Steps
from privateer_client.ledger.known_servers import KnownServer, Servers, find_contradiction
from privateer_core.errors import InputError, LogRollback, Unavailable, Untrusted
from privateer_core.wire.identity import key_changed_error, verify_signature
from privateer_core.wire.transparency_log import (
    PROOF_BYTES_MAX,
    Entry,
    Head,
    Proof,
    check_order,
    check_start,
    continuation_block,
    is_after_head,
    read_proof,
    verify_proof,
)

_TRIES_MAX: Final = 3
"""Number of fetches of a proof: by default, from the last head's block, and again if another process was faster."""
_OK: Final = 200


class Witness:
    """A witness of a server: it verifies signatures, and that publications are in the log, which is append-only.

    server: the address of the server.
    pinned: the keys that the application names; empty: the first key that the device sees is pinned.
    servers: the known servers of the device.
    """

    def __init__(self, server: str, pinned: frozenset[bytes], servers: Servers) -> None:
        self._server, self._pinned_keys, self._servers = server, pinned, servers

    def verify_signer(self, answer: EndpointAnswer) -> bytes:
        """Verify the signature of the publication in an answer, and return the key."""
        server = self._servers.get(self._server)
        known_keys = {server.key} if server else set[bytes]()
        return verify_signature(answer.signed, answer.body, self._pinned_keys or known_keys)

    @property
    def saw_rollback(self) -> bool:
        """Whether the evidence against the server is only a rollback of its log."""
        evidence = self._servers.evidence(self._server)
        return evidence is not None and find_contradiction(evidence) is LogRollback

    def mark_rollback_answered(self) -> None:
        """Mark the evidence of a rollback as answered."""
        self._servers.mark_rollback_answered(self._server)

    def verify_logged(self, entry: Entry, answer: EndpointAnswer, timeout: float) -> Steps[None]:
        """Fetch and verify the proof that a publication is in the log, and store the new head."""
        key, block = bytes.fromhex(answer.signed.partition(".")[0]), None
        for attempt in range(1, _TRIES_MAX + 1):
            proof_answer = yield self._make_proof_request(entry, block, timeout)
            if proof_answer is None or proof_answer.status != _OK:
                raise Unavailable("the server did not prove what it published", remedy="try again later")
            try:
                proof = read_proof(proof_answer.body)
                server = self._servers.get(self._server)
                last = self._last_head(server, key, proof)
                if last is None and server is not None and self.saw_rollback:
                    raise key_changed_error()  # another log does not answer for one that went back
                if block is None:
                    check_start(proof, key)
                if is_after_head(proof, last) and attempt < _TRIES_MAX:
                    assert last is not None, "there is nothing before the first head"
                    check_order(Head.verify(proof.head, key), last)
                    block = continuation_block(last)
                    continue
                self._servers.change(self._server, partial(self._next_server, key=key, proof=proof, entry=entry))
                return
            except LogRollback as error:
                # Another process of this device may have fetched its proof after this one.
                if attempt == _TRIES_MAX:
                    self._store_evidence(error, entry, answer, proof_answer)
                    raise
            except Untrusted as error:
                self._store_evidence(error, entry, answer, proof_answer)
                raise

    def _next_server(self, server: KnownServer | None, key: bytes, proof: Proof, entry: Entry) -> KnownServer:
        return KnownServer(key, verify_proof(proof, entry, key, self._last_head(server, key, proof)).signed)

    def _last_head(self, server: KnownServer | None, key: bytes, proof: Proof) -> Head | None:
        """Return the last head, which a proof must continue; None if there is no such head."""
        if server is None:
            return None
        last = Head.verify(server.head, server.key)
        if server.key == key:
            return last
        if not self._pinned_keys:
            raise key_changed_error()
        # The application names the new key, whose log may be new, or must continue the same log.
        return last if Head.verify(proof.head, key).origin == last.origin else None

    def _make_proof_request(self, entry: Entry, block: int | None, timeout: float) -> DeliveryRequest:
        parameters = {"experiment": entry.experiment, "version": entry.version}
        query = urlencode(parameters if block is None else parameters | {"block": block})
        return DeliveryRequest("GET", f"{self._server}/log/proof?{query}", {}, timeout, max_bytes=PROOF_BYTES_MAX)

    def _store_evidence(
        self, error: Untrusted, entry: Entry, answer: EndpointAnswer, proof_answer: EndpointAnswer
    ) -> None:
        """Store the evidence against a server: the signed answer, the known key and head, and the proof."""
        server = self._servers.get(self._server)
        evidence = {
            "problem": error.slug,
            "server": self._server,
            "publication": {"experiment": entry.experiment, "version": entry.version, "digest": entry.digest.hex()},
            "signed": answer.signed,
            "known": None if server is None else {"key": server.key.hex(), "head": server.head},
            "proof": proof_answer.body.decode(errors="replace"),
        }
        with suppress(InputError):  # the refusal matters more
            self._servers.store_evidence(self._server, json.dumps(evidence, indent=1))
