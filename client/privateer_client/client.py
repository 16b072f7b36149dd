"""The SDK's entry: a client of one server, and of the shuffler that the application trusts."""

import posixpath
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx

from privateer.errors import InputError, NotFound, TermsRefused, Unavailable
from privateer.privacy.verification import Limits
from privateer.wire.envelope import MEDIA_TYPE
from privateer_client.ledger import Account, Ledger
from privateer_client.participation import Participation
from privateer_client.session import AsyncSession, Session

_ACCEPT = {"Accept": MEDIA_TYPE}


def _no_cookies() -> CookieJar:
    """A jar that stays empty: a cookie would tie the report to the fetch, past any shuffler or proxy."""
    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def _normal(url: str) -> str:
    """One spelling of a server's address, since the ledger knows an experiment by it."""
    try:
        parsed = httpx.URL(urlsplit(url).geturl())
    except (httpx.InvalidURL, ValueError):
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.userinfo:
        raise InputError("not the address of a server", field="url", remedy="write https://host or https://host:port")
    path = posixpath.normpath(parsed.path).strip("/.")
    port = f":{parsed.port}" if parsed.port else ""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host}{port}" + (f"/{path}" if path else "")


class _Setup:
    """What sync and async clients share."""

    def __init__(self, url: str, shuffler: str | None, limits: Limits | None, ledger: Account | None) -> None:
        self._url = _normal(url)
        self._shuffler = shuffler.rstrip("/") if shuffler else None
        self._limits = limits or Limits()
        self._account = ledger or Ledger()

    def _policy_url(self, name: str) -> str:
        return f"{self._url}/experiments/{name}/policy"

    def _part(self, name: str, response: httpx.Response, cohort: str) -> tuple[Participation, Account, str, str]:
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
        if not response.is_success:
            raise Unavailable("the server did not publish a policy", remedy="try again later")
        participation = Participation(response.content, name, self._limits, cohort)
        return participation, self._account, f"{self._url}/{name}", self._door(participation)

    def _door(self, participation: Participation) -> str:
        if participation.round.model != "shuffle":
            return f"{self._url}/reports"
        if self._shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return f"{self._shuffler}/experiments/{participation.round.experiment}/reports"


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
        What one contribution may cost; default epsilon 1, delta 1e-5, and 6 if everybody else colludes.
    ledger
        Where contributions are recorded; default a file in the user's state directory.
    timeout
        Seconds for one request.
    retries
        Times that the same sealed report is sent again when nobody answers.

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
        retries: int = 2,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, shuffler, limits, ledger)
        self._http = httpx.Client(timeout=timeout, transport=transport, cookies=_no_cookies())
        self._retries = retries

    def join(self, name: str, cohort: str = "") -> Session:
        """Fetch the policy of an experiment, check its terms, and start this person's session.

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
        try:
            response = self._http.get(self._policy_url(name), headers=_ACCEPT)
        except httpx.TransportError:
            raise Unavailable("no answer from the server", remedy="try again later") from None
        return Session(self._http, self._retries, *self._part(name, response, cohort))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

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
        retries: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, shuffler, limits, ledger)
        self._http = httpx.AsyncClient(timeout=timeout, transport=transport, cookies=_no_cookies())
        self._retries = retries

    async def join(self, name: str, cohort: str = "") -> AsyncSession:
        """As `Client.join`."""
        try:
            response = await self._http.get(self._policy_url(name), headers=_ACCEPT)
        except httpx.TransportError:
            raise Unavailable("no answer from the server", remedy="try again later") from None
        return AsyncSession(self._http, self._retries, *self._part(name, response, cohort))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
