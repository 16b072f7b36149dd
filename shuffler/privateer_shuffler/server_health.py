"""Whether the server can be followed, as the last probe and the last publications of each experiment say."""

import asyncio
import logging
from typing import Final

from privateer_core.errors import KeyChanged, PrivateerError, SignatureInvalid, Unavailable
from privateer_shuffler.delivery import Upstream

_LOOK_SECONDS: Final = 10.0
_log = logging.getLogger("privateer.shuffler")


class ServerHealth:
    """Probes the server, and takes note of what its publications were worth. The log tells when that changes."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._away: Unavailable | None = None
        self._refusal: PrivateerError | None = None
        self._lost: set[str] = set()
        self._told = ""

    @property
    def is_followed(self) -> bool:
        """Whether the server answers, has the known key, and no experiment's last publication was refused."""
        return not (self._away or self._refusal or self._lost)

    @property
    def has_refused(self) -> bool:
        """Whether a publication was not signed, and none that is has come since."""
        return self._refusal is not None

    def refuse(self, error: KeyChanged | SignatureInvalid) -> None:
        """Take note of a publication that the known server has not signed."""
        self._refusal = error

    def accept(self) -> None:
        """Take note of a publication that it has signed."""
        self._refusal = None

    def follows(self, name: str) -> bool:
        """Whether the last question for an experiment's publication was answered as it should be."""
        return name not in self._lost

    def lose(self, name: str) -> bool:
        """Take note that an experiment could not be followed; return whether it could before."""
        was_followed = self.follows(name)
        self._lost.add(name)
        return was_followed

    def find_again(self, name: str) -> None:
        """Take note that an experiment can be followed, or need not be any more."""
        self._lost.discard(name)

    async def check(self, *, is_taking: bool) -> None:
        """Probe the server, and refuse if nothing that it publishes could be followed.

        A shuffler that takes reports for a round goes on with that while the server is away, or something in between
        changes what it publishes.
        """
        await self._probe()
        if isinstance(self._refusal, KeyChanged) or (self._refusal and not is_taking):
            raise Unavailable(self._refusal.detail, remedy=self._refusal.remedy)
        if self._away and not is_taking:
            raise self._away

    async def _probe(self) -> None:
        try:
            await self._upstream.check()
        except Unavailable as error:
            self._away = error
        except KeyChanged as error:
            self._away, self._refusal = None, error
        else:
            self._away = None
            if isinstance(self._refusal, KeyChanged):
                self._refusal = None
        self._tell(self._refusal or self._away)

    def _tell(self, problem: PrivateerError | None) -> None:
        told = problem.detail if problem else ""
        if told and told != self._told:
            level = logging.ERROR if self._refusal else logging.WARNING
            _log.log(level, "no new round can be followed: %s", problem)
        elif self._told and not told:
            _log.warning("rounds can be followed again")
        self._told = told

    async def run(self) -> None:
        """Probe now and then, until the task is cancelled."""
        while True:
            await self._probe()
            await asyncio.sleep(_LOOK_SECONDS)
