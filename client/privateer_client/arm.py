"""The arm that a page shows: the person's, or the default where there is none in time."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from privateer_client.session import Reported, Session
from privateer_client.states import Outcome
from privateer_core.errors import PrivateerError, Unavailable

if TYPE_CHECKING:
    from privateer_client.async_session import AsyncSession

_log: Final = logging.getLogger("privateer.client")


@dataclass(frozen=True)
class Arm(Generic[Reported]):
    """What a page shows; `Client.arm` returns it.

    Attributes
    ----------
    name
        The person's arm, or the default.
    fallback
        Why it is the default; None: it is the person's.
    session
        The person's session; None if there is none.
    """

    name: Any
    fallback: str | None
    session: "Session[Reported] | AsyncSession | None"
    _unasked: Callable[[], Reported]

    def report(self, reward: Any) -> Reported:
        """Do what `Session.report` does; nothing is reported on a default, which is ``not-asked``."""
        if self.fallback is not None or self.session is None:
            return self._unasked()
        return cast(Reported, self.session.report(reward))


class Fallbacks(Generic[Reported]):
    """Makes arms, of a session or of what kept it away; tells the developer each reason once."""

    def __init__(self, unasked: Callable[[], Reported]) -> None:
        self._unasked, self._told = unasked, set[tuple[str, str]]()

    def arm(
        self,
        session: Session[Reported],
        context: Mapping[str, Any],
        *,
        sticky: bool,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> Arm[Reported]:
        """Return the person's arm."""
        shown = session.choose_in_time(is_awaited, context, sticky=sticky)
        return Arm(shown, None, session, self._unasked)

    def default(self, name: str, default: Any, error: Exception) -> Arm[Reported]:
        """Return the default."""
        # Other errors than ours may quote what a person has.
        why = str(error) if isinstance(error, PrivateerError) else type(error).__name__
        if (name, why) not in self._told:
            self._told.add((name, why))
            _log.warning("%s: the default is shown: %s", name, why)
        return Arm(default, why, None, self._unasked)


def late(server: str, seconds: float) -> Unavailable:
    """Return the error about a server that takes its time."""
    return Unavailable(f"{server} did not answer within {seconds:g} s", remedy="try again later")


def unasked() -> Outcome:
    """Report nothing."""
    return Outcome.NOT_ASKED


async def unasked_async() -> Outcome:
    """Report nothing."""
    return Outcome.NOT_ASKED
