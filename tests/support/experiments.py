"""A server whose round moves on while devices wait, and devices that have a clock of their own."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_client import AsyncClient, Client, Ledger
from privateer_core.mechanisms.central_sums import REPORT, UNIT
from privateer_core.policies.policy import AGE_SIZE
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_envelope, decode_publication, digest, hpke_info
from tests.support.clocks import Hands
from tests.support.notary import notarized
from tests.support.publications import KEY, published
from tests.support.specs import make_spec

CONTEXT = {"x1": 0.3, "x2": 0.9}
OTHER = {"x1": 0.8, "x2": 0.1}
WEEK = 7 * 86_400.0
OPEN = Limits(epsilon=float("inf"), delta=1e-5, allow_central=True)
"""What a device must allow whose records a test reads."""
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def waiting_spec(**changes: Any) -> Spec:
    """A spec whose reports are due a week after the choice, and come as they are."""
    records = {"privacy.model": "none", "privacy.epsilon": None, "experiment.conversion_window_seconds": WEEK}
    return make_spec(records | changes)


class Server:
    """Publishes a given body, takes uploads, and remembers both."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.answer: httpx.Response | Exception | None = None
        self.etags: list[str | None] = []
        self.posts: list[bytes] = []
        self.is_down = False
        self.headers: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("down")
        if request.method == "GET":
            self.etags.append(request.headers.get("if-none-match"))
            if self.etags[-1] == f'"{digest(self.body).hex()}"':
                return httpx.Response(304, headers=self.headers)
            return httpx.Response(200, content=self.body, headers=self.headers)
        self.posts.append(request.content)
        if isinstance(self.answer, Exception):
            raise self.answer
        response = self.answer or httpx.Response(202, json={"accepted": 1, "refused": {}})
        return httpx.Response(response.status_code, content=response.content)

    @property
    def exchanges(self) -> int:
        """How many requests came."""
        return len(self.etags) + len(self.posts)

    def moves_on(self, spec: Spec, version: int = 2, **lies: Any) -> None:
        """Publish another round."""
        self.body = published(spec, version=version, **lies)

    def open_report(self) -> bytes:
        """What the only report says, without its id."""
        (body,) = self.posts
        envelope, facts = decode_envelope(body), decode_publication(self.body).round
        return _SUITE.decrypt(envelope.sealed, KEY, info=hpke_info(envelope.header, facts.model))[16:]

    def reward(self) -> float:
        """The reward that the only report tells, where it is a record after an age."""
        (record,) = np.frombuffer(self.open_report()[AGE_SIZE:], REPORT)
        return round(float(record["value"]) / UNIT, 3)


class Device:
    """An application on a device: its ledger, and clients that start and end."""

    def __init__(self, folder: Path, server: Server, clock: Hands | None = None, **options: Any) -> None:
        self.folder, self.server, self.clock = folder, server, clock or Hands()
        self.options: dict[str, Any] = {"limits": OPEN, "retry_timeout": 0.0} | options

    def ledger(self, **options: Any) -> Ledger:
        return Ledger(self.folder / "ledger.db", clock=self.clock, **options)

    def start(self, **options: Any) -> Client:
        """The application, started anew."""
        return Client("http://s", **self._with(options))

    def start_async(self, **options: Any) -> AsyncClient:
        return AsyncClient("http://s", **self._with(options))

    def _with(self, options: dict[str, Any]) -> dict[str, Any]:
        usual = {"ledger": self.ledger(), "clock": self.clock, "transport": notarized(self.server)}
        return usual | self.options | options

    def files(self) -> bytes:
        """Everything that somebody finds on the device."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file())
