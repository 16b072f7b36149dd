"""The common base of synchronous and asynchronous clients, whose operations are generators of steps."""

import math
import posixpath
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from privateer_client.delivery import UNKNOWN_TOKEN_SLUGS, Pace, Steps, deliver, deliver_once
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.ledger import Ledger
from privateer_client.own_session import OwnSession, SessionContexts
from privateer_client.participation import SealedReport
from privateer_client.person_choice import PersonChoice
from privateer_client.publications import Address, CheckedPublication, Publications
from privateer_client.session import Reported, Run, Session
from privateer_client.shared_publications import PublicationCache, SharedPublications
from privateer_client.states import ReportStatus
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import AlreadyReported, Deleted, InputError, PrivateerError, TokenWarning, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.identity import parse_public_keys

if TYPE_CHECKING:
    import httpx

    from privateer_client.connections import ServiceConnections
    from privateer_client.tokens import Attest, Issuer, Tokens

_NORMAL_URL: Final = re.compile(r"https?://[a-z0-9.-]*[a-z0-9](?::(?!80$|443$)(?:[1-9][0-9]{1,3}|[1-5][0-9]{4}))?")
"""An address in normal form, as most addresses are."""
_HOST: Final = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
"""A host's name in ASCII, since libraries differ in how they encode other names; or its number."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_RANDOM: Final = secrets.SystemRandom()
_Arm = TypeVar("_Arm")
_Transport = TypeVar("_Transport", "httpx.BaseTransport", "httpx.AsyncBaseTransport")


class _ClientKind(Enum):
    """The participants that a client serves, from its first use on."""

    NOBODY = "nobody yet"
    ONE = "one person"
    MANY = "many people"


class BaseClient(Generic[_Transport]):
    """A client without a transport. Its only I/O is the ledger's, which is opened at the first use."""

    _connections: "ServiceConnections"

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        issuer: str | None = None,
        attest: "Attest | None" = None,
        limits: Limits | None = None,
        ledger: Account | str | Path | None = None,
        timeout: float = 10.0,
        retry_timeout: float = 10.0,
        transport: _Transport | None = None,
        clock: Clock | None = None,
        server_key: str = "",
    ) -> None:
        self._pinned_keys = parse_public_keys(server_key, "server_key")
        self._url = _normalize_url(url, "url")
        self._shuffler = _normalize_url(shuffler, "shuffler") if shuffler else None
        self._issuer = _make_issuer(issuer, attest) if issuer else None
        self._pace = Pace(timeout, retry_timeout, clock or SystemClock())
        self._limits = limits or Limits()
        self._ledger: Account | Callable[[], Account] | str | Path | None = ledger
        self._kind_lock, self._ledger_lock, self._kind = Lock(), Lock(), _ClientKind.NOBODY
        self._contexts, self._publication_cache = SessionContexts(), PublicationCache()
        self._root: BaseClient[_Transport] = self
        self._open(transport)

    def _open(self, transport: _Transport | None) -> None:
        """Create the exchange and the fallbacks, which all participants of the process share."""
        raise NotImplementedError

    def _make_person_client(self, key: str | int, attest: "Attest | None", limits: Limits | None) -> Self:
        """Return the client of a participant, which shares connections, publications and the ledger's file."""
        self._require_kind(_ClientKind.MANY)
        if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
            remedy = "give what the application calls the person, not None for all who are not signed in"
            raise InputError("must be a text or a whole number", field="key", remedy=remedy)
        client = self._make_client_for(lambda: _as_ledger(self._open_ledger).person(str(key)))
        if self._issuer and attest:
            client._issuer = replace(self._issuer, attest=attest)
        client._limits = limits or self._limits
        return client

    def _make_client_for(self, ledger: Account | Callable[[], Account]) -> Self:
        """Return the client of a participant, with a ledger, which may be opened when it is first needed."""
        client = object.__new__(type(self))
        vars(client).update(vars(self))
        client._ledger, client._kind = ledger, _ClientKind.ONE
        client._kind_lock, client._ledger_lock = Lock(), Lock()
        vars(client).pop("_in_time", None)
        return client

    def _require_kind(self, kind: _ClientKind) -> None:
        """Set the kind of this client at its first use, and refuse the other kind: data would be mixed up."""
        with self._kind_lock:  # never held for long, since an event loop waits for it
            old_kind, self._kind = self._kind, kind if self._kind is _ClientKind.NOBODY else self._kind
            if kind is _ClientKind.MANY and old_kind is _ClientKind.NOBODY:
                self._connections.keep_open()
        if self._kind is not kind:
            raise InputError(f"this client is {self._kind.value}", field="person", remedy=_REMEDIES[kind])

    @property
    def _is_shared(self) -> bool:
        """Whether this client belongs to a client of many participants."""
        return self._root is not self

    @property
    def _account(self) -> Account:
        """The ledger of this client's participant; refused for a client of many participants."""
        self._require_kind(_ClientKind.ONE)
        return self._open_ledger

    @property
    def _open_ledger(self) -> Account:
        """The ledger, which is opened when it is first needed."""
        with self._ledger_lock:
            if self._ledger is None or isinstance(self._ledger, str | Path):
                self._ledger = Ledger(self._ledger, clock=self._pace.clock)
            elif callable(self._ledger):
                self._ledger = self._ledger()
            return self._ledger

    def _forget_steps(self) -> Steps[None]:
        """Erase the participant's data in the ledger except payments; send nothing."""
        _as_ledger(self._account).forget_person()
        yield from ()

    @property
    def head(self) -> str | None:
        """The last signed head of the server's log, for comparing with other devices; None before the first answer."""
        server = self._open_ledger.servers.get(self._url)
        return None if server is None else server.head

    @property
    def evidence(self) -> str | None:
        """The evidence that the server contradicted itself, as JSON; None if there is none."""
        return self._open_ledger.servers.evidence(self._url)

    def _join_steps(self, run: Run[Reported], name: str, cohort: str) -> Steps[Session[Reported]]:
        """Make due reports, send pending reports once, and then fetch and check the publication of an experiment."""
        end = self._pace.clock.monotonic() + self._pace.timeout
        publications = self._get_publications(name, cohort)
        yield from publications.recheck_server()
        yield from self._make_due_reports_steps(end)
        yield from deliver_once(self._pending_reports(), self._account, self._pace, end)
        try:
            published = yield from publications.fetch_for_choice()
        except Deleted:
            self._account.forget(publications.address.identity)
            raise
        session = self._make_session(run, publications, published)
        if self._issuer:
            yield from self._warn_without_token(self._fetch_tokens_steps(publications.address, published, end))
        return session

    def _fetch_tokens_steps(self, address: Address, published: CheckedPublication, end: float) -> Steps[None]:
        """Fetch a token for each report that this device may still make to an experiment, before ``end``."""
        participation, payment = published.participation, self._account.payment(address.identity)
        n_remaining = participation.n_sharing_reports - (0 if payment is None else payment.made)
        endpoint, seconds = participation.endpoint, end - self._pace.clock.monotonic()
        if participation.round.batch_size and n_remaining > 0 and seconds > 0:
            yield from self._make_tokens(address).fill(endpoint, n_remaining, min(self._pace.timeout, seconds))

    def _make_tokens(self, address: Address) -> "Tokens":
        """Return the upload tokens of an experiment; refused if the application names no issuer."""
        from privateer_client.tokens import Tokens

        if self._issuer is None:
            raise InputError("none is named", field="issuer", remedy="Client(url, issuer='https://...')")
        return Tokens(address, self._issuer, self._account, self._pace.clock)

    def _warn_without_token(self, steps: Steps[None]) -> Steps[None]:
        """Run steps that fetch tokens, and warn of their errors, since the participant gets an arm without tokens."""
        try:
            yield from steps
        except PrivateerError as error:
            warnings.warn(f"no upload token: {error}", TokenWarning, stacklevel=2)

    def _prefetch_tokens_steps(self, name: str) -> Steps[int]:
        """Fetch the tokens for an experiment, and return the number of available tokens."""
        publications = self._get_publications(name)
        publications.check_server()
        published = yield from publications.fetch_for_choice()
        address, endpoint = publications.address, published.participation.endpoint
        yield from self._fetch_tokens_steps(address, published, math.inf)
        return self._account.tokens.count_available(address.identity, endpoint) if self._account.tokens else 0

    def _resume_session(self, run: Run[Reported], name: str) -> Session[Reported]:
        """Return the session of a stored choice, or raise an error if there is none; send nothing."""
        publications = self._get_publications(name)
        publications.check_server()
        identity = publications.address.identity
        if self._account.choice(identity) is None:
            payment = self._account.payment(identity)
            if payment is not None and payment.made >= payment.reports:
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            raise InputError("this device has no stored choice", field="name", remedy="join the experiment, and choose")
        published = publications.load_stored()
        if published is None:
            raise Unavailable("this device has no stored policy", remedy="join the experiment: the choice is kept")
        return self._make_session(run, publications, published)

    def _report_steps(self, run: Run[Reported], name: str, reward: Any) -> Steps[ReportStatus]:
        """Report on the stored choice, whichever process made it, and return the status of the report."""
        account, publications = self._account, self._get_publications(name)
        try:
            with account.transaction():
                if account.choice(publications.address.identity) is None:
                    payment = account.payment(publications.address.identity)
                    return ReportStatus.NOT_REQUESTED if payment is None else ReportStatus.ALREADY_REPORTED
                steps = self._resume_session(run, name).report_steps(reward)
            if isinstance(publications, SharedPublications):
                steps = publications.expire_if_late(steps)
            return (yield from steps)
        except AlreadyReported:
            return ReportStatus.ALREADY_REPORTED

    def _offline_session(self, run: Run[Reported], name: str) -> Session[Reported] | None:
        """Return a session with the stored publication; None if no publication is stored."""
        publications = self._get_publications(name)
        publications.check_server()
        published = publications.load_stored()
        return None if published is None else self._make_session(run, publications, published)

    def _make_session(
        self, run: Run[Reported], publications: Publications, published: CheckedPublication
    ) -> Session[Reported]:
        arguments = run, published, publications, self._account, self._pace
        return Session(*arguments) if self._is_shared else OwnSession(self._contexts, *arguments)

    def _flush_steps(self) -> Steps[dict[str, ReportStatus]]:
        """Make due reports, send pending reports, and return the status of each report by the experiment's name."""
        self._get_publications("").check_server()
        unmade_statuses = yield from self._make_due_reports_steps(math.inf)
        verdicts = yield from deliver(self._pending_reports(), self._account, self._pace)
        statuses = {report.experiment: verdict.status for report, verdict in verdicts.items()}
        if self._issuer:
            doubted_reports = [report for report, verdict in verdicts.items() if verdict.reason in UNKNOWN_TOKEN_SLUGS]
            yield from self._warn_without_token(self._replenish_tokens_steps(doubted_reports))
        return {experiment.rpartition("/")[2]: outcome for experiment, outcome in (unmade_statuses | statuses).items()}

    def _flush_people_steps(self) -> Steps[dict[str, Counter[ReportStatus]]]:
        """Flush the reports of all participants, until there was no answer for ``retry_timeout``."""
        self._require_kind(_ClientKind.MANY)
        counts = dict[str, Counter[ReportStatus]]()
        clock, single_pass = self._pace.clock, msgspec.structs.replace(self._pace, retry_timeout=0.0)
        end = clock.monotonic() + self._pace.retry_timeout
        for ledger in _as_ledger(self._open_ledger).ledgers_due():
            client = self._make_client_for(ledger)
            client._pace = single_pass
            outcomes = yield from client._flush_steps()
            for name, outcome in outcomes.items():
                counts.setdefault(name, Counter())[outcome] += 1
            if set(outcomes.values()) - {ReportStatus.PENDING}:
                end = clock.monotonic() + self._pace.retry_timeout
            elif clock.monotonic() > end:
                break
        return counts

    def _replenish_tokens_steps(self, doubted_reports: Sequence[SealedReport]) -> Steps[None]:
        """Fetch tokens for pending reports without a token; the next `flush` sends these, apart from this request.

        Reports whose tokens the endpoint does not know get new tokens if the endpoint cannot learn the key.
        """
        for experiment, endpoint in {(report.experiment, report.endpoint) for report in self._pending_reports()}:
            tokens = self._make_tokens(self._make_address(experiment.rpartition("/")[2]))
            n_bare = self._account.tokens.count_tokenless(experiment, endpoint) if self._account.tokens else 0
            yield from tokens.fill(endpoint, n_bare, self._pace.timeout)
        for report in doubted_reports:
            yield from self._make_tokens(
                self._make_address(report.experiment.rpartition("/")[2])
            ).replace_refused_token(report, self._pace.timeout)

    def _make_due_reports_steps(self, end: float) -> Steps[dict[str, ReportStatus]]:
        """Make the due reports before ``end``, and return the statuses of the reports that could not be made."""
        outcomes = dict[str, ReportStatus]()
        experiments = self._account.experiments_with_choice()
        names = [name for server, _, name in (key.rpartition("/") for key in experiments) if server == self._url]
        for name in _RANDOM.sample(names, len(names)):
            timeout = min(self._pace.timeout, end - self._pace.clock.monotonic())
            if timeout <= 0:
                break
            choice = PersonChoice(self._get_publications(name), self._account, self._pace.clock)
            outcome = yield from choice.make_due_report(timeout)
            if outcome is not None:
                outcomes[f"{self._url}/{name}"] = outcome
        return outcomes

    def _pending_reports(self) -> list[SealedReport]:
        """Return the pending reports for this client's endpoints, in random order, so that none starves."""
        reports = [report for report in self._account.pending_reports() if self._is_own(report)]
        return _RANDOM.sample(reports, len(reports))

    def _is_own(self, report: SealedReport) -> bool:
        """Whether a report is for this client's server and one of its endpoints."""
        server, _, name = report.experiment.rpartition("/")
        return server == self._url and report.endpoint in self._make_address(name).endpoints

    def _get_publications(self, name: str, cohort: str = "") -> Publications:
        """Return the publications of an experiment, which the clients of many participants share."""
        address = self._make_address(name)
        if not self._is_shared:
            return Publications(address, self._limits, self._account, self._pace, cohort, self._pinned_keys)
        root = self._root
        account, pace = root._open_ledger, root._pace
        make_publications = partial(SharedPublications, address, self._limits, account, pace, cohort, self._pinned_keys)
        return root._publication_cache.get((name, cohort, self._limits), make_publications)

    def _choose_without_request(
        self, run: Run[Reported], name: str, choose: Callable[[Session[Reported]], _Arm]
    ) -> _Arm | None:
        """Choose without a request, if the shared publication is fresh and no report is due; otherwise return None."""
        if not self._is_shared or self._issuer:
            return None
        publications = self._get_publications(name)
        published = publications.find_for_choice() if isinstance(publications, SharedPublications) else None
        if published is None:
            return None
        with self._account.transaction():
            if _as_ledger(self._account).has_due:
                return None
            return choose(self._make_session(run, publications, published))

    def _make_address(self, name: str) -> Address:
        return Address(self._url, name, self._shuffler)


