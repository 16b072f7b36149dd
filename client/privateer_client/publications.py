"""The publications of an experiment on a device: fetched from the server, or stored."""

from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Pace, Silence, Steps
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.known_servers import KnownServer, refuse_contradictory_server
from privateer_client.log import Witness
from privateer_client.participation import Participation
from privateer_core.clock import Clock
from privateer_core.errors import Deleted, InputError, KeyChanged, NotFound, PrivateerError, TermsRefused, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import NoiseOrigin, Recipient, Trust
from privateer_core.wire.publication import ASKS_NOBODY, MEDIA_TYPE, digest
from privateer_core.wire.transparency_log import Entry

_PUBLICATION_BYTES_MAX: Final = 16 << 20
FRESH_SECONDS: Final = 3.0
"""Seconds for which a publication counts as open without another request."""
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
        """The possible endpoints of reports."""
        return [f"{self.server}/reports"] + ([self._shuffler_endpoint(self.shuffler)] if self.shuffler else [])

    def service_url(self, endpoint: str) -> str:
        """Return the URL of the service that an endpoint belongs to."""
        is_shuffled = self.shuffler is not None and endpoint == self._shuffler_endpoint(self.shuffler)
        return self.shuffler if is_shuffled and self.shuffler else self.server

    def endpoint(self, trust: Trust) -> str:
        """Return the endpoint of reports under a trust model."""
        if trust.endpoint is not Recipient.SHUFFLER:
            return f"{self.server}/reports"
        if self.shuffler is None:
            detail = "the experiment needs a shuffler that does not collude with its server"
            remedy = "name the one your users trust: Client(url, shuffler='https://...')"
            raise TermsRefused(detail, field="shuffler", remedy=remedy)
        if trust.noise is NoiseOrigin.SERVERS and urlsplit(self.server).netloc == urlsplit(self.shuffler).netloc:
            raise _one_party_error()
        return self._shuffler_endpoint(self.shuffler)

    def _shuffler_endpoint(self, shuffler: str) -> str:
        return f"{shuffler}/experiments/{self.name}/reports"


class Moment(NamedTuple):
    """A time by both clocks: the wall clock can be set, and the monotonic clock may stop while a device sleeps."""

    now: float
    monotonic: float

    @classmethod
    def from_clock(cls, clock: Clock) -> "Moment":
        """Return the current time."""
        return cls(clock.now(), clock.monotonic())

    def is_within(self, seconds: float, clock: Clock) -> bool:
        """Whether the moment was less than ``seconds`` ago, by both clocks."""
        present = Moment.from_clock(clock)
        return max(abs(present.now - self.now), present.monotonic - self.monotonic) < seconds


class CheckedPublication(NamedTuple):
    """A publication that the device has verified, and the time of the server's answer; None for a stored one."""

    participation: Participation
    sent_at: Moment | None

    @property
    def lacks_key(self) -> bool:
        """Whether a report needs the shuffler's key, which is not fetched yet: a choice does without."""
        participation = self.participation
        return participation.is_open and participation.round.is_shared and not participation.helper_key

    def is_fresh(self, clock: Clock) -> bool:
        """Whether the server sent the publication within the last seconds."""
        return self.sent_at is not None and self.sent_at.is_within(FRESH_SECONDS, clock)


