"""Execution of steps: their requests and pauses, over own connections or an httpx transport of the application."""

from functools import cached_property
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import (
    IDENTITY,
    DeliveryRequest,
    End,
    EndpointAnswer,
    Silence,
    Sleep,
    Steps,
    UnacceptableAnswer,
    advance,
    append_chunk,
    body_bytes_max,
    make_answer,
)

if TYPE_CHECKING:
    import httpx

_Result = TypeVar("_Result")


class HttpExchange:
    """A blocking executor of steps.

    transport: the transport of requests; by default `ServiceConnections`.
    """

    def __init__(self, transport: "httpx.BaseTransport | None" = None) -> None:
        self._transport, self.connections = transport, ServiceConnections()

    @cached_property
    def _http(self) -> "httpx.Client":
        """The client of httpx for the given transport, created at the first use."""
        import httpx

        return httpx.Client(transport=self._transport, **httpx_options())

    def run(self, steps: Steps[_Result]) -> _Result:
        """Run all steps, and return their result."""
        step = advance(steps, None)
        while not isinstance(step, End):
            if isinstance(step, Sleep):
                sleep(step.seconds)
            step = advance(steps, None if isinstance(step, Sleep) else self._send(step))
        return step.result  # type: ignore[no-any-return]

    def _send(self, request: DeliveryRequest) -> EndpointAnswer:
        """Send a request by the given transport, or by own connections without one."""
        return self.connections.send(request) if self._transport is None else _send(self._http, request)

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()
        self.connections.close()


def httpx_options() -> dict[str, Any]:
    """Return the options of an httpx client with a given transport."""
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    no_cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))  # one would tie the report to the fetch
    return {"cookies": no_cookies, "follow_redirects": False}


def _send(http: "httpx.Client", request: DeliveryRequest) -> EndpointAnswer:
    """Send a request by httpx, and return the answer; of status 0 if there is no usable answer."""
    import httpx

    body, (method, url, headers, seconds, content, _) = bytearray(), request
    headers = headers | {"Accept-Encoding": IDENTITY}
    try:
        with http.stream(method, url, content=content, headers=headers, timeout=seconds) as response:
            limit = body_bytes_max(request, response.status_code, response.headers.get("content-encoding", IDENTITY))
            for chunk in response.iter_bytes():
                append_chunk(body, chunk, limit)
    except (httpx.RequestError, UnacceptableAnswer) as error:
        return EndpointAnswer(0, silence=classify_error(error))
    return make_answer(response.status_code, body, response.headers)


def classify_error(error: Exception) -> Silence:
    """Return why a request by httpx got no usable answer."""
    import httpx

    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Silence.LATE
    return Silence.CLOSED if isinstance(error, httpx.ConnectError) else Silence.NONSENSE
