"""The server's part in batches of votes in shares: it answers openings, and joins the sums of closings.

docs/privacy/split-exchange.md has the states. The answer to an opening follows from the round's key and the opening
alone, so that it is the same whenever the shuffler asks again, and it is recorded before it is given.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
import numpy as np

from privateer_core.arrays import Ints
from privateer_core.errors import BatchRefused, Malformed, RoundClosed
from privateer_core.mechanisms.server_noise import STEPS, join_shares
from privateer_core.mechanisms.shared_votes import SharedVotes, VotesTotal
from privateer_core.vdaf.batch import Report, add_up_shares, verify_many
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import Envelope, check_header
from privateer_core.wire.share_keys import sealing_public_key
from privateer_core.wire.shares import (
    COINS_SIZE,
    Closing,
    Decision,
    LeaderReport,
    OpeningAnswer,
    ShareSeal,
    share_context,
    split_opening,
)
from privateer_server.intake.decryption import Decryptor, RoundKeys
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.store import Store

_BLOCK: Final = 2_000_000
"""Numbers of the shares that are verified at once: 40 bytes each."""
_IMPLAUSIBLE_DEVIATIONS: Final = 40
"""Honest noise is further away with a probability below e^-56, Laplace noise too."""
_REASONS: Final = {Decision.UNOPENED: "decryption-failed", Decision.INVALID: "out-of-range"}
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True, repr=False)
class JoinedBatch:
    """A batch of votes after both servers' shares were joined."""

    accepted: int
    total: VotesTotal | None  # None: nobody was accepted
    refused: Counter[str] = field(default_factory=Counter)


