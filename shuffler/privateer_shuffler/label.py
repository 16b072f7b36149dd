"""Which round reports are held for."""

import msgspec

from privateer_core.wire.envelope import Header, header_of
from privateer_core.wire.publication import Round


class Label(msgspec.Struct, frozen=True, array_like=True):
    """Which round a database holds: its public facts and the digest of its publication."""

    round: Round
    digest: bytes

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return header_of(self.round, self.digest)
