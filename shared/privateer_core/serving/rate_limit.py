"""Uploads that are turned away by their headers.

No task is made for them, nothing of their body is kept, and whoever sends many of them waits, so that others do not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import unquote

import httptools
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import SenderRefused, TokenMissing, TokenRefused
from privateer_core.serving.http.listeners import VARY, shown_to
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

Headers = Sequence[tuple[bytes, bytes]]
_TICK: Final = 0.005
_UNITS: Final = 60
"""What is let in again in a tick: so many connections, each of which has cost a unit. A unit takes some 40
microseconds, so this is half of a core at most."""
_LOOK, _VERIFY = 1, 3
"""Units of a refusal at first sight, and of one after a signature was verified."""
_FRESH: Final = 1.0
"""Seconds for which the keys of trusted senders count without a new look at their files."""
_KEPT: Final = 256
_SENDER: Final = UPLOAD.header.encode()


class RefusedUpload(Protocol):
    """A connection whose upload was turned away."""

    def read_on(self) -> None:
        """Take the next request."""
        ...


class RateLimit:
    """Turns uploads away that a gate does not admit, before they become requests.

    A connection whose upload is turned away is not read until its turn has come. New connections have theirs at once,
    so a flood on connections that stay open takes a bounded share of the processor.

    gate: admits uploads by their tokens.
    experiment: returns the experiment that a path takes reports for, which may be unknown and empty; None: another
        page.
    refuse: counts refused reports by reason.
    keys: keys of trusted senders, whose uploads need no token.
    origins: origins whose pages may read the answers (`privateer_core.serving.http.listeners`).
    """

    def __init__(
        self,
        gate: TokenGate,
        experiment: Callable[[str], str | None],
        refuse: Callable[[Mapping[str, int]], None],
        keys: TrustedKeys,
        clock: Clock | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self._gate, self._experiment, self._refuse, self._keys = gate, experiment, refuse, keys
        self._origins = frozenset(origins)
        self._waiting: deque[tuple[RefusedUpload, int]] = deque()
        self._next: asyncio.TimerHandle | None = None
        self._answers: dict[tuple[str, ...], bytes] = {}
        self._known_senders: tuple[float, Mapping[str, Ed25519PublicKey]] = (-_FRESH, {})
        self._clock = clock or SystemClock()

    def refusal(self, method: bytes, target: bytes, headers: Headers) -> tuple[bytes, int] | None:
        """Return the answer to an upload that is not admitted, and what it has cost; None for everything else."""
        if method != b"POST":
            return None
        name = self._experiment(_path(target))
        if name is None:
            return None
        sent = dict(headers)
        try:
            if _SENDER in sent:
                UPLOAD.check(sent[_SENDER].decode("latin-1"), self._senders(), self._clock.now())
            else:
                self._gate.admit_early(sent.get(b"authorization"), name)
        except (TokenRefused, SenderRefused) as refused:
            self._refuse({refused.slug: 1})
            cost = _LOOK if isinstance(refused, TokenMissing) else _VERIFY
            return self._answer(refused, sent.get(b"origin", b"")), cost
        return None

    def _senders(self) -> Mapping[str, Ed25519PublicKey]:
        """Return the keys of trusted senders, read anew now and then."""
        looked, keys = self._known_senders
        now = self._clock.monotonic()
        if now - looked > _FRESH:
            keys = self._keys.by_id()
            self._known_senders = now, keys
        return keys

    def _answer(self, refused: TokenRefused | SenderRefused, origin: bytes) -> bytes:
        headers = {"www-authenticate": refused.challenge} if isinstance(refused, TokenRefused) else {}
        if self._origins:
            headers |= VARY | shown_to(origin.decode("latin-1"), self._origins)
        asks = [f"{name}: {text}" for name, text in headers.items()]
        known = (refused.detail, *asks)
        answer = self._answers.get(known)
        if answer is None:
            if len(self._answers) >= _KEPT:
                self._answers.clear()
            body = problem_body(refused, accepted=0, refused={refused.slug: 1})
            head = (f"content-type: {MEDIA_TYPE}", f"content-length: {len(body)}", *asks, "", "")
            answer = self._answers[known] = STATUS_LINE[refused.status] + "\r\n".join(head).encode() + body
        return answer

    def hold(self, connection: RefusedUpload, cost: int) -> None:
        """Have a connection read on when its turn has come."""
        self._waiting.append((connection, cost))
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(_TICK, self._let_in)

    def _let_in(self) -> None:
        units = _UNITS
        while self._waiting and units > 0:
            connection, cost = self._waiting.popleft()
            units -= cost
            connection.read_on()
        self._next = asyncio.get_running_loop().call_later(_TICK, self._let_in) if self._waiting else None


def _path(target: bytes) -> str:
    """Return the path that a request becomes one for, however it is written; empty if there is none."""
    try:
        return unquote(httptools.parse_url(target).path.decode("ascii"))
    except (httptools.HttpParserInvalidURLError, AttributeError, UnicodeDecodeError):
        return ""
