"""Prio3 (draft-irtf-cfrg-vdaf-20, section 7): a vote in shares, of which none tells anything, that prove themselves.

The leader, the first server, gets numbers, and every other server a seed of its own. Both shares of a proof are checked
against each other, and what is left is a share of the vote, to be added to those of other people. ``context`` is what
both servers and devices know of the round: a share for another context does not verify.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from privateer_core.errors import Malformed
from privateer_core.vdaf.circuits import Circuit
from privateer_core.vdaf.proof import is_valid, prove, query
from privateer_core.vdaf.turboshake import SEED_BYTES, turboshake128

NONCE_BYTES: Final = 16
HISTOGRAM: Final = 4
"""The draft's codepoint of a vote for one of many cells."""
_VERSION: Final = 18
"""The version of the draft's format, which its test vectors have; other versions do not verify."""


class Usage(IntEnum):
    """What a seed is expanded for."""

    MEASUREMENT_SHARE = 1
    PROOF_SHARE = 2
    JOINT_RANDOMNESS = 3
    PROVE_RANDOMNESS = 4
    QUERY_RANDOMNESS = 5
    JOINT_SEED = 6
    JOINT_PART = 7


class InvalidProof(ValueError):
    """The proof fails, or the servers were given different shares."""


@dataclass(frozen=True)
class ReportShares:
    """A report's public share, and an input share for each server."""

    public: bytes
    inputs: tuple[bytes, ...]


@dataclass(frozen=True)
class VerifierShare:
    """What a server sends to decide about a report."""

    verifiers: tuple[int, ...]
    joint_part: bytes


@dataclass(frozen=True)
class Verification:
    """What a server keeps until a report is decided."""

    output: tuple[int, ...]  # its share of the vote
    joint_seed: bytes


