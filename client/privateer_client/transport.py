"""Carries out steps: their requests, and their pauses."""

from asyncio import ensure_future, get_running_loop, timeout, wait
from asyncio import sleep as async_sleep
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from privateer_client.connections import ServiceConnections
from privateer_client.delivery import (
    IDENTITY,
    Ask,
    EndpointAnswer,
    Silence,
    Sleep,
    Steps,
    Unwelcome,
    answer_of,
    grow,
    most_of,
    silent,
)
from privateer_client.in_time import AwaitedResult

_OPTIONS: Final[dict[str, Any]] = {
    "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),  # one would tie the report to the fetch
    "follow_redirects": False,
}
_THREADS: Final = 2
"""Threads beside an event loop: they wait for the disk, and with more of them the loop waits for its turn."""
_WAITING: Final = 32
"""Threads beside an event loop that wait for answers: as many requests are on their way at a time."""
_Result = TypeVar("_Result")


class Exchange:
    """Carries out steps, and waits meanwhile.

    transport: what requests go over; by default `ServiceConnections`.
    """

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport, self._connections = transport, ServiceConnections()

    def share(self) -> None:
        """Keep connections open from now on: they are many people's."""
        self._connections.share()

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(transport=self._transport, **_OPTIONS)

    def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            step = _advance(steps, answer)
            if isinstance(step, _End):
                return step.result  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else self._answer(step)

    def _answer(self, ask: Ask) -> EndpointAnswer:
        if self._transport is None:
            return self._connections.answer(ask)
        body = bytearray()
        try:
            with self._http.stream(**_request(ask)) as response:
                most = most_of(ask, response.status_code, response.headers.get("content-encoding", IDENTITY))
                for chunk in response.iter_bytes():
                    grow(body, chunk, most)
        except (httpx.RequestError, Unwelcome) as error:
            return silent(_why(error))
        return answer_of(response.status_code, body, response.headers)

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()
        self._connections.close()


class AsyncExchange:
    """Carries out steps beside the event loop.

    transport: what requests go over; by default `ServiceConnections`, in threads.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport, self._connections = transport, ServiceConnections()

    def share(self) -> None:
        """Keep connections open from now on: they are many people's, and tie nothing together."""
        self._connections.share()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, **_OPTIONS)

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
                step = await self.beside(_advance, steps, answer)
                if isinstance(step, _End):
                    return step.result  # type: ignore[no-any-return]
                if isinstance(step, Sleep):
                    await async_sleep(step.seconds)
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
        body = bytearray()
        try:
            async with timeout(ask.timeout), self._http.stream(**_request(ask)) as response:
                most = most_of(ask, response.status_code, response.headers.get("content-encoding", IDENTITY))
                async for chunk in response.aiter_bytes():
                    grow(body, chunk, most)
        except (httpx.RequestError, Unwelcome, TimeoutError) as error:
            return silent(_why(error))
        return answer_of(response.status_code, body, response.headers)

    async def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()
        for name in ("_threads", "_waiting_threads"):
            if name in self.__dict__:
                self.__dict__[name].shutdown(wait=False)
        self._connections.close()


class _End(NamedTuple):
    """The result of steps."""

    result: Any


def _advance(steps: Steps[Any], answer: EndpointAnswer | None) -> "Ask | Sleep | _End":
    try:
        return steps.send(answer)
    except StopIteration as end:
        return _End(end.value)


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
