"""The publications of one experiment for all the people of a process: fetched, checked and parsed once for them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from threading import Lock
from typing import Any, Final, NamedTuple

from typing_extensions import override

from privateer_client.delivery import Sleep, Steps
from privateer_client.publications import Moment, Publications, Published
from privateer_client.states import Outcome
from privateer_core.errors import PrivateerError

_FRESH: Final = 1.0
"""Seconds for which an answer does for everybody; a report to a round that has closed since does not count."""
_PAUSE: Final = 0.02
"""Seconds after which those who wait for another one's request look again."""
_LONG_AGO: Final = Moment(0.0, 0.0)
_REQUESTS: Final = 4
"""The most that a publication takes, with its proof; an application that gave up may have left one half way."""
_MOST: Final = 64
"""Experiments that a process knows at a time."""


class _Use(Enum):
    """What a publication is fetched for: a pause, which is said beside it, counts for choices alone."""

    CHOOSE = "choose"
    REPORT = "report"


class _Answer(NamedTuple):
    """What came of the last request, and when."""

    at: Moment
    published: Published | None
    error: PrivateerError | None


class SharedPublications(Publications):
    """Asks the server once for everybody who comes while its answer is fresh."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock, self._last = Lock(), dict[_Use, _Answer]()
        self._asking = dict[_Use, float]()  # when the request began

    @override
    def joined(self, known: Published | None = None) -> Steps[Published]:
        published = yield from self._once(_Use.CHOOSE, lambda known: super(SharedPublications, self).joined(known))
        if published.sent is not None and not published.participation.is_paused:
            with self._lock:
                self._last[_Use.REPORT] = _Answer(published.sent, published, None)
        return published

    @override
    def opened(self, known: Published | None, timeout: float | None = None) -> Steps[Published]:
        ask = super().opened
        return (yield from self._once(_Use.REPORT, lambda known: ask(known, timeout)))

    @override
    def kept(self) -> Published | None:
        with self._lock:
            last = self._last.get(_Use.REPORT)
        if last is not None and last.published is not None:
            return last.published._replace(sent=None)
        published = super().kept()
        if published is not None:
            with self._lock:
                self._last.setdefault(_Use.REPORT, _Answer(_LONG_AGO, published, None))
        return published

    @property
    def are_fresh(self) -> bool:
        """Whether a choice that is made now need not wait for the server."""
        last = self._last.get(_Use.CHOOSE)
        return last is not None and last.at.is_within(_FRESH, self.clock)

    def noticed(self, steps: Steps[Outcome]) -> Steps[Outcome]:
        """Ask the server anew after a report that came too late."""
        outcome = yield from steps
        if outcome is Outcome.LATE:
            self.expire()
        return outcome

    def expire(self) -> None:
        """Ask the server anew."""
        with self._lock:
            self._last = {use: last._replace(at=_LONG_AGO) for use, last in self._last.items()}

    def _once(self, use: _Use, ask: Callable[[Published | None], Steps[Published]]) -> Steps[Published]:
        """Return what the last request got while that is fresh; wait for the request that is on its way, or make it."""
        while True:
            with self._lock:
                last = self._last.get(use)
                if last is not None and last.at.is_within(_FRESH, self.clock):
                    break
                began, now = self._asking.get(use), self.clock.monotonic()
                if began is None or now - began > _REQUESTS * self._pace.timeout:
                    self._asking[use] = now
                    last = None
                    break
            yield Sleep(_PAUSE)
        if last is None:
            last = yield from self._asked(use, ask)
        if last.error is not None:
            raise last.error.with_traceback(None)
        assert last.published is not None, "an answer is a publication or an error"
        return last.published

    def _asked(self, use: _Use, ask: Callable[[Published | None], Steps[Published]]) -> Steps[_Answer]:
        with self._alone(use):
            before = self._last.get(use)
            known = None if before is None else before.published
            published, error = None, None
            try:
                # It is not fresh here, however lately a device of one person would have got it.
                published = yield from ask(known and known._replace(sent=known.sent and _LONG_AGO))
            except PrivateerError as failure:
                error = failure
            answer = _Answer(Moment.of(self.clock), published or known, error)
            with self._lock:
                self._last[use] = answer
            return answer

    @contextmanager
    def _alone(self, use: _Use) -> Generator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._asking.pop(use, None)


class Shelf:
    """The publications that a process has, of the experiments that were asked for last."""

    def __init__(self) -> None:
        self._lock, self._publications = Lock(), dict[tuple[str, str], SharedPublications]()

    def get(self, name: str, cohort: str, make: Callable[[], SharedPublications]) -> SharedPublications:
        """Return the publications of an experiment and a source."""
        with self._lock:
            publications = self._publications.pop((name, cohort), None) or make()
            self._publications[name, cohort] = publications
            if len(self._publications) > _MOST:
                del self._publications[next(iter(self._publications))]
            return publications
