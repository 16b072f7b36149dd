"""Reports in shares of two servers: a device splits and proves its vote, and seals a share to each of both."""

import os
from typing import TYPE_CHECKING

from privateer_core.arrays import Records
from privateer_core.errors import Malformed
from privateer_core.wire.publication import Header, Round
from privateer_core.wire.shares import SharedReport, ShareParty, ShareSeal, share_context

if TYPE_CHECKING:
    from privateer_core.mechanisms.shared_votes import SharedVotes

_PROBE = ShareSeal(Header("probe", 1, bytes(8), bytes(32)), "", b"", b"")


class ShareSealer:
    """A sealer of a round's votes, to the round's key and to the helper's, which is checked at once."""

    def __init__(self, round_: Round, header: Header, mechanism: "SharedVotes", helper_key: bytes) -> None:
        self._round, self._header, self._mechanism, self._helper_key = round_, header, mechanism, helper_key
        try:
            _PROBE.seal(b"", helper_key, ShareParty.HELPER)  # before the report is paid for
        except ValueError:
            raise Malformed("the shuffler's key cannot be sealed to", remedy="ask its operator") from None

    def seal(self, votes: Records) -> bytes:
        """Split a vote (1,) into shares with a proof, and seal them."""
        from privateer_core.vdaf.prio3 import NONCE_BYTES  # few devices make shares

        prio3, nonce = self._mechanism.prio3, os.urandom(NONCE_BYTES)
        (bits,) = self._mechanism.encode(votes)
        shares = prio3.shard(share_context(self._header.digest), bits, nonce, os.urandom(prio3.random_bytes))
        seal = ShareSeal(self._header, self._round.model, nonce, shares.public)
        leader, helper = shares.inputs
        coins = votes["slot"].tobytes()
        return b"".join(
            SharedReport(
                nonce,
                shares.public,
                seal.seal(helper, self._helper_key, ShareParty.HELPER),
                seal.seal(coins + leader, self._round.public_key, ShareParty.LEADER),
            )
        )
