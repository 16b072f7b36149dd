"""The SDK's entry: a client of one server, and of the shuffler that the application trusts."""

import posixpath
import secrets
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlsplit

import httpx

from privateer.errors import InputError, NotFound, TermsRefused, Unavailable
from privateer.verification import Limits
from privateer.wire.envelope import MEDIA_TYPE
from privateer_client.account import Account, SealedReport
from privateer_client.answers import Answer, Outcome
from privateer_client.delivery import Ask, Steps, deliver, deliver_once
from privateer_client.exchange import AsyncExchange, Exchange
from privateer_client.followed import Followed
from privateer_client.ledger import Ledger
from privateer_client.pace import Pace
from privateer_client.participation import Participation
from privateer_client.phase import Phase
from privateer_client.phase_session import AsyncPhaseSession, PhaseSession
from privateer_client.session import AsyncSession, Session

_ACCEPT: Final = {"Accept": MEDIA_TYPE}
_PUBLICATION_BYTES: Final = 16 << 20


def _normal(url: str, field: str) -> str:
    """One spelling of a service's address, since the ledger knows an experiment by its server's."""
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


class _Setup:
    """What sync and async clients share."""

    def __init__(
        self, url: str, shuffler: str | None, limits: Limits | None, ledger: Account | None, pace: Pace
    ) -> None:
        self._url = _normal(url, "url")
        self._shuffler = _normal(shuffler, "shuffler") if shuffler else None
        self._limits = limits or Limits()
        self._account = ledger or Ledger()
        self._pace = pace

    def _fetched(self, name: str) -> Steps[bytes]:
        """The publication of an experiment; before it is asked for, what waits is sent once."""
        yield from deliver_once(self._waiting(), self._account, self._pace)
        url = f"{self._url}/experiments/{quote(name, safe='')}/policy"
        answer = yield Ask("GET", url, _ACCEPT, self._pace.timeout, most=_PUBLICATION_BYTES)
        return _published(answer)

    def _resent(self) -> Steps[dict[str, Outcome]]:
        known = yield from deliver(self._waiting(), self._account, self._pace)
        return {experiment.rpartition("/")[2]: verdict.outcome for experiment, verdict in known.items()}

    def _waiting(self) -> list[SealedReport]:
        """Reports for the doors of this client, in an order by chance: one that hangs shall not starve the others."""
        waiting = [report for report in self._account.waiting() if self._is_own(report)]
        secrets.SystemRandom().shuffle(waiting)
        return waiting

    def _is_own(self, report: SealedReport) -> bool:
        server, _, name = report.experiment.rpartition("/")
        endpoints = [f"{self._url}/reports"] + ([_shuffled(self._shuffler, name)] if self._shuffler else [])
        return server == self._url and report.endpoint in endpoints

    def _part(self, name: str, body: bytes, cohort: str) -> tuple[Pace, Participation, Account, str, str]:
        followed = Participation(body, name, self._limits, cohort)
        return self._pace, followed, self._account, f"{self._url}/{name}", self._endpoint(followed)

    def _phase(self, name: str, body: bytes) -> tuple[Pace, Phase, Account, str, str]:
        followed = Phase(body, name, self._limits)
        return self._pace, followed, self._account, f"{self._url}/{name}", self._endpoint(followed)

    def _endpoint(self, followed: Followed) -> str:
        if followed.round.model != "shuffle":
            return f"{self._url}/reports"
        if self._shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return _shuffled(self._shuffler, followed.round.experiment)


def _shuffled(shuffler: str, name: str) -> str:
    return f"{shuffler}/experiments/{name}/reports"


def _published(answer: Answer | None) -> bytes:
    if answer is None:
        raise Unavailable("no answer of the server within time and size", remedy="try again later")
    if answer.status == httpx.codes.NOT_FOUND:
        raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
    if not httpx.codes.is_success(answer.status):
        raise Unavailable("the server did not publish a policy", remedy="try again later")
    return answer.body


class Client(_Setup):
    """A client of a Privateer server.

    Parameters
    ----------
    url
        Of the server.
    shuffler
        URL of the shuffler that the application trusts. Experiments under shuffle privacy need one, and it is never
        the server that names it.
    limits
        What one contribution may cost; default epsilon 1, delta 1e-5, and 4 if everybody else colludes.
    ledger
        Where contributions are recorded; default a file in the user's state directory.
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds that a report is tried, with longer and longer pauses, before it is left for later. The last try may
        begin just before.

    Raises
    ------
    InputError
        If an address is none, a time is out of range, or the ledger cannot be used.

    Examples
    --------
    >>> client = Client("https://learn.example", shuffler="https://shuffle.example")  # doctest: +SKIP
    >>> session = client.join("offers")  # doctest: +SKIP
    >>> arm = session.choose({"age": 41, "hours": 38})  # doctest: +SKIP
    >>> session.report(1.0)  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        limits: Limits | None = None,
        ledger: Account | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, shuffler, limits, ledger, Pace(timeout, patience))
        self._exchange = Exchange(transport)

    def join(self, name: str, cohort: str = "") -> Session:
        """Fetch the policy of an experiment, check its terms, and start this person's session.

        Reports of earlier sessions that still wait are sent first, once, all of them together within ``timeout``.

        Parameters
        ----------
        name
            Of the experiment.
        cohort
            The source that this person belongs to, whose members report on arms played before; empty for the
            experiment's own people.

        Raises
        ------
        TermsRefused
            If the terms miss what the experiment or this device promises.
        NotFound, Unavailable
            If there is no such experiment, or no answer.
        """
        return Session(self._exchange, *self._part(name, self._exchange.run(self._fetched(name)), cohort))

    def join_phase(self, name: str) -> PhaseSession:
        """Fetch the phase of a phased experiment, check its terms, and find out whether it asks this person.

        Reports that wait are sent first, as by `join`.

        Parameters
        ----------
        name
            Of the experiment.

        Raises
        ------
        TermsRefused
            If the terms miss what the experiment or this device promises, or its draw of people has changed.
        NotFound, Unavailable
            If there is no such experiment, or no answer.
        """
        return PhaseSession(self._exchange, *self._phase(name, self._exchange.run(self._fetched(name))))

    def resend(self) -> dict[str, Outcome]:
        """Send the reports that wait for this client's server, and for its shuffler, again for ``patience`` seconds.

        Returns
        -------
        What became of each, by the experiment's name. Nothing is randomized or paid for anew.
        """
        return self._exchange.run(self._resent())

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Setup):
    """As `Client`, with ``await client.join(name)`` and ``await session.report(reward)``."""

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        limits: Limits | None = None,
        ledger: Account | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, shuffler, limits, ledger, Pace(timeout, patience))
        self._exchange = AsyncExchange(transport)

    async def join(self, name: str, cohort: str = "") -> AsyncSession:
        """As `Client.join`."""
        return AsyncSession(self._exchange, *self._part(name, await self._exchange.run(self._fetched(name)), cohort))

    async def join_phase(self, name: str) -> AsyncPhaseSession:
        """As `Client.join_phase`."""
        return AsyncPhaseSession(self._exchange, *self._phase(name, await self._exchange.run(self._fetched(name))))

    async def resend(self) -> dict[str, Outcome]:
        """Do what `Client.resend` does."""
        return await self._exchange.run(self._resent())

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
