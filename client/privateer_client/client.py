"""Clients of one server, and of the shuffler that the application trusts: what applications import first.

What speaks HTTP is imported when a client is made.
"""

import math
import posixpath
import secrets
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar
from urllib.parse import urlsplit

from privateer_client.delivery import DOUBTED, Outcome, Pace, Steps, deliver, deliver_once
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import SealedReport
from privateer_client.publications import Address, Publications, Published
from privateer_client.reports import PendingReports, Reports
from privateer_client.session import Reported, Session
from privateer_client.tokens import Attest, Issuer, Tokens
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import AlreadyReported, Deleted, InputError, PrivateerError, TokenWarning, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.identity import read_keys

if TYPE_CHECKING:
    import httpx

_Item = TypeVar("_Item")
_Transport = TypeVar("_Transport", "httpx.BaseTransport", "httpx.AsyncBaseTransport")


class _Client(Generic[_Transport]):
    """Everything that sync and async clients share; does no I/O but the ledger's."""

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        issuer: str | None = None,
        attest: Attest | None = None,
        limits: Limits | None = None,
        ledger: Account | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
        transport: _Transport | None = None,
        clock: Clock | None = None,
        server_key: str = "",
    ) -> None:
        self._pinned = read_keys(server_key, "server_key")
        self._url = _normal(url, "url")
        self._shuffler = _normal(shuffler, "shuffler") if shuffler else None
        self._issuer = Issuer(_normal(issuer, "issuer"), attest) if issuer else None
        self._pace = Pace(timeout, patience, clock or SystemClock())
        self._limits = limits or Limits()
        self._account = ledger or Ledger()
        self._open(transport)

    def _open(self, transport: _Transport | None) -> None:
        raise NotImplementedError

    @property
    def head(self) -> str | None:
        """The last signed head of the server's log, for comparing with other devices; None before the first answer."""
        known = self._account.servers.get(self._url)
        return None if known is None else known.head

    @property
    def evidence(self) -> str | None:
        """What shows that the server contradicted itself, as JSON; None if it never did."""
        return self._account.servers.evidence(self._url)

    def _joining(self, run: Callable[[Steps[Outcome]], Reported], name: str, cohort: str) -> Steps[Session[Reported]]:
        """Fetch and check the publication of an experiment; before, send once what is due or waits."""
        end = self._pace.clock.monotonic() + self._pace.timeout
        publications = self._publications(name, cohort)
        yield from publications.reconciled()
        yield from self._settling(end)
        yield from deliver_once(self._waiting(), self._account, self._pace, end)
        try:
            published = yield from publications.joined()
        except Deleted:
            self._account.forget(publications.address.identity)
            raise
        session = self._session(run, publications, published)
        if self._issuer:
            yield from self._with_warning(self._fetching(publications.address, published, end))
        return session

    def _fetching(self, address: Address, published: Published, end: float) -> Steps[None]:
        """Get a token for each report that this device may still make to an experiment, before ``end``."""
        followed, paid = published.participation, self._account.payment(address.identity)
        left = followed.spec.reports - (0 if paid is None else paid.made)
        endpoint, seconds = address.endpoint(followed.terms.trust), end - self._pace.clock.monotonic()
        if followed.round.batch and left > 0 and seconds > 0:
            yield from self._tokens(address).fill(endpoint, left, min(self._pace.timeout, seconds))

    def _tokens(self, address: Address) -> Tokens:
        if self._issuer is None:
            raise InputError("none is named", field="issuer", remedy="Client(url, issuer='https://...')")
        return Tokens(address, self._issuer, self._account, self._pace.clock)

    def _with_warning(self, steps: Steps[None]) -> Steps[None]:
        """Warn of what keeps tokens away: the person still gets an arm."""
        try:
            yield from steps
        except PrivateerError as error:
            warnings.warn(f"no upload token: {error}", TokenWarning, stacklevel=2)

    def _ahead(self, name: str) -> Steps[int]:
        publications = self._publications(name)
        publications.check_server()
        published = yield from publications.joined()
        address, endpoint = publications.address, publications.address.endpoint(published.participation.terms.trust)
        yield from self._fetching(address, published, math.inf)
        return self._account.tokens.count(address.identity, endpoint) if self._account.tokens else 0

    def _resumed(self, run: Callable[[Steps[Outcome]], Reported], name: str) -> Session[Reported]:
        """Return the session of a choice that is kept; asks nobody."""
        publications = self._publications(name)
        publications.check_server()
        identity = publications.address.identity
        if self._account.choice(identity) is None:
            paid = self._account.payment(identity)
            if paid is not None and paid.made >= paid.reports:
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            raise InputError("no choice is kept", field="name", remedy="join the experiment, and choose")
        published = publications.kept()
        if published is None:
            raise Unavailable("the policy is not kept", remedy="join the experiment: the choice stands")
        return self._session(run, publications, published)

    def _session(
        self, run: Callable[[Steps[Outcome]], Reported], publications: Publications, published: Published
    ) -> Session[Reported]:
        publications.address.endpoint(published.participation.terms.trust)  # refuses where there is none
        reports = Reports(publications.address, self._account)
        return Session(run, published, publications, reports, self._account, self._pace)

    def _resending(self) -> Steps[dict[str, Outcome]]:
        self._publications("").check_server()
        left = yield from self._settling(math.inf)
        known = yield from deliver(self._waiting(), self._account, self._pace)
        sent = {report.experiment: verdict.outcome for report, verdict in known.items()}
        if self._issuer:
            doubted = [report for report, verdict in known.items() if verdict.reason in DOUBTED]
            yield from self._with_warning(self._for_the_next_time(doubted))
        return {experiment.rpartition("/")[2]: outcome for experiment, outcome in (left | sent).items()}

    def _for_the_next_time(self, doubted: Sequence[SealedReport]) -> Steps[None]:
        """Get tokens for the reports that wait without: the next `resend` sends them, apart from this request.

        Those whose tokens the endpoint does not know get others if it never will.
        """
        for experiment, endpoint in {(report.experiment, report.endpoint) for report in self._waiting()}:
            tokens = self._tokens(self._address(_parts(experiment)[2]))
            wanted = self._account.tokens.bare(experiment, endpoint) if self._account.tokens else 0
            yield from tokens.fill(endpoint, wanted, self._pace.timeout)
        for report in doubted:
            yield from self._tokens(self._address(_parts(report.experiment)[2])).replace(report, self._pace.timeout)

    def _settling(self, end: float) -> Steps[dict[str, Outcome]]:
        """Make the reports that are due, before ``end``; return the outcomes of those that are not made."""
        due, outcomes = PendingReports(self._account, self._pace), dict[str, Outcome]()
        names = [name for server, _, name in map(_parts, self._account.choices()) if server == self._url]
        for name in _shuffled(names):
            left = min(self._pace.timeout, end - self._pace.clock.monotonic())
            if left <= 0:
                break
            outcome = yield from due.settle(self._publications(name), left)
            if outcome is not None:
                outcomes[f"{self._url}/{name}"] = outcome
        return outcomes

    def _waiting(self) -> list[SealedReport]:
        """Return the reports for this client's endpoints, in random order: one that hangs must not starve the rest."""
        return _shuffled([report for report in self._account.waiting() if self._is_own(report)])

    def _is_own(self, report: SealedReport) -> bool:
        server, _, name = _parts(report.experiment)
        return server == self._url and report.endpoint in self._address(name).endpoints

    def _publications(self, name: str, cohort: str = "") -> Publications:
        return Publications(self._address(name), self._limits, self._account, self._pace, cohort, self._pinned)

    def _address(self, name: str) -> Address:
        return Address(self._url, name, self._shuffler)