class Leader:
    """The leader's side of the exchange. It holds no state: that is in the store, with the round."""

    def __init__(self, store: Store, keys: RoundKeys, shufflers: TrustedKeys, metrics: ServerMetrics) -> None:
        self._store, self._keys, self._shufflers, self._metrics = store, keys, shufflers, metrics

    async def open(self, current: OpenRound, envelope: Envelope, digest: bytes, shuffler: str) -> bytes:
        """Return the answer to an opening, after it is recorded; ``shuffler`` is the id of the key that signed it."""
        return await asyncio.to_thread(self._open, current, envelope, digest, shuffler)

    async def join(self, current: OpenRound, closing: Closing) -> JoinedBatch:
        """Join the helper's share of a batch with one's own, by its decisions."""
        return await asyncio.to_thread(self._join, current, closing)

    def _open(self, current: OpenRound, envelope: Envelope, digest: bytes, shuffler: str) -> bytes:
        check_header(envelope.header, current.round, current.digest, "shuffler")
        mechanism, decryptor = self._round_parts(current)
        reports = split_opening(envelope.sealed, current.round.sealed_size)
        nonces = [report.nonce for report in reports]
        if len(reports) > current.round.batch_size or len(set(nonces)) < len(nonces):
            raise BatchRefused("more reports than people, or a nonce twice", remedy="send what the shuffler makes")
        self._store.openings.record(current.round.experiment, current.round.version, digest, nonces, envelope.sealed)
        context = share_context(current.digest)
        helper_key = sealing_public_key(self._shufflers.by_id()[shuffler].public_bytes_raw())
        try:
            key = decryptor.derive_verification_key(helper_key, context)
        except ValueError:
            raise BatchRefused("the shuffler's key is none", remedy="make another") from None
        with self._metrics.stages["verify"].time():
            answers: list[bytes] = []
            step = max(1, _BLOCK // mechanism.n_cells)
            for start in range(0, len(reports), step):
                block = [
                    Report(report.nonce, report.public, self._open_share(current, decryptor, report)[COINS_SIZE:])
                    for report in reports[start : start + step]
                ]
                verified = verify_many(mechanism.prio3, key, context, 0, block)
                for share, seed in zip(verified.verifiers, verified.joint_seeds, strict=True):
                    answers.append(mechanism.prio3.encode_verifier(share) + seed if share and seed else b"")
        return msgspec.msgpack.encode(OpeningAnswer(answers))

    def _join(self, current: OpenRound, closing: Closing) -> JoinedBatch:
        check_header(closing.header, current.round, current.digest, "shuffler")
        facts = current.round
        mechanism, decryptor = self._round_parts(current)
        recorded = self._store.openings.find(facts.experiment, facts.version, closing.opening)
        reports = split_opening(recorded, facts.sealed_size) if recorded else []
        if recorded is None or len(closing.decisions) != len(reports):
            raise BatchRefused("this closing is of no opening of the round", remedy="send the opening first")
        n_unopened = min(max(0, closing.n_unopened), facts.batch_size)
        refused = Counter({_REASONS[Decision.UNOPENED]: n_unopened} if n_unopened else {})
        try:
            decisions = [Decision(code) for code in closing.decisions]
        except ValueError:
            raise BatchRefused("this closing has an unknown decision", remedy="update the server") from None
        refused.update(_REASONS[each] for each in decisions if each is not Decision.ACCEPTED)
        accepted = [
            self._open_share(current, decryptor, report)
            for report, decision in zip(reports, decisions, strict=True)
            if decision is Decision.ACCEPTED
        ]
        if not accepted:
            return JoinedBatch(0, None, refused)
        cells = self._join_cells(current, mechanism, accepted, closing.share)
        coins = np.frombuffer(b"".join(share[:COINS_SIZE] for share in accepted), dtype="<u4").astype(np.uint32)
        return JoinedBatch(len(accepted), mechanism.join(coins, cells), refused)

    def _join_cells(
        self, current: OpenRound, mechanism: SharedVotes, accepted: Sequence[bytes], helper_share: bytes
    ) -> Ints:
        """Return the sum of both shares, in steps; `BatchRefused` for one that no honest helper can have sent."""
        prio3 = mechanism.prio3
        number_field = prio3.circuit.field
        try:
            shares = [share[COINS_SIZE:] for share in accepted]
            own_share = add_up_shares(prio3, share_context(current.digest), shares)
        except Malformed:
            raise BatchRefused("the shuffler accepted a report that is none", remedy="ask its operator") from None
        if len(helper_share) != mechanism.n_cells * number_field.n_bytes or not number_field.is_encoded(helper_share):
            raise BatchRefused("the helper's share is none", remedy="send what the shuffler makes")
        step = STEPS // mechanism.unit
        cells = join_shares([[number * step for number in own_share], number_field.read(helper_share)])
        # Every vote has one unit in all, so that the sum of all cells is known but for the helper's noise.
        deviation = math.sqrt(mechanism.n_cells * mechanism.server_noise.variance / 2) * STEPS
        if abs(sum(cells.tolist()) - len(accepted) * STEPS) > _IMPLAUSIBLE_DEVIATIONS * deviation:
            _log.error("experiment %s: a batch's shares do not sum up to its votes", current.round.experiment)
            raise BatchRefused("the shares do not sum up to the votes", remedy="ask the shuffler's operator")
        return cells

    def _round_parts(self, current: OpenRound) -> tuple[SharedVotes, Decryptor]:
        """Return mechanism and key of a round of votes in shares; refuse another round."""
        decryptor = self._keys.find_decryptor(current.round.public_key)
        if not current.round.is_shared:
            raise BatchRefused("reports of this experiment are no shares", remedy="send them as a batch")
        if not current.is_taking_reports or decryptor is None:
            raise RoundClosed("this round is over", remedy="nothing to do: what was sent is not used")
        return cast(SharedVotes, current.mechanism), decryptor

    def _open_share(self, current: OpenRound, decryptor: Decryptor, report: LeaderReport) -> bytes:
        """Return the coins and the share of a report; empty if they do not open."""
        seal = ShareSeal(current.header, current.round.model, report.nonce, report.public)
        return decryptor.open_share(report.sealed, seal)
