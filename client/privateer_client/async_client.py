"""Clients for asyncio, whose sessions use the ledger and decide in threads beside the event loop."""

import asyncio
from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from privateer_client.arm import Arm, Fallbacks, make_not_requested_async
from privateer_client.async_session import AsyncSession
from privateer_client.base_client import BaseClient
from privateer_client.connections import ServiceConnections
from privateer_client.delivery import (
    IDENTITY,
    DeliveryRequest,
    End,
    EndpointAnswer,
    Sleep,
    Steps,
    UnacceptableAnswer,
    advance,
    append_chunk,
    body_bytes_max,
    make_answer,
)
from privateer_client.in_time import SERVER_TIME_SHARE, SESSION_SECONDS, AwaitedResult, Joins
from privateer_client.session import Session
from privateer_client.states import ReportStatus
from privateer_client.transport import classify_error, httpx_options
from privateer_core.errors import PrivateerError
from privateer_core.privacy.terms_verification import Limits

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

        return httpx.AsyncClient(transport=self._transport, **httpx_options())

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
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **options))

    async def run_in_thread_until(self, call: Callable[..., _Result], end: float) -> _Result | None:
        """Call a function in a thread; return None if by ``end`` it has not ended or promised to change stored data."""
        promise = AwaitedResult()
        result = asyncio.ensure_future(self.run_in_thread(call, is_awaited=promise.is_awaited))
        await asyncio.wait({result}, timeout=max(0.0, end - monotonic()))
        if not result.done() and promise.abandon():
            result.add_done_callback(lambda future: future.cancelled() or future.exception())
            return None
        return await result

    async def _send_request(self, steps: Steps[Any], request: DeliveryRequest) -> DeliveryRequest | Sleep | End:
        """Send a request, and return the next step."""
        if self._transport is None:  # the same thread handles the answer, since changing threads is slow
            return await asyncio.get_running_loop().run_in_executor(
                self._waiting_threads, lambda: advance(steps, self.connections.send(request))
            )
        return await self.run_in_thread(advance, steps, await self._send_by_httpx(request))

    async def _send_by_httpx(self, request: DeliveryRequest) -> EndpointAnswer:
        """Send a request by the given transport, and return the answer; of status 0 if there is no usable answer."""
        import httpx

        body, (method, url, headers, seconds, content, _) = bytearray(), request
        stream = self._http.stream(
            method, url, content=content, headers=headers | {"Accept-Encoding": IDENTITY}, timeout=seconds
        )
        try:
            async with asyncio.timeout(seconds), stream as response:
                encoding = response.headers.get("content-encoding", IDENTITY)
                limit = body_bytes_max(request, response.status_code, encoding)
                async for chunk in response.aiter_bytes():
                    append_chunk(body, chunk, limit)
        except (httpx.RequestError, UnacceptableAnswer, TimeoutError) as error:
            return EndpointAnswer(0, silence=classify_error(error))
        return make_answer(response.status_code, body, response.headers)

    async def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()
        for name in ("_threads", "_waiting_threads"):
            if name in self.__dict__:
                self.__dict__[name].shutdown(wait=False)
        self.connections.close()


