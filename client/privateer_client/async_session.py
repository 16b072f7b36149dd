"""A session for asyncio: the ledger and the decision take their time beside the event loop."""

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from privateer_client.session import Session
from privateer_client.states import Outcome

if TYPE_CHECKING:
    from privateer_client.async_transport import AsyncExchange


class AsyncSession:
    """A `Session` of an `AsyncClient`: the same, with ``await`` for everything that the ledger takes part in."""

    def __init__(self, session: Session[Awaitable[Outcome]], exchange: "AsyncExchange") -> None:
        self._session, self._exchange = session, exchange

    async def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        """Do what `Session.choose` does."""
        return await self._exchange.beside(self._session.choose, context, fresh=fresh, sticky=sticky)

    async def save(self) -> None:
        """Do what `Session.save` does."""
        await self._exchange.beside(self._session.save)

    async def forget(self) -> None:
        """Do what `Session.forget` does."""
        await self._exchange.beside(self._session.forget)

    async def report(self, reward: Any) -> Outcome:
        """Do what `Session.report` does."""
        return await self._session.report(reward)

    async def report_past(self, context: Mapping[str, Any], arm: str, reward: Any) -> Outcome:
        """Do what `Session.report_past` does."""
        return await self._session.report_past(context, arm, reward)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the `Session`: ``asked``, ``offline``, ``features`` and the others."""
        return getattr(self._session, name)
