"""The publications of one experiment, as a device gets them: from the server, or those that it kept."""

from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import quote

from privateer_client.delivery import Ask, EndpointAnswer, Pace, Silence, Steps
from privateer_client.ledger.account_protocol import Account
from privateer_client.log import Witness
from privateer_client.participation import Participation
from privateer_core.clock import Clock
from privateer_core.errors import Deleted, InputError, NotFound, PrivateerError, TermsRefused, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import Trust
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.publication import ASKS_NOBODY, digest
from privateer_core.wire.transparency_log import Entry

_BYTES: Final = 16 << 20
FRESH: Final = 3.0
"""Seconds for which a publication counts as the open one, without being asked for again."""
_OK, _NOT_MODIFIED, _NOT_FOUND, _GONE = 200, 304, 404, 410


class Address(NamedTuple):
    """An experiment at a server, and the shuffler that the application trusts."""

    server: str
    name: str
    shuffler: str | None = None

    @property
    def identity(self) -> str:
        """The experiment's name in the ledger."""
        return f"{self.server}/{self.name}"

    @property
    def policy(self) -> str:
        """URL of the policy."""
        return f"{self.server}/experiments/{quote(self.name, safe='')}/policy"

    @property
    def endpoints(self) -> list[str]:
        """Where reports may go."""
        return [self._server_endpoint] + ([self._shuffled(self.shuffler)] if self.shuffler else [])

    def base_of(self, endpoint: str) -> str:
        """Return the service that an endpoint belongs to."""
        is_shuffled = self.shuffler is not None and endpoint == self._shuffled(self.shuffler)
        return self.shuffler if is_shuffled and self.shuffler else self.server

    def endpoint(self, trust: Trust) -> str:
        """Return where reports under a trust model go."""
        if not trust.shuffled:
            return self._server_endpoint
        if self.shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return self._shuffled(self.shuffler)

    @property
    def _server_endpoint(self) -> str:
        return f"{self.server}/reports"

    def _shuffled(self, shuffler: str) -> str:
        return f"{shuffler}/experiments/{self.name}/reports"


class Moment(NamedTuple):
    """A moment by both clocks: one of them can be set, the other may stand still while a device sleeps."""

    now: float
    monotonic: float

    @classmethod
    def of(cls, clock: Clock) -> "Moment":
        """Return this moment."""
        return cls(clock.now(), clock.monotonic())

    def is_within(self, seconds: float, clock: Clock) -> bool:
        """Whether it was less than so many seconds ago."""
        here = Moment.of(clock)
        return max(abs(here.now - self.now), here.monotonic - self.monotonic) < seconds


class Published(NamedTuple):
    """A publication that the device has checked, and when the server sent it; None: the device had kept it."""

    participation: Participation
    sent: Moment | None

    def is_fresh(self, clock: Clock) -> bool:
        """Whether the server sent it just now."""
        return self.sent is not None and self.sent.is_within(FRESH, clock)


