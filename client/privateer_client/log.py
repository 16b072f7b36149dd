"""Checks that a server has one key, and one log that only grows."""

import json
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlencode

from privateer_client.delivery import Ask, EndpointAnswer, Steps
from privateer_client.ledger.known_servers import KnownServer, Servers, contradiction
from privateer_core.errors import HeadWentBack, InputError, Unavailable, Untrusted
from privateer_core.wire.identity import check_signed, key_changed
from privateer_core.wire.transparency_log import (
    PROOF_BYTES_MAX,
    Entry,
    Head,
    Proof,
    block_of,
    check_order,
    check_proof,
    check_start,
    read_proof,
    starts_too_late,
)

_TRIES: Final = 3
"""Fetches of a proof: by default, from the last head's block, and once more if another process was faster."""
_OK: Final = 200


class Witness:
    """Checks signatures, and that everything signed is in the server's log, which continues what the device knows.

    server: its address.
    pinned: the keys that the application names; empty: the first key that the device meets is the server's from then
        on.
    servers: what the device knows.
    """

    def __init__(self, server: str, pinned: frozenset[bytes], servers: Servers) -> None:
        self._server, self._pinned, self._servers = server, pinned, servers

    def signer(self, answer: EndpointAnswer) -> bytes:
        """Return the key that signed the publication in an answer."""
        known = self._servers.get(self._server)
        return check_signed(answer.signed, answer.body, self._pinned or ({known.key} if known else frozenset()))

    def check(self) -> None:
        """Refuse the server if the device holds evidence that it contradicted itself."""
        evidence = self._servers.evidence(self._server)
        error = None if evidence is None else contradiction(evidence)
        if error is not None:
            raise error(
                "the device holds evidence that the server contradicted itself",
                field="evidence",
                remedy=f"publish client.evidence; ledger.servers.forget({self._server!r}) trusts the server anew",
            )

    @property
    def saw_rollback(self) -> bool:
        """Whether the evidence against the server is that its log went back, and nothing worse."""
        evidence = self._servers.evidence(self._server)
        return evidence is not None and contradiction(evidence) is HeadWentBack

    def acquit(self) -> None:
        """Mark the evidence of a rollback as answered."""
        self._servers.acquit(self._server)

    def witnessed(self, entry: Entry, answer: EndpointAnswer, timeout: float) -> Steps[None]:
        """Fetch the proof that a publication is in the log, check it, and keep the new head."""
        key, block = bytes.fromhex(answer.signed.partition(".")[0]), None
        for tries in range(1, _TRIES + 1):
            got = yield self._ask(entry, block, timeout)
            if got is None or got.status != _OK:
                raise Unavailable("the server did not prove what it published", remedy="try again later")
            try:
                proof = read_proof(got.body)
                known = self._servers.get(self._server)
                last = self._last(known, key, proof)
                if last is None and known is not None and self.saw_rollback:
                    raise key_changed()  # another log does not answer for one that went back
                if block is None:
                    check_start(proof, key)
                if starts_too_late(proof, last) and tries < _TRIES:
                    assert last is not None, "there is nothing before the first head"
                    check_order(Head.open(proof.head, key), last)
                    block = block_of(last)
                    continue
                self._servers.change(self._server, partial(self._next, key=key, proof=proof, entry=entry))
                return
            except HeadWentBack as error:
                # Another process of this device may have fetched its proof after this one.
                if tries == _TRIES:
                    self._accuse(error, entry, answer, got)
                    raise
            except Untrusted as error:
                self._accuse(error, entry, answer, got)
                raise

    def _next(self, known: KnownServer | None, key: bytes, proof: Proof, entry: Entry) -> KnownServer:
        return KnownServer(key, check_proof(proof, entry, key, self._last(known, key, proof)).signed)

    def _last(self, known: KnownServer | None, key: bytes, proof: Proof) -> Head | None:
        """Return the head that a proof must continue."""
        if known is None:
            return None
        last = Head.open(known.head, known.key)
        if known.key == key:
            return last
        if not self._pinned:
            raise key_changed()
        # The application names the new key: its log may be a new one, but if it is the same it goes on.
        return last if Head.open(proof.head, key).origin == last.origin else None

    def _ask(self, entry: Entry, block: int | None, timeout: float) -> Ask:
        asked = {"experiment": entry.experiment, "version": entry.version}
        query = urlencode(asked if block is None else asked | {"block": block})
        return Ask("GET", f"{self._server}/log/proof?{query}", {}, timeout, most=PROOF_BYTES_MAX)

    def _accuse(self, error: Untrusted, entry: Entry, answer: EndpointAnswer, got: EndpointAnswer) -> None:
        known = self._servers.get(self._server)
        evidence = {
            "problem": error.slug,
            "server": self._server,
            "publication": {"experiment": entry.experiment, "version": entry.version, "digest": entry.digest.hex()},
            "signed": answer.signed,
            "known": None if known is None else {"key": known.key.hex(), "head": known.head},
            "proof": got.body.decode(errors="replace"),
        }
        with suppress(InputError):  # the refusal matters more
            self._servers.accuse(self._server, json.dumps(evidence, indent=1))
