"""Requests over a transport of httpx that the application gives: one to a test's server, or one of its own."""

from asyncio import timeout
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from privateer_client.delivery import (
    IDENTITY,
    Ask,
    EndpointAnswer,
    Silence,
    Unwelcome,
    answer_of,
    grow,
    most_of,
    silent,
)

_OPTIONS: Final[dict[str, Any]] = {
    "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),  # one would tie the report to the fetch
    "follow_redirects": False,
}


def client_over(transport: httpx.BaseTransport | None) -> httpx.Client:
    """Return what asks over a transport."""
    return httpx.Client(transport=transport, **_OPTIONS)


def async_client_over(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """Return the same for asyncio."""
    return httpx.AsyncClient(transport=transport, **_OPTIONS)


def answer_over(http: httpx.Client, ask: Ask) -> EndpointAnswer:
    """Return the answer to one request; of status 0 if there is none that can be used."""
    body = bytearray()
    try:
        with http.stream(**_request(ask)) as response:
            most = most_of(ask, response.status_code, response.headers.get("content-encoding", IDENTITY))
            for chunk in response.iter_bytes():
                grow(body, chunk, most)
    except (httpx.RequestError, Unwelcome) as error:
        return silent(_why(error))
    return answer_of(response.status_code, body, response.headers)


async def async_answer_over(http: httpx.AsyncClient, ask: Ask) -> EndpointAnswer:
    """Return the same as `answer_over`."""
    body = bytearray()
    try:
        async with timeout(ask.timeout), http.stream(**_request(ask)) as response:
            most = most_of(ask, response.status_code, response.headers.get("content-encoding", IDENTITY))
            async for chunk in response.aiter_bytes():
                grow(body, chunk, most)
    except (httpx.RequestError, Unwelcome, TimeoutError) as error:
        return silent(_why(error))
    return answer_of(response.status_code, body, response.headers)


def _request(ask: Ask) -> dict[str, Any]:
    return {
        "method": ask.method,
        "url": ask.url,
        "content": ask.body,
        "headers": ask.headers | {"Accept-Encoding": IDENTITY},
        "timeout": ask.timeout,
    }


def _why(error: Exception) -> Silence:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Silence.LATE
    return Silence.CLOSED if isinstance(error, httpx.ConnectError) else Silence.NONSENSE