class Publications:
    """Fetches, checks and keeps the publications of an experiment.

    address: the experiment.
    limits: what the device accepts.
    account: where the last publication is kept.
    pace: how long a request may take.
    cohort: the source that the person belongs to; empty for the experiment's own people.
    pinned: the keys that the server may have; empty: the one that it had first.
    """

    def __init__(
        self,
        address: Address,
        limits: Limits,
        account: Account,
        pace: Pace,
        cohort: str = "",
        pinned: frozenset[bytes] = frozenset(),
    ) -> None:
        self._witness = Witness(address.server, pinned, account.servers)
        self.address, self.clock = address, pace.clock
        self._limits, self._account, self._pace, self._cohort = limits, account, pace, cohort

    def joined(self, known: Published | None = None) -> Steps[Published]:
        """Return the publication to decide by: the server's, or the one kept if the server does not answer.

        known: the one known so far; the request names its digest.
        """
        answer = yield self._ask(self._pace.timeout, _tag(known))
        is_paused = answer is not None and answer.asks == ASKS_NOBODY
        if known is not None and _is_known(answer, known):
            if is_paused == known.participation.is_paused:
                return known._replace(sent=Moment.of(self.clock))
            answer = yield self._ask(self._pace.timeout)
        try:
            return (yield from self._checked(answer, self._pace.timeout, is_paused=is_paused))
        except Unavailable:
            kept = self.kept()
            if kept is None:
                raise
            return kept

    def kept(self) -> Published | None:
        """Return the last publication that was checked, checked anew; None if there is none."""
        body = self._account.publication(self.address.identity)
        return None if body is None else Published(self._followed(body), None)

    def opened(self, known: Published | None, timeout: float | None = None) -> Steps[Published]:
        """Return the publication whose round is open now, to report to.

        known: the one known so far. If the server sent it in this session, the request names its digest.
        timeout: seconds for the request; by default those of the pace.
        """
        if known is not None and known.participation.is_paused:
            known = None  # nothing but an unsigned header said so: it is checked as one that asks
        if known is not None and known.is_fresh(self.clock):
            return known
        timeout = timeout or self._pace.timeout
        answer = yield self._ask(timeout, _tag(known))
        if known is not None and _is_known(answer, known):
            return known._replace(sent=Moment.of(self.clock))
        # Whoever chose when the round asked may report in a pause that has begun since.
        return (yield from self._checked(answer, timeout, is_paused=False))

    def check_server(self) -> None:
        """Refuse a server that the device holds evidence against."""
        self._witness.check()

    def reconciled(self) -> Steps[None]:
        """Refuse as `check_server`, but after a rollback ask first whether the log continues the last known head.

        An old head may be one that somebody in between repeats. A proof that continues the last head shows that the
        server still has what it had, so the evidence stops the device no more; a server that lost it cannot make one.
        """
        if self._witness.saw_rollback:
            with suppress(PrivateerError):
                answer = self._publication((yield self._ask(self._pace.timeout)), self._pace.timeout)
                self._witness.signer(answer)
                yield from self._proved(self._followed(answer.body), answer, self._pace.timeout)
                self._witness.acquit()
        self.check_server()

    def _proved(self, followed: Participation, answer: EndpointAnswer, timeout: float) -> Steps[None]:
        header = followed.header
        yield from self._witness.witnessed(Entry(header.experiment, header.version, header.digest), answer, timeout)

    def _ask(self, timeout: float, tag: bytes | None = None) -> Ask:
        headers = {"Accept": MEDIA_TYPE} | ({} if tag is None else {"If-None-Match": f'"{tag.hex()}"'})
        return Ask("GET", self.address.policy, headers, timeout, most=_BYTES)

    def _checked(self, answer: EndpointAnswer | None, timeout: float, *, is_paused: bool) -> Steps[Published]:
        answer = self._publication(answer, timeout)
        body, sent = answer.body, Moment.of(self.clock)
        self._witness.signer(answer)
        published = Published(self._followed(body, is_paused=is_paused), sent)
        header = published.participation.header
        if not self._account.has_witnessed(self.address.identity, header.digest):
            yield from self._proved(published.participation, answer, timeout)
        with suppress(InputError):  # what cannot be kept is fetched again
            self._account.remember(self.address.identity, body)
        return published

    def _publication(self, answer: EndpointAnswer | None, timeout: float) -> EndpointAnswer:
        if answer is not None and answer.status == _NOT_FOUND:
            raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
        if answer is not None and answer.status == _GONE:
            raise Deleted("the experiment was deleted", field="name", remedy="nothing to do: it asks nobody any more")
        if answer is None or answer.status // 100 * 100 != _OK:
            why = Silence.LATE if answer is None else answer.silence
            raise Unavailable(why.at(self.address.policy, timeout), remedy="try again later")
        return answer

    def _followed(self, body: bytes, *, is_paused: bool = False) -> Participation:
        return Participation(body, self.address.name, self._limits, self._cohort, is_paused=is_paused)


def _tag(known: Published | None) -> bytes | None:
    """Return the digest that a request may name; what was kept is from before, and would tie two sessions together."""
    return None if known is None or known.sent is None else known.participation.header.digest


def _is_known(answer: EndpointAnswer | None, known: Published) -> bool:
    """Whether an answer has, or names, the publication that was asked for, which was checked when it first came."""
    name = _tag(known)
    if answer is None or name is None:
        return False
    return answer.status == _NOT_MODIFIED or (answer.status == _OK and digest(answer.body) == name)