class AsyncSessionsInTime(Joins):
    """Sessions by experiment, which are joined in the background, as `SessionsInTime`."""

    def __init__(
        self,
        url: str,
        make_steps: Callable[[str], Steps[Session[Any]]],
        run: Callable[[Steps[Session[Any]]], Awaitable[Session[Any]]],
        load_stored: Callable[[str], Awaitable[Session[Any] | None]],
    ) -> None:
        super().__init__(url, make_steps)
        self._run, self._load_stored = run, load_stored
        self._joins: dict[str, tuple[float, asyncio.Future[Session[Any]]]] = {}
        self._sessions: dict[str, Session[Any]] = {}

    async def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is no session ``seconds`` after the start of the join."""
        began, future = self._joins.get(name, (0.0, None))
        is_old = future is not None and future.done() and (_has_failed(future) or monotonic() - began > SESSION_SECONDS)
        if future is None or is_old or future.get_loop() is not asyncio.get_running_loop():
            began, future = monotonic(), asyncio.ensure_future(self._join_session(name))
            future.add_done_callback(_has_failed)  # retrieves an exception that may be awaited nowhere
            self._joins[name] = (began, future)
        await asyncio.wait({future}, timeout=max(0.0, began + SERVER_TIME_SHARE * seconds - monotonic()))
        return future.result() if future.done() else self._sessions.get(name)

    async def _join_session(self, name: str) -> Session[Any]:
        """Join an experiment, and store its session; until then, store the session of the stored publication."""
        if name not in self._sessions:
            with suppress(PrivateerError):
                stored = await self._load_stored(name)
                if stored is not None:
                    self._sessions[name] = stored
        session = self._sessions[name] = await self._run(self.begin_steps(name))
        return session


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.cancelled() or future.exception() is not None


class AsyncClient(BaseClient["httpx.AsyncBaseTransport"]):
    """A `Client` for asyncio: ``await`` all methods that use the network or the ledger.

    A session uses the ledger and decides in a thread beside the event loop.
    """

    def _open(self, transport: "httpx.AsyncBaseTransport | None") -> None:
        """Create the exchange with services, by the given transport or by own connections."""
        self._exchange = AsyncExchange(transport)
        self._connections = self._exchange.connections
        self._fallbacks: Fallbacks[Awaitable[ReportStatus]] = Fallbacks(make_not_requested_async)

    @cached_property
    def _in_time(self) -> AsyncSessionsInTime:
        """The sessions that choose within a time limit, created at the first use."""
        run = self._exchange.run
        make_steps = partial(self._join_steps, run, cohort="")
        load_stored = partial(self._exchange.run_in_thread, self._offline_session, run)
        return AsyncSessionsInTime(self._url, make_steps, run, load_stored)

    def person(
        self, key: str | int, attest: Callable[[str], str] | None = None, *, limits: Limits | None = None
    ) -> Self:
        """Return the client of a participant, as `Client.person`."""
        return self._make_person_client(key, attest, limits)

    async def arm(
        self, name: str, context: Mapping[str, Any] = {}, *, default: Any, within: float = 0.3, sticky: bool = True
    ) -> Arm[Awaitable[ReportStatus]]:
        """Return this participant's arm, or the default, as `Client.arm`."""
        end = monotonic() + within
        choose = partial(self._fallbacks.choose, context=context, sticky=sticky)

        def choose_without_request(is_awaited: Callable[[], bool]) -> Arm[Awaitable[ReportStatus]] | None:
            return self._choose_without_request(self._exchange.run, name, partial(choose, is_awaited=is_awaited))

        try:
            arm = await self._exchange.run_in_thread_until(choose_without_request, end) if self._is_shared else None
            if arm is None:
                session = await self._in_time.get(name, end - monotonic())
                if session is None:
                    raise self._in_time.late_error(name, within)
                arm = await self._exchange.run_in_thread_until(partial(choose, session), end)
            if arm is None:
                raise self._in_time.late_error(name, within)
            return replace(arm, session=self._wrap_session(cast(Session[Awaitable[ReportStatus]], arm.session)))
        except Exception as error:
            return self._fallbacks.choose_default(name, default, error)

    async def join(self, name: str, cohort: str = "") -> AsyncSession:
        """Join an experiment, as `Client.join`."""
        return self._wrap_session(await self._exchange.run(self._join_steps(self._exchange.run, name, cohort)))

    async def resume(self, name: str) -> AsyncSession:
        """Resume the session of a stored choice, as `Client.resume`."""
        return self._wrap_session(await self._exchange.run_in_thread(self._resume_session, self._exchange.run, name))

    async def report(self, name: str, reward: Any) -> ReportStatus:
        """Report on the stored choice, as `Client.report`."""
        return await self._exchange.run(self._report_steps(self._exchange.run, name, reward))

    async def flush(self) -> dict[str, ReportStatus]:
        """Do what `Client.flush` does."""
        return await self._exchange.run(self._flush_steps())

    async def flush_people(self) -> dict[str, Counter[ReportStatus]]:
        """Do what `Client.flush_people` does."""
        return await self._exchange.run(self._flush_people_steps())

    async def fetch_tokens(self, name: str) -> int:
        """Fetch upload tokens in advance, as `Client.fetch_tokens`."""
        return await self._exchange.run(self._prefetch_tokens_steps(name))

    async def forget(self) -> None:
        """Erase the participant's data, as `Client.forget`."""
        await self._exchange.run(self._forget_steps())

    def _wrap_session(self, session: Session[Awaitable[ReportStatus]]) -> AsyncSession:
        return AsyncSession(session, self._exchange.run_in_thread)

    async def close(self) -> None:
        """Close the connections, as `Client.close`."""
        if not self._is_shared:
            await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