class Client(_Client["httpx.BaseTransport"]):
    """A client of a Privateer server.

    Parameters
    ----------
    url
        The server's address.
    shuffler
        The address of the shuffler that the application trusts. Some experiments need one, and the server never names
        it.
    issuer
        The address of the issuer of upload tokens, if reports need some. Tokens are fetched when an experiment is
        joined, and kept until reports spend them.
    attest
        Returns, for an experiment's name, what the application's backend signed for this device; None: the issuer
        asks for nothing.
    limits
        What one contribution may cost; default epsilon 1, delta 1e-5, and 4 if everybody else colludes.
    ledger
        Where contributions are recorded, and choices kept; default a file in the user's state directory.
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds for which the client tries to send a report, with longer and longer pauses, before it leaves the report
        for later. The last try may begin just before they end.
    clock
        What tells when a report is due.
    server_key
        The server's public key, as ``privateer identity`` prints it, or several separated by commas, for a time in
        which the key is replaced. Without it the first key that the ledger meets is the server's from then on.

    Raises
    ------
    InputError
        If an address is not one of a service, a time is out of range, or the ledger cannot be used.

    Examples
    --------
    >>> client = Client("https://learn.example", shuffler="https://shuffle.example")  # doctest: +SKIP
    >>> session = client.join("offers")  # doctest: +SKIP
    >>> arm = session.choose({"age": 41, "hours": 38})  # doctest: +SKIP
    >>> session.report(1.0)  # doctest: +SKIP
    """

    def _open(self, transport: "httpx.BaseTransport | None") -> None:
        from privateer_client.transport import Exchange

        self._exchange = Exchange(transport)

    def join(self, name: str, cohort: str = "") -> Session[Outcome]:
        """Fetch the policy of an experiment, check its terms, and start this person's session.

        The client first makes the reports that are due, and sends once those that still wait, all within ``timeout``.
        If the server does not answer, the session follows the last policy that the device has checked (`offline`).

        Parameters
        ----------
        name
            The experiment's name.
        cohort
            The source that this person belongs to, whose members report on arms played before; empty for the
            experiment's own people.

        Raises
        ------
        TermsRefused
            If the terms miss what the experiment or this device promises, or the experiment's draw of people changed.
        SignatureInvalid, KeyChanged, ProofInvalid, HeadWentBack, LogForked
            If the server is not the one that this device knows, or contradicts itself (`evidence`). After a fork or a
            log that went back nothing goes on at this server: choosing, reporting and sending raise the same.
        NotFound, Deleted, Unavailable
            If there is no such experiment, there was one, or there is neither an answer nor a policy kept.
        InputError
            If the choice that the device keeps cannot be read.
        """
        return self._exchange.run(self._joining(self._exchange.run, name, cohort))

    def resume(self, name: str) -> Session[Outcome]:
        """Return the session of a choice that the device keeps, after a restart. It sends nothing and asks nobody.

        Raises
        ------
        AlreadyReported
            If its report is made.
        InputError
            If no choice is kept, or it cannot be read.
        TermsRefused
            If the limits of this client are below what the policy costs.
        Unavailable
            If its policy is not kept.
        """
        return self._resumed(self._exchange.run, name)

    def resend(self) -> dict[str, Outcome]:
        """Make the reports that are due, and send those that wait for this client's server and shuffler.

        It asks once which round is open, and sends for ``patience`` seconds. Call it now and then: at the start of an
        application, and where it runs for long on a timer.

        Returns
        -------
        What became of each, by the experiment's name. No report is randomized or paid for twice.
        """
        return self._exchange.run(self._resending())

    def fetch_tokens(self, name: str) -> int:
        """Get the upload tokens for an experiment ahead, for instance a day before the person is asked to choose.

        The longer before a report, the less its time tells anybody who knows when tokens were issued.

        Returns
        -------
        How many are left for reports.

        Raises
        ------
        TermsRefused
            If token keys are not those that everybody gets, or `join` would raise it.
        AttestationRefused, TokensExhausted
            If the issuer gives this device none.
        InputError, NotFound, Deleted, Unavailable
            If no issuer is named, there is no such experiment, or somebody does not answer.
        """
        return self._exchange.run(self._ahead(name))

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client["httpx.AsyncBaseTransport"]):
    """A `Client` for asyncio: ``await client.join(name)`` and ``await session.report(reward)``."""

    def _open(self, transport: "httpx.AsyncBaseTransport | None") -> None:
        from privateer_client.transport import AsyncExchange

        self._exchange = AsyncExchange(transport)

    async def join(self, name: str, cohort: str = "") -> Session[Awaitable[Outcome]]:
        """Do what `Client.join` does."""
        return await self._exchange.run(self._joining(self._exchange.run, name, cohort))

    async def resume(self, name: str) -> Session[Awaitable[Outcome]]:
        """Do what `Client.resume` does."""
        return self._resumed(self._exchange.run, name)

    async def resend(self) -> dict[str, Outcome]:
        """Do what `Client.resend` does."""
        return await self._exchange.run(self._resending())

    async def fetch_tokens(self, name: str) -> int:
        """Do what `Client.fetch_tokens` does."""
        return await self._exchange.run(self._ahead(name))

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _normal(url: str, field: str) -> str:
    """Spell a service's address in one way, since the ledger knows an experiment by its server's address."""
    import httpx

    try:
        parsed = httpx.URL(urlsplit(url).geturl())
    except (httpx.InvalidURL, ValueError):
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.userinfo:
        raise InputError("not the address of a service", field=field, remedy="write https://host or https://host:port")
    path = posixpath.normpath(parsed.path).strip("/.")
    port = f":{parsed.port}" if parsed.port else ""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host}{port}" + (f"/{path}" if path else "")


def _parts(identity: str) -> tuple[str, str, str]:
    """Return the server of an experiment and, last, its name."""
    return identity.rpartition("/")


def _shuffled(some: list[_Item]) -> list[_Item]:
    return secrets.SystemRandom().sample(some, len(some))
