"""Requests over an httpx transport of the application, such as a transport to a test server."""

from asyncio import timeout
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from privateer_client.delivery import (
    IDENTITY,
    DeliveryRequest,
    EndpointAnswer,
    Silence,
    UnacceptableAnswer,
    append_chunk,
    body_bytes_max,
    make_answer,
)

OPTIONS: Final[dict[str, Any]] = {
    "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),  # one would tie the report to the fetch
    "follow_redirects": False,
}
"""The options of an httpx client with a given transport."""


def send(http: httpx.Client, request: DeliveryRequest) -> EndpointAnswer:
    """Send a request, and return the answer; of status 0 if there is no usable answer."""
    body = bytearray()
    try:
        with http.stream(**_stream_arguments(request)) as response:
            limit = body_bytes_max(request, response.status_code, response.headers.get("content-encoding", IDENTITY))
            for chunk in response.iter_bytes():
                append_chunk(body, chunk, limit)
    except (httpx.RequestError, UnacceptableAnswer) as error:
        return EndpointAnswer(0, silence=_classify_error(error))
    return make_answer(response.status_code, body, response.headers)


async def send_async(http: httpx.AsyncClient, request: DeliveryRequest) -> EndpointAnswer:
    """Send a request, and return the answer, as `send`."""
    body = bytearray()
    try:
        async with timeout(request.timeout), http.stream(**_stream_arguments(request)) as response:
            limit = body_bytes_max(request, response.status_code, response.headers.get("content-encoding", IDENTITY))
            async for chunk in response.aiter_bytes():
                append_chunk(body, chunk, limit)
    except (httpx.RequestError, UnacceptableAnswer, TimeoutError) as error:
        return EndpointAnswer(0, silence=_classify_error(error))
    return make_answer(response.status_code, body, response.headers)


def _stream_arguments(request: DeliveryRequest) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.stream` for a request; the answer comes without compression."""
    return {
        "method": request.method,
        "url": request.url,
        "content": request.body,
        "headers": request.headers | {"Accept-Encoding": IDENTITY},
        "timeout": request.timeout,
    }


def _classify_error(error: Exception) -> Silence:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Silence.LATE
    return Silence.CLOSED if isinstance(error, httpx.ConnectError) else Silence.NONSENSE
