"""The helper: it verifies its shares of a batch, decides with the leader's answer, and adds its noise to its sum.

docs/privacy/split-exchange.md has the states. It holds nothing between two calls.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core import codec
from privateer_core.errors import Malformed, SpecError, Unavailable
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedProducts, SharedSums, SharedTriples, SharedVotes
from privateer_core.sampling.randomness import NoiseSource, SecureNoise
from privateer_core.vdaf.batch import Report, VerifiedBatch, verify_many
from privateer_core.vdaf.prio3 import InvalidProof, Prio3
from privateer_core.vdaf.turboshake import SEED_BYTES
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.publication import Envelope, Header, decode_publication, digest, encode_envelope, split_bytes
from privateer_core.wire.share_keys import derive_sealing_key, derive_verification_key
from privateer_core.wire.shares import (
    HELPER_SIZE,
    Closing,
    Decision,
    SharedReport,
    ShareParty,
    ShareSeal,
    decode_opening_answer,
    share_context,
)

_BLOCK: Final = 2_000_000
"""Numbers of the shares that are verified at once: 40 bytes each."""


class _Terms(msgspec.Struct):
    """The part of a policy's terms that the helper needs."""

    mechanism: SharedSums | SharedPairs | SharedTriples | SharedProducts


class _Policy(msgspec.Struct):
    """The part of a policy that the helper needs."""

    terms: _Terms


@dataclass(frozen=True, repr=False)
class OpenedBatch:
    """A batch with the opened shares of the helper, and the key by which both servers verify them."""

    header: Header
    mechanism: SharedVotes
    key: bytes  # of verification
    reports: tuple[Report, ...]  # with the helper's shares, in the order of the opening
    opening: bytes  # the body that the leader gets
    n_unopened: int  # reports that are not in it


class Helper:
    """The helper of one organisation, by the key that it signs batches with."""

    def __init__(self, key: Ed25519PrivateKey, noise: NoiseSource | None = None) -> None:
        self._key, self._noise = derive_sealing_key(key), noise or SecureNoise()

    def open_batch(self, publication: bytes, batch: bytes) -> OpenedBatch:
        """Open the helper's shares of a batch, given the publication that its reports were made for."""
        published, envelope = decode_publication(publication), decode_batch(batch)
        facts, header = published.round, envelope.header
        try:
            mechanism = codec.decode(published.policy, _Policy).terms.mechanism
            key = derive_verification_key(self._key, facts.public_key, share_context(digest(publication)))
        except (Malformed, SpecError, ValueError):
            raise Unavailable("the server's round is none of votes in shares", remedy="ask its operator") from None
        reports, for_leader = [], []
        messages = split_bytes(envelope.sealed, facts.sealed_size)
        for parts in map(SharedReport.parse, messages):
            seal = ShareSeal(header, facts.model, parts.nonce, parts.public)
            share = seal.open(parts.helper, self._key, ShareParty.HELPER)
            if len(share) == HELPER_SIZE:
                reports.append(Report(parts.nonce, parts.public, share))
                for_leader.append(parts.for_leader)
        opening = encode_envelope(Envelope(header, b"".join(for_leader)))
        return OpenedBatch(header, mechanism, key, tuple(reports), opening, len(messages) - len(reports))

    def close_batch(self, opened: OpenedBatch, answer: bytes, opening_digest: bytes) -> bytes:
        """Return the closing of a batch by the leader's answer to its opening, with noise that is drawn here.

        It is to be stored before it is sent, and never made again: with other noise it would tell more than promised.
        """
        decoded = decode_opening_answer(answer) if opened.reports else None
        answers = decoded.answers if decoded else []
        if len(answers) != len(opened.reports):
            raise Unavailable("the learning server's answer is none to this opening", remedy="try again later")
        prio3, context = opened.mechanism.prio3, share_context(opened.header.digest)
        decisions, total = bytearray(), [0] * prio3.circuit.n_outputs
        step = max(1, _BLOCK // opened.mechanism.n_cells)
        for start in range(0, len(answers), step):
            part = slice(start, start + step)
            verified = verify_many(prio3, opened.key, context, 1, opened.reports[part])
            block = [_decide(prio3, context, verified, index, each) for index, each in enumerate(answers[part])]
            decisions += bytes(block)
            sums = verified.add_up([decision is Decision.ACCEPTED for decision in block])
            total = [(left + right) % prio3.circuit.field.modulus for left, right in zip(total, sums, strict=True)]
        share = b""
        if Decision.ACCEPTED in decisions:
            noisy = opened.mechanism.server_noise.add_to_share(total, opened.mechanism.unit, self._noise)
            share = prio3.circuit.field.encode(noisy)
        closing = Closing(opened.header, opening_digest, bytes(decisions), share, opened.n_unopened)
        return msgspec.msgpack.encode(closing)


def _decide(prio3: Prio3, context: bytes, verified: VerifiedBatch, index: int, answer: bytes) -> Decision:
    """Decide about a report by both servers' verifier shares; both must have derived the same joint seed."""
    own_share, own_seed = verified.verifiers[index], verified.joint_seeds[index]
    if not answer:
        return Decision.UNOPENED
    try:
        leader_share = prio3.read_verifier(answer[:-SEED_BYTES])
        if own_share is None:
            return Decision.INVALID
        seed = prio3.decide(context, [leader_share, own_share])
    except (InvalidProof, Malformed):
        return Decision.INVALID
    return Decision.ACCEPTED if seed == own_seed == answer[-SEED_BYTES:] else Decision.INVALID
