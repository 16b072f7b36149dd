"""Sealing: HPKE to the server's key, bound to experiment, round and trust model. Nothing here opens."""

import os
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.errors import Malformed
from privateer_core.wire.envelope import Header, binding
from privateer_core.wire.publication import Round

REPORT_ID_SIZE: Final = 16
OVERHEAD: Final = 48
"""Bytes that sealing adds: encapsulated key and tag."""
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class SealedReport(NamedTuple):
    """A report on its way: sealed to the server, so that the device itself can no longer open it.

    Attributes
    ----------
    experiment
        Identity of the experiment.
    endpoint
        URL that the report was made for.
    body
        What the device sends there: the same bytes each time.
    """

    experiment: str
    endpoint: str
    body: bytes


class Sealer:
    """Seals the reports of one round.

    Parameters
    ----------
    round_
        The published round; the sealer seals to its public key.
    header
        What the reports are made for.

    Raises
    ------
    Malformed
        If the public key is not a point that can be sealed to.
    """

    def __init__(self, round_: Round, header: Header) -> None:
        self._info = binding(header, round_.model)
        try:
            self._key = X25519PublicKey.from_public_bytes(round_.public_key)
            self.seal(b"")  # a point of low order shows only now, and must not show after the report is paid for
        except ValueError:
            raise Malformed("the round's public key cannot be sealed to", remedy="fetch the policy again") from None

    def seal(self, report: bytes) -> bytes:
        """Seal a fresh report id and ``report``; the result is 64 bytes longer than the report."""
        return _SUITE.encrypt(os.urandom(REPORT_ID_SIZE) + report, self._key, info=self._info)
