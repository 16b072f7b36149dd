"""Carries out steps beside an event loop: their requests, and their pauses."""

from asyncio import ensure_future, get_running_loop, sleep, wait
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import Ask, EndpointAnswer, Sleep, Steps
from privateer_client.in_time import AwaitedResult
from privateer_client.transport import End, advance

if TYPE_CHECKING:
    import httpx

_THREADS: Final = 2
"""Threads beside an event loop: they wait for the disk, and with more of them the loop waits for its turn."""
_WAITING: Final = 32
"""Threads beside an event loop that wait for answers: as many requests are on their way at a time."""
_Result = TypeVar("_Result")


class AsyncExchange:
    """Carries out steps beside the event loop.

    transport: what requests go over; by default `ServiceConnections`, in threads.
    """

    def __init__(self, transport: "httpx.AsyncBaseTransport | None" = None) -> None:
        self._transport, self._connections = transport, ServiceConnections()

    def share(self) -> None:
        """Keep connections open from now on: they are many people's, and tie nothing together."""
        self._connections.share()

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        from privateer_client.given_transport import async_client_over

        return async_client_over(self._transport)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "privateer-client")

    @cached_property
    def _waiting_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_WAITING, "privateer-client-asks")

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        try:
            while True:
                step = await self.beside(advance, steps, answer)
                if isinstance(step, End):
                    return step.result  # type: ignore[no-any-return]
                if isinstance(step, Sleep):
                    await sleep(step.seconds)
                answer = None if isinstance(step, Sleep) else await self._answer(step)
        finally:
            # Others wait for the answer to a request that is cancelled, as long as anybody holds its error.
            with suppress(ValueError):  # a thread is still at it
                steps.close()

    async def beside(self, call: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Call in a thread, so that the event loop goes on."""
        return await get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **options))

    async def beside_in_time(self, call: Callable[..., _Result], end: float) -> _Result | None:
        """Call in a thread, and return None if it has not ended, nor begun what lasts, by ``end``."""
        promise = AwaitedResult()
        result = ensure_future(self.beside(call, is_awaited=promise.is_awaited))
        await wait({result}, timeout=max(0.0, end - monotonic()))
        if not result.done() and promise.give_up():
            result.add_done_callback(lambda done: done.cancelled() or done.exception())
            return None
        return await result

    async def _answer(self, ask: Ask) -> EndpointAnswer:
        if self._transport is None:
            return await get_running_loop().run_in_executor(self._waiting_threads, self._connections.answer, ask)
        from privateer_client.given_transport import async_answer_over

        return await async_answer_over(self._http, ask)

    async def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()
        for name in ("_threads", "_waiting_threads"):
            if name in self.__dict__:
                self.__dict__[name].shutdown(wait=False)
        self._connections.close()
