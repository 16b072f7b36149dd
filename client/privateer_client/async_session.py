"""The session of a participant for asyncio."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from privateer_client.session import Session
from privateer_client.states import ReportStatus


class AsyncSession:
    """A `Session` of an `AsyncClient`: the same, with ``await`` for all methods that use the ledger."""

    def __init__(self, session: Session[Awaitable[ReportStatus]], run_in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._session, self._run_in_thread = session, run_in_thread

    async def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        """Choose for this participant, as `Session.choose`."""
        return await self._run_in_thread(self._session.choose, context, fresh=fresh, sticky=sticky)

    async def save(self) -> None:
        """Store the choice, as `Session.save`."""
        await self._run_in_thread(self._session.save)

    async def forget(self) -> None:
        """Erase the choice, as `Session.forget`."""
        await self._run_in_thread(self._session.forget)

    async def report(self, reward: Any) -> ReportStatus:
        """Report on the choice, as `Session.report`."""
        return await self._session.report(reward)

    async def report_past(
        self, context: Mapping[str, Any], arm: str, reward: Any, propensity: float | None = None
    ) -> ReportStatus:
        """Report on an earlier arm, as `Session.report_past`."""
        return await self._session.report_past(context, arm, reward, propensity)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the `Session`: ``report_requested``, ``offline``, ``features`` and the others."""
        return getattr(self._session, name)