@dataclass(frozen=True)
class Prio3:
    """A circuit's votes in shares."""

    circuit: Circuit
    algorithm: int  # the codepoint: 3 for vectors, 4 for a histogram, 5 for several cells; ours are private
    n_shares: int = 2
    n_proofs: int = 1

    @property
    def random_bytes(self) -> int:
        """Bytes of randomness that a report needs."""
        return 2 * SEED_BYTES * self.n_shares

    @property
    def verifier_bytes(self) -> int:
        """Bytes of an encoded verifier share."""
        return self.circuit.verifier_length * self.n_proofs * self.circuit.field.n_bytes + SEED_BYTES

    def encode_verifier(self, share: VerifierShare) -> bytes:
        """Encode a verifier share: its numbers, and its part of the joint randomness."""
        return self.circuit.field.encode(share.verifiers) + share.joint_part

    def read_verifier(self, encoded: bytes) -> VerifierShare:
        """Read a verifier share of another server; `Malformed` if it is none."""
        numbers, field = encoded[:-SEED_BYTES], self.circuit.field
        if len(encoded) != self.verifier_bytes or not field.is_encoded(numbers):
            raise Malformed("not a verifier share")
        return VerifierShare(tuple(field.read(numbers)), encoded[-SEED_BYTES:])

    @property
    def report_bytes(self) -> int:
        """Bytes of a report: its nonce, its public share and all input shares."""
        numbers = self.circuit.n_bits + self.n_proofs * self.circuit.proof_length
        return NONCE_BYTES + numbers * self.circuit.field.n_bytes + SEED_BYTES * (3 * self.n_shares - 1)

    def shard(self, context: bytes, bits: Sequence[int], nonce: bytes, randomness: bytes) -> ReportShares:
        """Split the bits of a vote into shares with proofs; the randomness is a device's own, and used once."""
        if len(nonce) != NONCE_BYTES or len(randomness) != self.random_bytes or len(bits) != self.circuit.n_bits:
            raise ValueError("a nonce, randomness or vote of another length")
        seeds = [randomness[start : start + SEED_BYTES] for start in range(0, len(randomness), SEED_BYTES)]
        *helper_seeds, leader_blind, prove_seed = seeds
        shares, blinds = helper_seeds[::2], helper_seeds[1::2]
        field, circuit = self.circuit.field, self.circuit
        vote, parts = list(bits), []
        for party, (seed, blind) in enumerate(zip(shares, blinds, strict=True), start=1):
            encoded = self._expand_share(context, party, seed)
            vote = [(bit - mask) % field.modulus for bit, mask in zip(vote, field.read(encoded), strict=True)]
            parts.append(self.joint_part(context, party, blind, nonce, encoded))
        parts.insert(0, self.joint_part(context, 0, leader_blind, nonce, field.encode(vote)))
        joint = field.read(self.joint_randomness(context, self.joint_seed(context, parts)))
        wires = field.read(
            self._expand(Usage.PROVE_RANDOMNESS, context, prove_seed, b"", circuit.n_wires * self.n_proofs)
        )
        proofs: list[int] = []
        for wire_seeds, numbers in zip(self._split(wires), self._split(joint), strict=True):
            proofs += prove(circuit, bits, wire_seeds, numbers)
        for party, seed in enumerate(shares, start=1):
            share = field.read(self._expand_proofs(context, party, seed))
            proofs = [(number - mask) % field.modulus for number, mask in zip(proofs, share, strict=True)]
        leader = field.encode(vote) + field.encode(proofs) + leader_blind
        helpers = (seed + blind for seed, blind in zip(shares, blinds, strict=True))
        return ReportShares(b"".join(parts), (leader, *helpers))

    def verify(
        self, key: bytes, context: bytes, party: int, nonce: bytes, public: bytes, share: bytes
    ) -> tuple[Verification, VerifierShare]:
        """Check one's own shares, as far as a server alone can; `Malformed` if they are not shares.

        The key is of all servers and of no device. **Once a nonce**: two verifications of a report, under two keys or
        nonces, tell the vote.
        """
        encoded, encoded_proofs, blind = self.read_share(context, party, share)
        vote, proofs = map(self.circuit.field.read, (encoded, encoded_proofs))
        part = self.joint_part(context, party, blind, nonce, encoded)
        seed = self.joint_seed(context, self.replace_part(public, party, part))
        joint = self.circuit.field.read(self.joint_randomness(context, seed))
        verifiers: list[int] = []
        queries = self._split(self.query_numbers(key, context, nonce))
        for proof, numbers, joint_numbers in zip(self._split(proofs), queries, self._split(joint), strict=True):
            verifiers += query(self.circuit, vote, proof, numbers, joint_numbers, self.n_shares)
        return Verification(tuple(self.circuit.aggregate(vote)), seed), VerifierShare(tuple(verifiers), part)

    def decide(self, context: bytes, shares: Sequence[VerifierShare]) -> bytes:
        """Return the message that all servers compare, if the shares of a verifier are a vote's; `InvalidProof`."""
        modulus = self.circuit.field.modulus
        verifiers = [sum(numbers) % modulus for numbers in zip(*(share.verifiers for share in shares), strict=True)]
        if not all(is_valid(self.circuit, verifier) for verifier in self._split(verifiers)):
            raise InvalidProof("the proof does not hold")
        return self.joint_seed(context, [share.joint_part for share in shares])

    def finish(self, verification: Verification, message: bytes) -> tuple[int, ...]:
        """Return the server's share of the vote; `InvalidProof` if the servers were given different parts."""
        if message != verification.joint_seed:
            raise InvalidProof("the servers were given different parts")
        return verification.output

    def read_share(self, context: bytes, party: int, share: bytes) -> tuple[bytes, bytes, bytes]:
        """Read a server's share: of the vote and of the proofs, encoded, and its blind; `Malformed` if it is none."""
        field, circuit = self.circuit.field, self.circuit
        body, blind = share[:-SEED_BYTES], share[-SEED_BYTES:]
        if party > 0:
            if len(share) != 2 * SEED_BYTES:
                raise Malformed("a share of another length")
            return self._expand_share(context, party, body), self._expand_proofs(context, party, body), blind
        if len(body) != (circuit.n_bits + circuit.proof_length * self.n_proofs) * field.n_bytes:
            raise Malformed("a share of another length")
        if not field.is_encoded(body):
            raise Malformed("a number that is not of the field")
        return body[: circuit.n_bits * field.n_bytes], body[circuit.n_bits * field.n_bytes :], blind

    def replace_part(self, public: bytes, party: int, part: bytes) -> list[bytes]:
        """Return the parts of joint randomness that a device published, with a server's own instead of its."""
        if len(public) != SEED_BYTES * self.n_shares:
            raise Malformed("a public share of another length")
        parts = [public[start : start + SEED_BYTES] for start in range(0, len(public), SEED_BYTES)]
        parts[party] = part
        return parts

    def joint_part(self, context: bytes, party: int, blind: bytes, nonce: bytes, vote: bytes) -> bytes:
        """Derive a server's part of the joint randomness from its share of the vote, encoded."""
        message = self._message(Usage.JOINT_PART, context, blind, bytes([party]) + nonce + vote)
        return turboshake128(message, SEED_BYTES)

    def joint_seed(self, context: bytes, parts: Sequence[bytes]) -> bytes:
        """Derive the seed of the joint randomness from all parts."""
        return turboshake128(self._message(Usage.JOINT_SEED, context, bytes(SEED_BYTES), b"".join(parts)), SEED_BYTES)

    def query_numbers(self, key: bytes, context: bytes, nonce: bytes) -> list[int]:
        """Derive what servers ask of a report: factors of the circuit's outputs, and a point, for each proof."""
        length = (self.circuit.n_factors + 1) * self.n_proofs
        return self.circuit.field.read(self._expand(Usage.QUERY_RANDOMNESS, context, key, nonce, length))

    def joint_randomness(self, context: bytes, seed: bytes) -> bytes:
        """Derive the joint randomness, a number for each call of each proof, encoded."""
        return self._expand(Usage.JOINT_RANDOMNESS, context, seed, b"", self.circuit.n_bit_calls * self.n_proofs)

    def _expand_share(self, context: bytes, party: int, seed: bytes) -> bytes:
        message = self._message(Usage.MEASUREMENT_SHARE, context, seed, bytes([party]))
        return self.circuit.field.expand(message, self.circuit.n_bits)

    def _expand_proofs(self, context: bytes, party: int, seed: bytes) -> bytes:
        length = self.circuit.proof_length * self.n_proofs
        return self._expand(Usage.PROOF_SHARE, context, seed, bytes([party]), length)

    def _expand(self, usage: Usage, context: bytes, seed: bytes, binder: bytes, length: int) -> bytes:
        """Return numbers that are expanded from a seed, encoded."""
        message = self._message(usage, context, seed, bytes([self.n_proofs]) + binder)
        return self.circuit.field.expand(message, length)

    def _message(self, usage: Usage, context: bytes, seed: bytes, binder: bytes) -> bytes:
        """Return what is hashed: a tag of the version, algorithm, usage and context, the seed and a binder."""
        version = bytes([_VERSION, 0])
        tag = version + self.algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + context
        return len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder

    def _split(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        """Split numbers into those of each proof."""
        length = len(numbers) // self.n_proofs
        return [numbers[start : start + length] for start in range(0, length * self.n_proofs, length)]
