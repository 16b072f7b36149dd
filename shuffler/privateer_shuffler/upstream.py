"""All calls of the shuffler to the learning server."""

import asyncio
import ssl
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from privateer_core import errors
from privateer_core.prepared_types import cache_decoder
from privateer_core.wire.batch import CLOCK_REMEDY, SIGNATURE_HEADER, BatchAnswer, is_clock_problem
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import MEDIA_TYPE, Round, decode_publication
from privateer_shuffler.resources import Pin

_ANSWER_SECONDS: Final = 10.0
_LEARN_SECONDS: Final = 600.0
"""Timeout of a delivery: the server decrypts all reports of a batch, and learns from them, before it answers."""
_ANSWER_BYTES: Final = 64 << 10
_PUBLICATION_BYTES: Final = 64 << 20
_CLOCKS_DIFFER: Final = "the clocks of the shuffler and the learning server differ by minutes"


class _Response(NamedTuple):
    status: int
    body: bytes
    signed: str

    @property
    def is_success(self) -> bool:
        return httpx.codes.is_success(self.status)


class _ServerKey(msgspec.Struct):
    key: str


class Upstream:
    """A client of the learning server, which is not trusted: size and time of its responses are limited.

    url: base address of the server.
    transport: transport to the server; tests pass a transport to a server in the same process.
    authorities: file (PEM) of the certificate authorities to trust instead of the public authorities.
    pin: verifies the server's signatures; None: no verification.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        authorities: Path | None = None,
        pin: Pin | None = None,
    ) -> None:
        self._pin = pin
        # One long poll per experiment stays open, so the number of connections has no limit. The environment's proxies
        # are not used: the shuffler connects to the server alone.
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            limits=httpx.Limits(max_connections=None),
            timeout=_ANSWER_SECONDS,
            trust_env=False,
            verify=_load_authorities(authorities) if authorities else _public_authorities(),
        )

    async def fetch_publication(self, name: str, known_digest: bytes | None = None, wait: int = 0) -> bytes | None:
        """Fetch an encoded publication; None if its digest is ``known_digest`` after ``wait`` seconds at the server."""
        headers = {"accept": MEDIA_TYPE}
        if known_digest is not None:
            headers["if-none-match"] = f'"{known_digest.hex()}"'
        seconds = wait + _ANSWER_SECONDS
        response = await self._send("GET", _page_path(name, "policy"), seconds, headers=headers, params={"wait": wait})
        if response.status == HTTPStatus.NOT_MODIFIED and known_digest is not None:
            return None
        if read_slug(response.body) == errors.Deleted.slug:
            raise errors.Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        if response.status == HTTPStatus.NOT_FOUND:
            raise errors.NotFound("the server has no such experiment", remedy="check the name")
        if response.status != HTTPStatus.OK:
            raise _unexpected_response_error(response)
        if self._pin:
            self._pin.check_signature(response.signed, response.body)
        return response.body

    async def claim(self, name: str, signature: str) -> None:
        """Claim an experiment, so that the server takes batches from no other shuffler; raise if it refuses."""
        headers = {SIGNATURE_HEADER: signature}
        response = await self._send("POST", _page_path(name, "shuffler"), _ANSWER_SECONDS, headers=headers)
        if read_slug(response.body) == errors.Conflict.slug:
            remedy = "report through that one, or have the server's operator release its claim"
            raise errors.Unavailable("another shuffler takes the reports of this experiment", remedy=remedy)
        if is_clock_problem(response.body):
            raise errors.Unavailable(_CLOCKS_DIFFER, remedy=CLOCK_REMEDY)
        if read_slug(response.body) == errors.BatchRefused.slug:
            remedy = "its operator must add this shuffler's public key file to PRIVATEER_SHUFFLER_KEYS"
            raise errors.Unavailable("the learning server does not trust this shuffler", remedy=remedy)
        if not response.is_success:
            raise _unexpected_response_error(response)

    async def deliver(self, name: str, batch: bytes, signature: str, path: str = "/batches") -> BatchAnswer:
        """Deliver a signed batch of an experiment. A repeated delivery has the same answer."""
        response = await self._send_signed(name, path, batch, signature)
        if response is None:
            return BatchAnswer(0, {}, closed=True)
        try:
            return msgspec.json.decode(response.body, type=cache_decoder(BatchAnswer))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unexpected_response_error(response) from error

    async def open_batch(self, name: str, opening: bytes, signature: str) -> bytes | None:
        """Send the opening of a batch in shares, and return the leader's answer; None if the round is over."""
        response = await self._send_signed(name, "/openings", opening, signature)
        return response.body if response else None

    async def _send_signed(self, name: str, path: str, body: bytes, signature: str) -> _Response | None:
        """Send a signed body; None if the server takes no further batch of its round."""
        headers = {"content-type": MEDIA_TYPE, SIGNATURE_HEADER: signature}
        # An answer to an opening is smaller than the opening: a verifier share has fewer numbers than the leader's.
        max_bytes = max(_ANSWER_BYTES, len(body))
        response = await self._send("POST", path, _LEARN_SECONDS, max_bytes, headers=headers, content=body)
        slug = read_slug(response.body) if not response.is_success else ""
        if slug in (errors.RoundClosed.slug, errors.Deleted.slug):
            return None
        if is_clock_problem(response.body):
            raise errors.BatchRefused(_CLOCKS_DIFFER, remedy=CLOCK_REMEDY)
        if slug in (errors.BatchRefused.slug, errors.Conflict.slug):
            raise errors.BatchRefused(
                "the learning server refuses the batch of this shuffler",
                remedy="if another one claimed the experiment, have the server's operator release it (DELETE "
                f"{_page_path(name, 'shuffler')}); else compare the two services' versions and this shuffler's key",
            )
        if not response.is_success:
            raise _unexpected_response_error(response)
        return response

    async def check_key(self) -> None:
        """Fetch the server's key, and refuse a key other than the known keys."""
        response = await self._send("GET", "/log/key", _ANSWER_SECONDS)
        if not response.is_success:
            raise _unexpected_response_error(response)
        try:
            key = bytes.fromhex(msgspec.json.decode(response.body, type=cache_decoder(_ServerKey)).key)
        except (msgspec.DecodeError, ValueError) as error:
            raise _unexpected_response_error(response) from error
        if self._pin:
            self._pin.check_key(key)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(
        self, method: str, path: str, seconds: float, max_bytes: int = _PUBLICATION_BYTES, **request: Any
    ) -> _Response:
        """Send a request, and return the response; raise `Unavailable` if there is none within the limits."""
        headers = {"accept-encoding": "identity", **request.pop("headers", {})}
        timeout = httpx.Timeout(_ANSWER_SECONDS, read=seconds)
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, path, headers=headers, timeout=timeout, **request) as response,
            ):
                signed = response.headers.get(SIGNED_HEADER, "")
                return _Response(response.status_code, await _read_body(response, max_bytes), signed)
        except (httpx.HTTPError, TimeoutError) as error:
            remedy = "start it, or check PRIVATEER_SERVER_URL"
            raise errors.Unavailable("the learning server does not answer", remedy=remedy) from error


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    # A few compressed bytes could decompress to gigabytes.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise errors.Unavailable("the learning server's answer is compressed", remedy="try again later")
    max_bytes = max_bytes if response.status_code == HTTPStatus.OK else _ANSWER_BYTES
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise errors.Unavailable(
                f"the learning server's answer has more than {max_bytes} bytes", remedy="try again later"
            )
    return bytes(body)


def read_round(name: str, body: bytes) -> Round:
    """Return the round of an encoded publication, which must be for the experiment ``name``."""
    try:
        round_ = decode_publication(body).round
    except errors.Malformed as error:
        raise errors.Unavailable("the server's answer is not a publication", remedy="try again later") from error
    if round_.experiment != name:
        raise errors.Unavailable("the server answered for another experiment", remedy="try again later")
    return round_


def _page_path(name: str, page: str) -> str:
    return f"/experiments/{quote(name, safe='')}/{page}"


@cache
def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _load_authorities(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError:  # a file without certificates is an ssl.SSLError, which is one, too
        detail = f"{authorities.name} holds no certificates (PEM)"
        raise errors.SpecError(detail, field="PRIVATEER_SERVER_CA", remedy="check the path") from None


def _unexpected_response_error(response: _Response) -> errors.Unavailable:
    reason = f"{response.status} {read_slug(response.body)}"
    return errors.Unavailable(f"the learning server answered {reason}", remedy="try again later")
