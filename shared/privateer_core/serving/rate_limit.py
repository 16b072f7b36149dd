"""A rate limit for uploads that are turned away by their headers.

They get no task, their bodies are discarded, and only connections that send many of them are delayed.
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
from privateer_core.serving.http.listeners import VARY_HEADERS, cors_headers
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

Headers = Sequence[tuple[bytes, bytes]]
_TICK_SECONDS: Final = 0.005
_UNITS_PER_TICK: Final = 60
"""Cost of the connections that are released in a tick. A unit takes about 40 microseconds, so that refusals take half
of a core at most."""
_LOOK_COST, _VERIFY_COST = 1, 3
"""Units of a refusal without and with a verified signature."""
_KEYS_FRESH_SECONDS: Final = 1.0
"""Seconds for which the keys of trusted senders are cached."""
_ANSWER_CACHE_SIZE: Final = 256
_SENDER_HEADER: Final = UPLOAD.header.encode()


class RefusedUpload(Protocol):
    """A connection whose upload was turned away."""

    def read_on(self) -> None:
        """Resume reading requests."""


class RateLimit:
    """A rate limit that turns uploads away that a gate does not admit, before they become requests.

    A connection whose upload is turned away is not read until its turn has come. New connections are read at once, so
    that a flood on connections that stay open takes a bounded share of the processor.

    gate: admits uploads by their tokens.
    match_path: returns the experiment of an upload path, which may be unknown and empty; None for other paths.
    keys: keys of trusted senders, whose uploads need no token.
    origins: origins whose pages may read the answers (`privateer_core.serving.http.listeners`).
    """

    def __init__(
        self,
        gate: TokenGate,
        match_path: Callable[[str], str | None],
        count_refusals: Callable[[Mapping[str, int]], None],
        keys: TrustedKeys,
        clock: Clock | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self._gate, self._match_path, self._count_refusals, self._keys = (gate, match_path, count_refusals, keys)
        self._origins = frozenset(origins)
        self._waiting: deque[tuple[RefusedUpload, int]] = deque()
        self._next_release: asyncio.TimerHandle | None = None
        self._answers: dict[tuple[str, ...], bytes] = {}
        self._cached_senders: tuple[float, Mapping[str, Ed25519PublicKey]] = (-_KEYS_FRESH_SECONDS, {})
        self._clock = clock or SystemClock()

    def find_refusal(self, method: bytes, target: bytes, headers: Headers) -> tuple[bytes, int] | None:
        """Return the answer to an upload that is not admitted, which is counted, and its cost; None for others."""
        if method != b"POST":
            return None
        name = self._match_path(_decode_path(target))
        if name is None:
            return None
        headers_by_name = dict(headers)
        try:
            if _SENDER_HEADER in headers_by_name:
                UPLOAD.verify(headers_by_name[_SENDER_HEADER].decode("latin-1"), self._load_keys(), self._clock.now())
            else:
                self._gate.admit_early(headers_by_name.get(b"authorization"), name)
        except (TokenRefused, SenderRefused) as error:
            self._count_refusals({error.slug: 1})
            cost = _LOOK_COST if isinstance(error, TokenMissing) else _VERIFY_COST
            return self._build_answer(error, headers_by_name.get(b"origin", b"")), cost
        return None

    def _load_keys(self) -> Mapping[str, Ed25519PublicKey]:
        """Return the cached keys of trusted senders."""
        loaded_at, keys = self._cached_senders
        now = self._clock.monotonic()
        if now - loaded_at > _KEYS_FRESH_SECONDS:
            keys = self._keys.by_id()
            self._cached_senders = now, keys
        return keys

    def _build_answer(self, error: TokenRefused | SenderRefused, origin: bytes) -> bytes:
        """Return the bytes of the answer to a refusal, cached by its text and headers."""
        headers = {"www-authenticate": error.challenge} if isinstance(error, TokenRefused) else {}
        if self._origins:
            headers |= VARY_HEADERS | cors_headers(origin.decode("latin-1"), self._origins)
        header_lines = [f"{name}: {text}" for name, text in headers.items()]
        cache_key = (error.detail, *header_lines)
        answer = self._answers.get(cache_key)
        if answer is None:
            if len(self._answers) >= _ANSWER_CACHE_SIZE:
                self._answers.clear()
            body = problem_body(error, accepted=0, refused={error.slug: 1})
            head = (f"content-type: {MEDIA_TYPE}", f"content-length: {len(body)}", *header_lines, "", "")
            answer = self._answers[cache_key] = STATUS_LINE[error.status] + "\r\n".join(head).encode() + body
        return answer

    def hold(self, connection: RefusedUpload, cost: int) -> None:
        """Delay a connection, and resume reading when its turn has come."""
        self._waiting.append((connection, cost))
        if self._next_release is None:
            self._next_release = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._release_connections)

    def _release_connections(self) -> None:
        """Resume the connections whose turn has come, and schedule the next tick while any wait."""
        units = _UNITS_PER_TICK
        while self._waiting and units > 0:
            connection, cost = self._waiting.popleft()
            units -= cost
            connection.read_on()
        loop = asyncio.get_running_loop()
        self._next_release = loop.call_later(_TICK_SECONDS, self._release_connections) if self._waiting else None


def _decode_path(target: bytes) -> str:
    """Decode the path of a request target; empty if the target has no valid path."""
    try:
        return unquote(httptools.parse_url(target).path.decode("ascii"))
    except (httptools.HttpParserInvalidURLError, AttributeError, UnicodeDecodeError):
        return ""
