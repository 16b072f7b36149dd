"""What has changed of all experiments, told in beats that are the same for everybody.

A stream that told of each report at once would tell whoever listens when somebody reports. So nothing is looked at but
on the beat, and what was looked at is what the public pages say: a stream tells no more than a page that somebody asks
for once in each beat.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from privateer_server.api import models, views
from privateer_server.experiment import Experiment

BEAT_SECONDS: Final = 4.0
"""Equals the interval at which the dashboard asks where it has no stream."""
KEPT_SECONDS: Final = 60.0
"""For so long it is told that an experiment was deleted. Who comes later, and who is new, is told what there is."""


class _Seen(NamedTuple):
    """Where an experiment stood, and the number of the beat that brought that, with its time; None: it was deleted."""

    number: int
    standing: models.Standing | None
    at: float


class News:
    """The beats, and what each of them brought.

    Time is beaten only while somebody listens. Whoever comes meanwhile hears what the last beat brought.

    Parameters
    ----------
    experiments
        What is looked at.
    beat
        Seconds from a beat to the next one.
    kept
        Seconds for which a deletion is told.
    """

    def __init__(
        self, experiments: Iterable[Experiment], beat: float = BEAT_SECONDS, kept: float = KEPT_SECONDS
    ) -> None:
        self._experiments, self._beat, self._kept = experiments, beat, kept
        self._forgotten = 0  # the number of the last deletion that is told no more
        self._epoch, self._number = secrets.token_hex(8), 0
        self._seen: dict[str, _Seen] = {}
        self._listeners = 0
        self._is_beating = self._is_over = False
        self._next = asyncio.Event()

    def end(self) -> None:
        """Let all streams end, and those to come after their first message: the process is about to stop."""
        self._is_over = True
        self._next.set()

    async def follow(self, since: str = "", name: str | None = None) -> AsyncGenerator[models.News | None, None]:
        """Yield what is to be told: first all that changed after a message, then with each beat what it brought.

        None stands for a beat that brought nothing.

        Parameters
        ----------
        since
            The id of the last message that was heard; where it is not one of this process, everything is told.
        name
            The experiment that it is about; by default all are. Once it is deleted, nothing more is told.
        """
        with self._listening():
            after = self._read(since)
            while True:
                news, after, following = self._news(after, name), self._number, self._next
                yield news
                if self._is_over or (news and name in news.deleted):
                    return
                await following.wait()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if not self._listeners:
            self._look()
            if not self._is_beating:  # who left may have left a beat that is still to come: one follows it, not two
                self._is_beating = True
                self._later()
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    def _later(self) -> None:
        loop = asyncio.get_running_loop()
        # On a grid of the clock: nobody chooses by his coming when the beats are.
        loop.call_later(self._beat - loop.time() % self._beat, self._strike)

    def _strike(self) -> None:
        self._is_beating = self._listeners > 0 and not self._is_over
        if self._listeners:
            self._look()
        if self._is_beating:
            struck, self._next = self._next, asyncio.Event()
            struck.set()
            self._later()

    def _look(self) -> None:
        number, there, now = self._number + 1, set[str](), asyncio.get_running_loop().time()
        for experiment in self._experiments:
            there.add(experiment.name)
            standing = views.standing(experiment)
            before = self._seen.get(experiment.name)
            if before is None or before.standing != standing:
                self._seen[experiment.name], self._number = _Seen(number, standing, now), number
        for name, seen in self._seen.items():
            if name not in there and seen.standing is not None:
                self._seen[name], self._number = _Seen(number, None, now), number
        self._forget(now - self._kept)

    def _forget(self, before: float) -> None:
        for name, seen in list(self._seen.items()):
            if seen.standing is None and seen.at < before:
                self._forgotten = max(self._forgotten, seen.number)
                del self._seen[name]

    def _read(self, since: str) -> int:
        """Return the number of a message; -1 if it is none of this process."""
        epoch, _, number = since.partition("-")
        is_known = epoch == self._epoch and number.isdecimal() and len(number) < 16
        return int(number) if is_known and int(number) <= self._number else -1

    def _news(self, after: int, name: str | None) -> models.News | None:
        if after < self._forgotten:
            after = -1
        # A newcomer who listens to everything does not learn what was deleted before; who asks for its name does.
        wanted = {
            one: seen
            for one, seen in self._seen.items()
            if one == name or (name is None and (after >= 0 or seen.standing))
        }
        found = [(one, seen.standing) for one, seen in wanted.items() if seen.number > after]
        if not found and after >= 0:
            return None
        return models.News(
            id=f"{self._epoch}-{self._number}",
            whole=after < 0,
            experiments=[standing for _, standing in found if standing],
            deleted=[one for one, standing in found if standing is None],
        )
