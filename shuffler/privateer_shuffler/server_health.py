"""Health of the server: whether it can be followed, by the last probe and the last publication of each experiment."""

import asyncio
import logging
from typing import Final

from privateer_core.errors import KeyChanged, PrivateerError, Unavailable
from privateer_shuffler.upstream import Upstream

_LOOK_SECONDS: Final = 10.0
_log = logging.getLogger("privateer.shuffler")


class ServerHealth:
    """The state of the server, by probes and by the validity of its publications. Changes are logged."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._unavailability: Unavailable | None = None
        # refusal of the last publication with a checked signature; None: the known server has signed it
        self.refusal: PrivateerError | None = None
        self.unfollowed: set[str] = set()  # experiments whose publications could not be fetched the last time
        self._logged_detail = ""

    @property
    def is_followed(self) -> bool:
        """Whether the server answers, has the known key, and no experiment's last publication was refused."""
        return not (self._unavailability or self.refusal or self.unfollowed)

    async def check(self, *, is_taking: bool) -> None:
        """Probe the server, and raise an error if none of its publications could be followed.

        A shuffler with an open round continues it while the server is unavailable, or its publications are altered in
        transit.
        """
        await self._probe()
        if isinstance(self.refusal, KeyChanged) or (self.refusal and not is_taking):
            raise Unavailable(self.refusal.detail, remedy=self.refusal.remedy)
        if self._unavailability and not is_taking:
            raise self._unavailability

    async def _probe(self) -> None:
        """Check the server's key, and note whether it is unavailable or has another key."""
        try:
            await self._upstream.check_key()
        except Unavailable as error:
            self._unavailability = error
        except KeyChanged as error:
            self._unavailability, self.refusal = None, error
        else:
            self._unavailability = None
            if isinstance(self.refusal, KeyChanged):
                self.refusal = None
        self._log_change(self.refusal or self._unavailability)

    def _log_change(self, error: PrivateerError | None) -> None:
        """Log an error once, and its end."""
        detail = error.detail if error else ""
        if detail and detail != self._logged_detail:
            level = logging.ERROR if self.refusal else logging.WARNING
            _log.log(level, "no new round can be followed: %s", error)
        elif self._logged_detail and not detail:
            _log.warning("rounds can be followed again")
        self._logged_detail = detail

    async def run(self) -> None:
        """Probe the server periodically, until the task is cancelled."""
        while True:
            await self._probe()
            await asyncio.sleep(_LOOK_SECONDS)
