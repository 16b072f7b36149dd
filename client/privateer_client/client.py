"""The SDK's entry: a client of one server, and of the shuffler that the application trusts."""

import posixpath
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from privateer.errors import Deleted, InputError, NotFound, TermsRefused, Unavailable
from privateer.trust import TRUST
from privateer.verification import Limits
from privateer.wire.envelope import MEDIA_TYPE
from privateer.wire.publication import ASKS_NOBODY
from privateer_client.account import Account, SealedReport
from privateer_client.answers import Answer, Outcome
from privateer_client.delivery import Ask, Pace, Steps, deliver, deliver_once
from privateer_client.exchange import AsyncExchange, Exchange
from privateer_client.ledger import Ledger
from privateer_client.participation import Participation
from privateer_client.session import Reported, Session

_PUBLICATION_BYTES: Final = 16 << 20
_Transport = TypeVar("_Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)


class _Client(Generic[_Transport]):
    """Everything that sync and async clients share; does no I/O but the ledger's."""

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        limits: Limits | None = None,
        ledger: Account | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
        transport: _Transport | None = None,
    ) -> None:
        self._url = _normal(url, "url")
        self._shuffler = _normal(shuffler, "shuffler") if shuffler else None
        self._pace = Pace(timeout, patience)
        self._limits = limits or Limits()
        self._account = ledger or Ledger()
        self._open(transport)

    def _open(self, transport: _Transport | None) -> None:
        raise NotImplementedError

    def _joining(self, run: Callable[[Steps[Outcome]], Reported], name: str, cohort: str) -> Steps[Session[Reported]]:
        """Fetch and check the publication of an experiment; before, send once what waits."""
        yield from deliver_once(self._waiting(), self._account, self._pace)
        url = f"{self._url}/experiments/{quote(name, safe='')}/policy"
        answer = yield Ask("GET", url, {"Accept": MEDIA_TYPE}, self._pace.timeout, most=_PUBLICATION_BYTES)
        is_paused = answer is not None and answer.asks == ASKS_NOBODY
        participation = Participation(_published(answer), name, self._limits, cohort, is_paused=is_paused)
        endpoint = self._endpoint(participation)
        return Session(run, participation, self._account, f"{self._url}/{name}", endpoint, self._pace)

    def _resending(self) -> Steps[dict[str, Outcome]]:
        known = yield from deliver(self._waiting(), self._account, self._pace)
        return {experiment.rpartition("/")[2]: verdict.outcome for experiment, verdict in known.items()}

    def _waiting(self) -> list[SealedReport]:
        """Return the reports for this client's endpoints, in random order: one that hangs must not starve the rest."""
        waiting = [report for report in self._account.waiting() if self._is_own(report)]
        secrets.SystemRandom().shuffle(waiting)
        return waiting

    def _is_own(self, report: SealedReport) -> bool:
        server, _, name = report.experiment.rpartition("/")
        endpoints = [f"{self._url}/reports"] + ([_shuffled(self._shuffler, name)] if self._shuffler else [])
        return server == self._url and report.endpoint in endpoints

    def _endpoint(self, participation: Participation) -> str:
        if not TRUST[participation.terms.model].shuffled:
            return f"{self._url}/reports"
        if self._shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return _shuffled(self._shuffler, participation.spec.name)


class Client(_Client[httpx.BaseTransport]):
    """A client of a Privateer server.

    Parameters
    ----------
    url
        The server's address.
    shuffler
        The address of the shuffler that the application trusts. Some experiments need one, and the server never names
        it.
    limits
        What one contribution may cost; default epsilon 1, delta 1e-5, and 4 if everybody else colludes.
    ledger
        Where contributions are recorded; default a file in the user's state directory.
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds for which the client tries to send a report, with longer and longer pauses, before it leaves the report
        for later. The last try may begin just before they end.

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

    def _open(self, transport: httpx.BaseTransport | None) -> None:
        self._exchange = Exchange(transport)

    def join(self, name: str, cohort: str = "") -> Session[Outcome]:
        """Fetch the policy of an experiment, check its terms, and start this person's session.

        The client first sends, once, the reports of earlier sessions that still wait, all within ``timeout``.

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
        NotFound, Deleted, Unavailable
            If there is no such experiment, there was one, or there is no answer.
        """
        return self._exchange.run(self._joining(self._exchange.run, name, cohort))

    def resend(self) -> dict[str, Outcome]:
        """Send the reports that wait for this client's server and shuffler again, for ``patience`` seconds.

        Returns
        -------
        What became of each, by the experiment's name. Nothing is randomized or paid for anew.
        """
        return self._exchange.run(self._resending())

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client[httpx.AsyncBaseTransport]):
    """A `Client` for asyncio: ``await client.join(name)`` and ``await session.report(reward)``."""

    def _open(self, transport: httpx.AsyncBaseTransport | None) -> None:
        self._exchange = AsyncExchange(transport)

    async def join(self, name: str, cohort: str = "") -> Session[Awaitable[Outcome]]:
        """Do what `Client.join` does."""
        return await self._exchange.run(self._joining(self._exchange.run, name, cohort))

    async def resend(self) -> dict[str, Outcome]:
        """Do what `Client.resend` does."""
        return await self._exchange.run(self._resending())

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _normal(url: str, field: str) -> str:
    """Spell a service's address in one way, since the ledger knows an experiment by its server's address."""
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


def _shuffled(shuffler: str, name: str) -> str:
    return f"{shuffler}/experiments/{name}/reports"


def _published(answer: Answer | None) -> bytes:
    if answer is None:
        raise Unavailable("the server did not answer within time and size", remedy="try again later")
    if answer.status == httpx.codes.NOT_FOUND:
        raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
    if answer.status == httpx.codes.GONE:
        raise Deleted("the experiment was deleted", field="name", remedy="nothing to do: it asks nobody any more")
    if not httpx.codes.is_success(answer.status):
        raise Unavailable("the server did not publish a policy", remedy="try again later")
    return answer.body
