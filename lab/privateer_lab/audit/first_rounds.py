"""First rounds that the audit opens, serves in memory, joins through the client library, and reads as the server."""

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from privateer_client.participation import Participation
from privateer_core.policies.policy import AGE_SIZE
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import hpke_info, split_bytes
from privateer_core.wire.transparency_log import Entry, Head, make_proof
from privateer_server.intake.decryption import REPORT_ID_SIZE, Decryptor
from privateer_server.rounds.open_round import OpenRound, open_first_round

LIMITS: Final = Limits(
    math.inf, 1.0, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True
)
_MIN_REPORTS, _MAX_REPORTS, _SAMPLES_PER_REPORT = 100, 3000, 20
_ORIGIN: Final = f"privateer/log/{0:016x}"


class FirstRound(NamedTuple):
    """The first round of an experiment, and the server's decryptor of its reports."""

    opened: OpenRound
    decryptor: Decryptor

    @classmethod
    def open(cls, spec: Spec) -> Self:
        """Open the first round with a new key."""
        decryptor = Decryptor(X25519PrivateKey.generate())
        return cls(open_first_round(spec, decryptor.public_key), decryptor)

    def join(self, cohort: str = "") -> Participation:
        """Join the round through the client library."""
        return Participation(self.opened.publication, self.opened.spec.name, LIMITS, cohort)

    def open_reports(self, sealed: Iterable[bytes]) -> NDArray[Any]:
        """Open participants' sealed reports as the server does, and return the rows of their messages in order."""
        size, info = self.opened.round.sealed_size, hpke_info(self.opened.header, self.opened.round.model)
        messages = [message for report in sealed for message in split_bytes(report, size)]
        first_byte = REPORT_ID_SIZE + AGE_SIZE * self.opened.step.policy.tells_age
        rows = b"".join(message[first_byte:] for message in self.decryptor.decrypt(messages, info))
        parsed: NDArray[Any] = self.opened.mechanism.parse(rows)
        return parsed


def count_reports(samples: int) -> int:
    """Return the number of reports that an attack opens where a cheaper attack makes ``samples`` observations."""
    return min(_MAX_REPORTS, max(_MIN_REPORTS, samples // _SAMPLES_PER_REPORT))


class MemoryServer(httpx.MockTransport):
    """A server of one round's publication that breaks off its first uploads, and accepts or refuses the rest."""

    def __init__(self, open_round: OpenRound, *, n_broken: int = 0, problem: bytes = b"") -> None:
        super().__init__(self._respond)
        self.uploads: list[bytes] = []
        self._publication, self._n_broken, self._problem = open_round.publication, n_broken, problem
        identity, tree = Identity(Ed25519PrivateKey.generate()), MerkleTree()
        tree.append(Entry(open_round.round.experiment, open_round.round.version, open_round.digest).leaf)
        head = Head.sign(_ORIGIN, 1, tree.root(1), identity.key)
        self._proof = msgspec.json.encode(make_proof(tree, head, 0, None))
        self._headers = {SIGNED_HEADER: identity.signature_header(open_round.digest)}

    def _respond(self, request: httpx.Request) -> httpx.Response:
        """Serve the publication or its inclusion proof in the log, or respond to an upload."""
        if request.url.path.endswith("/log/proof"):
            return httpx.Response(200, content=self._proof)
        if request.method == "GET":
            return httpx.Response(200, content=self._publication, headers=self._headers)
        self.uploads.append(request.content)
        if len(self.uploads) <= self._n_broken:
            raise httpx.ReadError("broken off")
        if self._problem:
            return httpx.Response(400, content=self._problem)
        return httpx.Response(202, json={"accepted": 1, "refused": {}})
