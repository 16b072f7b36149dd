"""The learning server, as the shuffler sees it."""

import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx

from privateer.errors import DuplicateReport, NotFound, RoundClosed, SpecError, Unavailable
from privateer.wire.batch import SIGNATURE_HEADER
from privateer.wire.envelope import MEDIA_TYPE
from privateer.wire.problem import slug_of

_ANSWER_SECONDS: Final = 10.0
_LEARN_SECONDS: Final = 600.0
"""A server may open every report of a batch and learn from them before it answers."""
_TAKEN: Final = frozenset({DuplicateReport.slug, RoundClosed.slug})


class Upstream:
    """Calls to the learning server.

    Parameters
    ----------
    url
        Base address of the server.
    transport
        How to reach it; tests pass a server in the same process.
    authorities
        File (PEM) of the certificate authorities to trust instead of the public ones.

    Raises
    ------
    SpecError
        If ``authorities`` holds no certificates.
    """

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport | None = None, authorities: Path | None = None
    ) -> None:
        # One long poll an experiment stays open, so the number of connections has no limit. The environment's proxies
        # are not used: the shuffler talks to nobody but the server.
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            limits=limits,
            timeout=_ANSWER_SECONDS,
            trust_env=False,
            verify=_trusting(authorities) if authorities else True,
        )

    async def publication(self, name: str, known: bytes | None = None, wait: int = 0) -> bytes | None:
        """The encoded publication of an experiment's round; None if it still is the one with digest ``known``.

        Parameters
        ----------
        name
            The experiment.
        known
            Digest of the publication at hand.
        wait
            Seconds that the server may wait for a newer one.

        Raises
        ------
        NotFound
            If there is no such experiment.
        Unavailable
            If the server cannot be reached or gives no publication.
        """
        headers = {"accept": MEDIA_TYPE}
        if known is not None:
            headers["if-none-match"] = f'"{known.hex()}"'
        path = f"/experiments/{quote(name, safe='')}/policy"
        answer = await self._send("GET", path, wait + _ANSWER_SECONDS, headers=headers, params={"wait": wait})
        if answer.status_code == HTTPStatus.NOT_MODIFIED and known is not None:
            return None
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise NotFound("the server has no such experiment", remedy="check the name")
        if answer.status_code != HTTPStatus.OK:
            raise _unexpected(answer)
        return answer.content

    async def deliver(self, batch: bytes, signature: str) -> None:
        """Hand over a signed batch; returns once the server has it, now or since an earlier attempt.

        Raises
        ------
        Unavailable
            If the server did not take it: try again.
        """
        headers = {"content-type": MEDIA_TYPE, SIGNATURE_HEADER: signature}
        answer = await self._send("POST", "/batches", _LEARN_SECONDS, headers=headers, content=batch)
        if not answer.is_success and slug_of(answer.content) not in _TAKEN:
            raise _unexpected(answer)

    async def reachable(self) -> bool:
        """Whether the server answers."""
        try:
            answer = await self._send("GET", "/healthz", _ANSWER_SECONDS)
        except Unavailable:
            return False
        return answer.is_success

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        headers: dict[str, str] | None = None,
        params: dict[str, int] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        timeout = httpx.Timeout(_ANSWER_SECONDS, read=seconds)
        try:
            return await self._client.request(
                method, path, headers=headers, params=params, content=content, timeout=timeout
            )
        except httpx.HTTPError as error:
            raise Unavailable("the learning server does not answer", remedy="try again later") from error


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError:  # a file without certificates is an ssl.SSLError, which is one
        raise SpecError(
            f"{authorities.name} holds no certificates (PEM)", field="PRIVATEER_SERVER_CA", remedy="check the path"
        ) from None


def _unexpected(answer: httpx.Response) -> Unavailable:
    reason = f"{answer.status_code} {slug_of(answer.content)}"
    return Unavailable(f"the learning server answered {reason}", remedy="try again later")
