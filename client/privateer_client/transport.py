"""Execution of steps: their requests and pauses."""

from functools import cached_property
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Sleep, Steps

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

        from privateer_client.given_transport import OPTIONS

        return httpx.Client(transport=self._transport, **OPTIONS)

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
        if self._transport is None:
            return self.connections.send(request)
        from privateer_client.given_transport import send

        return send(self._http, request)

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()
        self.connections.close()


class End(NamedTuple):
    """The result of steps."""

    result: Any


def advance(steps: Steps[Any], answer: EndpointAnswer | None) -> DeliveryRequest | Sleep | End:
    """Send an answer to the steps, and return the next step or the result."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        return End(end.value)
