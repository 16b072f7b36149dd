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
from privateer_client.followed import Followed
from privateer_client.ledger import Account, Ledger
from privateer_client.participation import Participation
from privateer_client.phase import Phase
from privateer_client.phase_session import AsyncPhaseSession, PhaseSession
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
        followed = Participation(_published(response), name, self._limits, cohort)
        return followed, self._account, f"{self._url}/{name}", self._door(followed)

    def _phase(self, name: str, response: httpx.Response) -> tuple[Phase, Account, str, str]:
        followed = Phase(_published(response), name, self._limits)
        return followed, self._account, f"{self._url}/{name}", self._door(followed)

    def _door(self, followed: Followed) -> str:
        if followed.round.model != "shuffle":
            return f"{self._url}/reports"
        if self._shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return f"{self._shuffler}/experiments/{followed.round.experiment}/reports"


def _published(response: httpx.Response) -> bytes:
    if response.status_code == httpx.codes.NOT_FOUND:
        raise NotFound("the server has no such experiment", field="name", remedy="check its spelling")
    if not response.is_success:
        raise Unavailable("the server did not publish a policy", remedy="try again later")
    return response.content


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
        return Session(self._http, self._retries, *self._part(name, self._fetch(name), cohort))

    def join_phase(self, name: str) -> PhaseSession:
        """Fetch the phase of a phased experiment, check its terms, and find out whether it asks this person.

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
        return PhaseSession(self._http, self._retries, *self._phase(name, self._fetch(name)))

    def _fetch(self, name: str) -> httpx.Response:
        try:
            return self._http.get(self._policy_url(name), headers=_ACCEPT)
        except httpx.TransportError:
            raise Unavailable("no answer from the server", remedy="try again later") from None

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
        return AsyncSession(self._http, self._retries, *self._part(name, await self._fetch(name), cohort))

    async def join_phase(self, name: str) -> AsyncPhaseSession:
        """As `Client.join_phase`."""
        return AsyncPhaseSession(self._http, self._retries, *self._phase(name, await self._fetch(name)))

    async def _fetch(self, name: str) -> httpx.Response:
        try:
            return await self._http.get(self._policy_url(name), headers=_ACCEPT)
        except httpx.TransportError:
            raise Unavailable("no answer from the server", remedy="try again later") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