_REMEDIES: Final = {
    _ClientKind.ONE: "call client.person(key), with what the application calls the person, and use what it returns",
    _ClientKind.MANY: "make a client for many people, and let none of them use it but by client.person(key)",
}


def _as_ledger(account: Account) -> Ledger:
    """Return the account as a `Ledger`, or refuse an account of the application's own."""
    if not isinstance(account, Ledger):
        raise InputError("is a custom ledger, for one person", field="ledger", remedy="give a Ledger, or a path")
    return account


def _make_issuer(url: str, attest: "Attest | None") -> "Issuer":
    from privateer_client.tokens import Issuer  # few experiments need tokens

    return Issuer(_normalize_url(url, "issuer"), attest)


def _normalize_url(url: str, field: str) -> str:
    """Normalize a service's address, by which the ledger identifies experiments; refuse what is no address."""
    if _NORMAL_URL.fullmatch(normal_url := url.removesuffix("/")):
        return normal_url
    try:
        parsed = urlsplit(url)
        port = f":{parsed.port}" if parsed.port not in (None, _DEFAULT_PORTS.get(parsed.scheme)) else ""
        host = (parsed.hostname or "").removesuffix(".")
        host = f"[{IPv6Address(host)}]" if "[" in parsed.netloc else host
    except ValueError:
        parsed, port, host = urlsplit(""), "", ""
    has_other_parts = parsed.query or "@" in parsed.netloc or port == ":0"
    if parsed.scheme not in _DEFAULT_PORTS or not _HOST.fullmatch(host) or has_other_parts:
        raise InputError("not the address of a service", field=field, remedy="write https://host or https://host:port")
    # Servers resolve what is encoded: each path has one spelling, so that nobody pays again under another.
    path = quote(posixpath.normpath("/" + unquote(parsed.path)).strip("/"), safe="/:@!$&'()*+,;=")
    return f"{parsed.scheme}://{host}{port}" + (f"/{path}" if path else "")
