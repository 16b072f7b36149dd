"""Carries out steps: their requests, and their pauses."""

from functools import cached_property
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import Ask, EndpointAnswer, Sleep, Steps

if TYPE_CHECKING:
    import httpx

_Result = TypeVar("_Result")


class Exchange:
    """Carries out steps, and waits meanwhile.

    transport: what requests go over; by default `ServiceConnections`.
    """

    def __init__(self, transport: "httpx.BaseTransport | None" = None) -> None:
        self._transport, self._connections = transport, ServiceConnections()

    def share(self) -> None:
        """Keep connections open from now on: they are many people's."""
        self._connections.share()

    @cached_property
    def _http(self) -> "httpx.Client":
        from privateer_client.given_transport import client_over

        return client_over(self._transport)

    def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            step = advance(steps, answer)
            if isinstance(step, End):
                return step.result  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else self._answer(step)

    def _answer(self, ask: Ask) -> EndpointAnswer:
        if self._transport is None:
            return self._connections.answer(ask)
        from privateer_client.given_transport import answer_over

        return answer_over(self._http, ask)

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()
        self._connections.close()


class End(NamedTuple):
    """The result of steps."""

    result: Any


def advance(steps: Steps[Any], answer: EndpointAnswer | None) -> Ask | Sleep | End:
    """Return the next step."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        return End(end.value)
