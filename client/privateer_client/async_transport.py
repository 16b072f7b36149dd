"""Execution of steps beside an event loop: their requests and pauses."""

from asyncio import ensure_future, get_running_loop, sleep, wait
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import DeliveryRequest, Sleep, Steps
from privateer_client.in_time import AwaitedResult
from privateer_client.transport import End, advance

if TYPE_CHECKING:
    import httpx

_LEDGER_THREADS: Final = 2
"""Threads beside an event loop for the ledger's disk writes; more threads would delay the event loop."""
_REQUEST_THREADS: Final = 32
"""Threads beside an event loop that wait for answers, and so the number of simultaneous requests."""
_Result = TypeVar("_Result")


class AsyncExchange:
    """An executor of steps beside the event loop.

    transport: the transport of requests; by default `ServiceConnections`, in threads.
    """

    def __init__(self, transport: "httpx.AsyncBaseTransport | None" = None) -> None:
        self._transport, self.connections = transport, ServiceConnections()

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """The client of httpx for the given transport, created at the first use."""
        import httpx

        from privateer_client.given_transport import OPTIONS

        return httpx.AsyncClient(transport=self._transport, **OPTIONS)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_LEDGER_THREADS, "privateer-client")

    @cached_property
    def _waiting_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_REQUEST_THREADS, "privateer-client-asks")

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Run all steps, and return their result."""
        try:
            step = await self.run_in_thread(advance, steps, None)
            while not isinstance(step, End):
                if isinstance(step, Sleep):
                    await sleep(step.seconds)
                    step = await self.run_in_thread(advance, steps, None)
                else:
                    step = await self._send_request(steps, step)
            return step.result  # type: ignore[no-any-return]
        finally:
            # Other participants wait for the answer to a cancelled request, until its steps are closed.
            with suppress(ValueError):  # a thread is still at it
                steps.close()

    async def run_in_thread(self, call: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Call a function in a thread, so that the event loop is not blocked."""
        return await get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **options))

    async def run_in_thread_until(self, call: Callable[..., _Result], end: float) -> _Result | None:
        """Call a function in a thread; return None if by ``end`` it has not ended or promised to change stored data."""
        promise = AwaitedResult()
        result = ensure_future(self.run_in_thread(call, is_awaited=promise.is_awaited))
        await wait({result}, timeout=max(0.0, end - monotonic()))
        if not result.done() and promise.abandon():
            result.add_done_callback(lambda future: future.cancelled() or future.exception())
            return None
        return await result

    async def _send_request(self, steps: Steps[Any], request: DeliveryRequest) -> DeliveryRequest | Sleep | End:
        """Send a request, and return the next step."""
        if self._transport is None:  # the same thread handles the answer, since changing threads is slow
            return await get_running_loop().run_in_executor(
                self._waiting_threads, lambda: advance(steps, self.connections.send(request))
            )
        from privateer_client.given_transport import send_async

        return await self.run_in_thread(advance, steps, await send_async(self._http, request))

    async def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()
        for name in ("_threads", "_waiting_threads"):
            if name in self.__dict__:
                self.__dict__[name].shutdown(wait=False)
        self.connections.close()
