"""The arm that a page shows: the participant's arm, or the default if there is no arm in time."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Generic, cast

from privateer_client.async_session import AsyncSession
from privateer_client.session import Reported, Session
from privateer_client.states import ReportStatus
from privateer_core.errors import PrivateerError

_log: Final = logging.getLogger("privateer.client")
_REPEAT_SECONDS: Final = 3600.0
"""Seconds after which a reason is logged again, since a process may have a client for each participant."""
_REASONS_MAX: Final = 1000
_log_times: Final = dict[tuple[str, str], float]()
"""The time of each reason's last log line, by experiment and reason."""


@dataclass(frozen=True)
class Arm(Generic[Reported]):
    """The arm to show on a page; `Client.arm` returns it.

    Attributes
    ----------
    name
        The participant's arm, or the default.
    fallback
        The reason for showing the default; None: the arm is the participant's.
    session
        The participant's session; None if there is no session.
    """

    name: Any
    fallback: str | None
    session: Session[Reported] | AsyncSession | None
    _report_not_requested: Callable[[], Reported]

    def report(self, reward: Any) -> Reported:
        """Report as `Session.report`; on a default nothing is reported, which is ``not-requested``."""
        if self.fallback is not None or self.session is None:
            return self._report_not_requested()
        return cast(Reported, self.session.report(reward))


class Fallbacks(Generic[Reported]):
    """A factory of arms, from a session or from the error that prevented it."""

    def __init__(self, report_not_requested: Callable[[], Reported]) -> None:
        self._report_not_requested = report_not_requested

    def choose(
        self,
        session: Session[Reported],
        context: Mapping[str, Any],
        *,
        sticky: bool,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> Arm[Reported]:
        """Return the participant's arm, which the session chooses and stores if it is still awaited."""
        arm = session.choose_in_time(is_awaited, context, sticky=sticky)
        return Arm(arm, None, session, self._report_not_requested)

    def choose_default(self, name: str, default: Any, error: Exception) -> Arm[Reported]:
        """Return the default as the arm, with the error as the reason, and log the reason once an hour."""
        # Errors of other libraries may quote a participant's values.
        reason = str(error) if isinstance(error, PrivateerError) else type(error).__name__
        now = monotonic()
        if now - _log_times.get((name, reason), -math.inf) >= _REPEAT_SECONDS:
            if len(_log_times) >= _REASONS_MAX:
                _log_times.clear()
            _log_times[name, reason] = now
            _log.warning("%s: the default is shown: %s", name, reason)
        return Arm(default, reason, None, self._report_not_requested)


async def make_not_requested_async() -> ReportStatus:
    """Return the status of a report that is not requested."""
    return ReportStatus.NOT_REQUESTED