class Publications:
    """The publications of an experiment, which are fetched, verified and stored.

    address: the experiment.
    limits: the limits of the device.
    account: stores the last publication.
    pace: the timeout of requests.
    cohort: the source that the participant belongs to; empty for the experiment's own participants.
    pinned: the keys that the server may have; empty: the server's first key.
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

    def fetch_for_choice(self, last: CheckedPublication | None = None) -> Steps[CheckedPublication]:
        """Fetch the publication to decide by, or load the stored one if the server does not answer.

        last: the last publication; the request names its digest.
        """
        answer = yield self._policy_request(self._pace.timeout, _request_digest(last))
        is_paused = answer is not None and answer.asks == ASKS_NOBODY
        if last is not None and _is_unchanged(answer, last):
            if is_paused == last.participation.is_paused:
                return last._replace(sent_at=Moment.from_clock(self.clock))
            answer = yield self._policy_request(self._pace.timeout)
        try:
            return (yield from self._check_answer(answer, self._pace.timeout, is_paused=is_paused))
        except Unavailable:
            stored = self.load_stored()
            if stored is None:
                raise
            return stored

    def load_stored(self) -> CheckedPublication | None:
        """Load and verify the stored publication; None if no publication is stored."""
        body = self._account.publication(self.address.identity)
        return None if body is None else CheckedPublication(self._parse_participation(body), None)

    def find_open(self, last: CheckedPublication | None) -> CheckedPublication | None:
        """Return the publication if its round certainly is open; None if a request is needed."""
        is_open = last is not None and not last.participation.is_paused and last.is_fresh(self.clock)
        return last if last is not None and is_open and not last.lacks_key else None

    def fetch_open(self, last: CheckedPublication | None, timeout: float | None = None) -> Steps[CheckedPublication]:
        """Fetch the publication of the open round, for a report.

        last: the last publication. If the server sent it in this session, the request names its digest.
        timeout: seconds for the request; by default the timeout of the pace.
        """
        fresh = self.find_open(last)
        if fresh is not None:
            return fresh
        if last is not None and last.participation.is_paused:
            last = None  # nothing but an unsigned header said so: it is checked as one that asks
        timeout = timeout or self._pace.timeout
        answer = yield self._policy_request(timeout, _request_digest(last))
        if last is not None and _is_unchanged(answer, last):
            opened = last._replace(sent_at=Moment.from_clock(self.clock))
        else:  # choices that were made before a pause may be reported in it
            opened = yield from self._check_answer(answer, timeout, is_paused=False)
        if opened.lacks_key:
            opened.participation.helper_key = yield from self._fetch_helper_key(timeout)
        return opened

    def check_server(self) -> None:
        """Refuse a server that the device holds evidence against."""
        refuse_contradictory_server(self._account.servers, self.address.server)

    def recheck_server(self) -> Steps[None]:
        """Refuse as `check_server`, but after a rollback check first whether the log continues the last known head.

        An old head may be replayed by a third party. A proof that continues the last head shows that the
        server still has what it had, so the evidence stops the device no more; a server that lost it cannot make one.
        """
        if self._witness.saw_rollback:
            with suppress(PrivateerError):
                answer = self._require_publication((yield self._policy_request(self._pace.timeout)), self._pace.timeout)
                self._witness.verify_signer(answer)
                yield from self._verify_logged(self._parse_participation(answer.body), answer, self._pace.timeout)
                self._witness.mark_rollback_answered()
        self.check_server()

    def _verify_logged(self, participation: Participation, answer: EndpointAnswer, timeout: float) -> Steps[None]:
        header = participation.header
        yield from self._witness.verify_logged(Entry(header.experiment, header.version, header.digest), answer, timeout)

    def _policy_request(self, timeout: float, tag: bytes | None = None) -> DeliveryRequest:
        headers = {"Accept": MEDIA_TYPE} | ({} if tag is None else {"If-None-Match": f'"{tag.hex()}"'})
        return DeliveryRequest("GET", self.address.policy, headers, timeout, max_bytes=_PUBLICATION_BYTES_MAX)

    def _check_answer(
        self, answer: EndpointAnswer | None, timeout: float, *, is_paused: bool
    ) -> Steps[CheckedPublication]:
        """Verify the signature, the terms and the log entry of an answer's publication, store it and return it."""
        answer = self._require_publication(answer, timeout)
        body, sent_at = answer.body, Moment.from_clock(self.clock)
        self._witness.verify_signer(answer)
        published = CheckedPublication(self._parse_participation(body, is_paused=is_paused), sent_at)
        if not self._account.has_witnessed(self.address.identity, published.participation.header.digest):
            yield from self._verify_logged(published.participation, answer, timeout)
        with suppress(InputError):  # a publication that cannot be stored is fetched again
            self._account.store_publication(self.address.identity, body)
        return published

    def _fetch_helper_key(self, timeout: float) -> Steps[bytes]:
        """Fetch the shuffler's key from the shuffler itself, and return its sealing key.

        The application names the shuffler, so that the server cannot put a key of its own in that place. The first key
        counts; another one later is refused, and so is a shuffler that may be the server.
        """
        from privateer_core.wire.share_keys import sealing_public_key  # few experiments have reports in shares

        shuffler, servers = self.address.shuffler or "", self._account.servers
        answer = yield DeliveryRequest("GET", f"{shuffler}/keys", {}, timeout)
        if answer is None or answer.status != _OK:
            reason = Silence.LATE if answer is None else answer.silence
            raise Unavailable(reason.describe(shuffler, timeout), remedy="try again later")
        key = _read_key(answer.body)
        server = servers.get(self.address.server)
        if server is not None and server.key == key:
            raise _one_party_error()

        def pin(old_server: KnownServer | None) -> KnownServer:
            if old_server is not None and old_server.key != key:
                remedy = f"ask its operator in another way; ledger.servers.forget({shuffler!r}) trusts the new one"
                raise KeyChanged("the shuffler has another key than the known one", field="shuffler", remedy=remedy)
            return KnownServer(key, "")

        servers.change(shuffler, pin)
        return sealing_public_key(key)

    def _require_publication(self, answer: EndpointAnswer | None, timeout: float) -> EndpointAnswer:
        """Return an answer with a publication; raise an error for a missing, deleted or unavailable experiment."""
        if answer is not None and answer.status == _NOT_FOUND:
            raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
        if answer is not None and answer.status == _GONE:
            raise Deleted("the experiment was deleted", field="name", remedy="nothing to do: it asks nobody any more")
        if answer is None or answer.status // 100 * 100 != _OK:
            reason = Silence.LATE if answer is None else answer.silence
            raise Unavailable(reason.describe(self.address.policy, timeout), remedy="try again later")
        return answer

    def _parse_participation(self, body: bytes, *, is_paused: bool = False) -> Participation:
        participation = Participation(body, self.address.name, self._limits, self._cohort, is_paused=is_paused)
        participation.endpoint = self.address.endpoint(participation.terms.trust)
        return participation


def _one_party_error() -> TermsRefused:
    detail = "server and shuffler are one party, which would have both shares of a report"
    return TermsRefused(detail, field="shuffler", remedy="do not take part")


def _read_key(body: bytes) -> bytes:
    """Return the public key in a shuffler's answer; `Unavailable` for another answer, or a key of no use."""
    from privateer_core.wire.share_keys import sealing_public_key

    try:
        key = bytes.fromhex(msgspec.json.decode(body, type=dict[str, str])["public_key"])
        sealing_public_key(key)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, ValueError):
        raise Unavailable("the shuffler shows no key", remedy="try again later") from None
    return key


def _request_digest(last: CheckedPublication | None) -> bytes | None:
    """Return the digest that a request may name; None for a stored publication, which would link two sessions."""
    return None if last is None or last.sent_at is None else last.participation.header.digest


def _is_unchanged(answer: EndpointAnswer | None, last: CheckedPublication) -> bool:
    """Whether an answer has or confirms the last publication, which is verified already."""
    request_digest = _request_digest(last)
    if answer is None or request_digest is None:
        return False
    return answer.status == _NOT_MODIFIED or (answer.status == _OK and digest(answer.body) == request_digest)
