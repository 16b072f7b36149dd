"""The publications of an experiment for all participants of a process: fetched, verified and parsed once."""

from collections.abc import Callable
from enum import Enum
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import override

from privateer_client.delivery import Sleep, Steps
from privateer_client.publications import CheckedPublication, Moment, Publications
from privateer_client.states import ReportStatus
from privateer_core.errors import PrivateerError
from privateer_core.privacy.terms_verification import Limits

_FRESH_SECONDS: Final = 1.0
"""Seconds for which an answer is shared; a report to a round that has closed since then is not counted."""
_POLL_SECONDS: Final = 0.02
"""Interval at which other participants check whether a running request has ended."""
_Fetch: TypeAlias = Callable[[CheckedPublication | None], Steps[CheckedPublication]]
_EXPIRED_MOMENT: Final = Moment(0.0, 0.0)
_REQUESTS_MAX: Final = 4
"""Largest number of requests for a publication and its proof, after which a running fetch counts as abandoned."""
_EXPERIMENTS_MAX: Final = 64
"""Number of experiments in the cache of a process."""


class _Use(Enum):
    """The purpose of fetching a publication, since a pause, which is announced beside it, applies to choices alone."""

    CHOOSE = "choose"
    REPORT = "report"


class _Answer(NamedTuple):
    """The result and time of the last request."""

    moment: Moment
    published: CheckedPublication | None
    error: PrivateerError | None


class SharedPublications(Publications):
    """Publications that share an answer of the server among participants while it is fresh."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock, self._answers = Lock(), dict[_Use, _Answer]()
        self._request_starts = dict[_Use, float]()  # when the request began

    @override
    def fetch_for_choice(self, last: CheckedPublication | None = None) -> Steps[CheckedPublication]:
        published = yield from self._fetch_once(_Use.CHOOSE, super().fetch_for_choice)
        if published.sent_at is not None and not published.participation.is_paused and not published.lacks_key:
            with self._lock:
                self._answers[_Use.REPORT] = _Answer(published.sent_at, published, None)
        return published

    @override
    def fetch_open(self, last: CheckedPublication | None, timeout: float | None = None) -> Steps[CheckedPublication]:
        ask = super().fetch_open
        return (yield from self._fetch_once(_Use.REPORT, lambda previous: ask(previous, timeout)))

    @override
    def load_stored(self) -> CheckedPublication | None:
        with self._lock:
            last = self._answers.get(_Use.REPORT)
        if last is not None and last.published is not None:
            return last.published._replace(sent_at=None)
        published = super().load_stored()
        if published is not None:
            with self._lock:
                self._answers.setdefault(_Use.REPORT, _Answer(_EXPIRED_MOMENT, published, None))
        return published

    @override
    def find_open(self, last: CheckedPublication | None) -> CheckedPublication | None:
        return self._get_fresh(_Use.REPORT)

    def find_for_choice(self) -> CheckedPublication | None:
        """Return the fresh publication to decide by; None if a request is needed."""
        return self._get_fresh(_Use.CHOOSE)

    def _get_fresh(self, use: _Use) -> CheckedPublication | None:
        last = self._answers.get(use)
        return last.published if last is not None and last.error is None and self._is_fresh(last) else None

    def _is_fresh(self, answer: _Answer) -> bool:
        return answer.moment.is_within(_FRESH_SECONDS, self.clock)

    def expire_if_late(self, steps: Steps[ReportStatus]) -> Steps[ReportStatus]:
        """Run the steps of a report, and expire the answers if the report came too late."""
        outcome = yield from steps
        if outcome is ReportStatus.LATE:
            self.expire()
        return outcome

    def expire(self) -> None:
        """Expire the answers, so that the next call sends a request."""
        with self._lock:
            self._answers = {use: last._replace(moment=_EXPIRED_MOMENT) for use, last in self._answers.items()}

    def _fetch_once(self, use: _Use, ask: _Fetch) -> Steps[CheckedPublication]:
        """Return the last answer, or raise its error, while fresh; else wait for a running request or send one."""
        while True:
            with self._lock:
                last = self._answers.get(use)
                if last is not None and self._is_fresh(last):
                    break
                began, now = self._request_starts.get(use), self.clock.monotonic()
                if began is None or now - began > _REQUESTS_MAX * self._pace.timeout:
                    self._request_starts[use] = now
                    last = None
                    break
            yield Sleep(_POLL_SECONDS)
        if last is None:
            last = yield from self._fetch(use, ask)
        if last.error is not None:
            raise last.error.with_traceback(None)
        assert last.published is not None, "an answer is a publication or an error"
        return last.published

    def _fetch(self, use: _Use, ask: _Fetch) -> Steps[_Answer]:
        """Request a publication, and store it or the error as the answer that all participants share."""
        try:
            old_answer = self._answers.get(use)
            previous = None if old_answer is None else old_answer.published
            published, error = None, None
            try:
                # The publication is not fresh here, though it would be for a single participant.
                published = yield from ask(previous and previous._replace(sent_at=previous.sent_at and _EXPIRED_MOMENT))
            except PrivateerError as failure:
                error = failure
            answer = _Answer(Moment.from_clock(self.clock), published or previous, error)
            with self._lock:
                self._answers[use] = answer
            return answer
        finally:
            with self._lock:
                self._request_starts.pop(use, None)


class PublicationCache:
    """A cache of the publications of the most recently used experiments of a process."""

    def __init__(self) -> None:
        self._lock, self._publications = Lock(), dict[tuple[str, str, Limits], SharedPublications]()

    def get(self, use: tuple[str, str, Limits], make: Callable[[], SharedPublications]) -> SharedPublications:
        """Return the publications of an experiment and a source, as participants with these limits follow them."""
        with self._lock:
            publications = self._publications.pop(use, None) or make()
            self._publications[use] = publications
            if len(self._publications) > _EXPERIMENTS_MAX:
                del self._publications[next(iter(self._publications))]
            return publications
