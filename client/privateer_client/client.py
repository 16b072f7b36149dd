"""Clients of one server, and of the shuffler that the application trusts: what applications import first.

What speaks HTTP is imported when a client is made.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from privateer_client.arm import Arm, Fallbacks, late, unasked, unasked_async
from privateer_client.base_client import BaseClient
from privateer_client.in_time import Beside, SessionsInTime
from privateer_client.session import Session
from privateer_client.states import Outcome

if TYPE_CHECKING:
    import httpx

    from privateer_client.async_in_time import AsyncSessionsInTime
    from privateer_client.async_session import AsyncSession


class Client(BaseClient["httpx.BaseTransport"]):
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
        Where contributions are recorded, and choices kept: a `Ledger`, or the path of one; default a file in the user's
        state directory. It is opened when it is first needed.
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds for which the client tries to send a report, with longer and longer pauses, before it leaves the report
        for later. The last try may begin just before they end.
    clock
        What tells when a report is due.
    server_key
        The server's public key, as ``privateer log key`` prints it, or several separated by commas, for a time in
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
        self._fallbacks: Fallbacks[Outcome] = Fallbacks(unasked)

    def _share(self) -> None:
        self._exchange.share()

    @cached_property
    def _in_time(self) -> SessionsInTime:
        return SessionsInTime(self.join, lambda name: self._offline(self._exchange.run, name))

    def person(self, key: str | int, attest: Callable[[str], str] | None = None) -> Self:
        """Return the client of one person of many, for a process that decides for them all; it asks nobody.

        They share connections, publications and the ledger's file. Close this client, not theirs.

        Parameters
        ----------
        key
            What the application calls the person; a number is the person of its text. It is not sent.
        attest
            Returns what the application's backend signed for this person, as ``Client(attest=...)``.

        Raises
        ------
        InputError
            If the key is no text and no whole number, or this client is one person already.

        Examples
        --------
        >>> client.person("user-7").arm("offers", {"age": 41}, default="delivery")  # doctest: +SKIP
        """
        return self._person(key, attest)

    def arm(
        self, name: str, context: Mapping[str, Any] = {}, *, default: Any, within: float = 0.3, sticky: bool = True
    ) -> Arm[Outcome]:
        """Return this person's arm, or the default if there is none in time: never an exception.

        A server that takes longer serves the next call; a policy that the device keeps serves this one.

        Parameters
        ----------
        name
            The experiment's name.
        context
            A value for each feature of the experiment.
        default
            What to show if there is no arm.
        within
            Seconds for the whole call.
        sticky
            As `Session.choose` has it.

        Returns
        -------
        The `Arm`: what to show, why it is the default (``fallback``), and ``report``.

        Examples
        --------
        >>> shown = client.arm("offers", {"age": 41}, default="delivery")  # doctest: +SKIP
        >>> shown.name, shown.fallback  # doctest: +SKIP
        ('delivery', 'https://learn.example did not answer within 0.3 s (try again later)')
        >>> shown.report(1.0)  # doctest: +SKIP
        """

        def chosen(is_awaited: Callable[[], bool]) -> Arm[Outcome]:
            session = self.join(name) if self._has_fresh(name) else self.session_in_time(name, within)
            return self._fallbacks.arm(session, context, sticky=sticky, is_awaited=is_awaited)

        try:
            arm = Beside(chosen).result(monotonic() + within)
            if arm is None:
                raise late(self._url, within)
        except Exception as error:
            return self._fallbacks.default(name, default, error)
        return arm

    def session_in_time(self, name: str, within: float) -> Session[Outcome]:
        """Return this person's session, as `arm` needs it; raises `Unavailable` if there is none after ``within``."""
        session = self._in_time.get(name, within)
        if session is None:
            raise late(self._url, within)
        return session

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

    def report(self, name: str, reward: Any) -> Outcome:
        """Do what `Session.report` does on the choice that is kept, whichever process or session made it.

        Without a choice nothing is reported: ``not-asked``, or ``already-reported``.
        """
        return self._exchange.run(self._reporting(self._exchange.run, name, reward))

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

    def resend_people(self) -> dict[str, Counter[Outcome]]:
        """Do for all people of this client what `resend` does for one, in random order; ends if nobody answers.

        Call it now and then, in one process of those that share the ledger.

        Returns
        -------
        How many reports came to which end, by the experiment's name.
        """
        return self._exchange.run(self._resending_people())

    def forget(self) -> None:
        """Erase what the ledger keeps of the person, but for what was paid: no other report will be asked for.

        Choices, arms, upload tokens and reports that wait are overwritten.
        """
        self._exchange.run(self._forgetting())

    def close(self) -> None:
        """Close the connections; those of many people are their client's."""
        if not self._is_shared:
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(BaseClient["httpx.AsyncBaseTransport"]):
    """A `Client` for asyncio: ``await`` whatever asks somebody, or the ledger.

    What a person's session does with the ledger, and decides, it does in a thread beside the event loop.
    """

    def _open(self, transport: "httpx.AsyncBaseTransport | None") -> None:
        from privateer_client.async_transport import AsyncExchange

        self._exchange = AsyncExchange(transport)
        self._fallbacks: Fallbacks[Awaitable[Outcome]] = Fallbacks(unasked_async)

    def _share(self) -> None:
        self._exchange.share()

    @cached_property
    def _in_time(self) -> "AsyncSessionsInTime":
        from privateer_client.async_in_time import AsyncSessionsInTime

        return AsyncSessionsInTime(self._joined, partial(self._exchange.beside, self._offline, self._exchange.run))

    def person(self, key: str | int, attest: Callable[[str], str] | None = None) -> Self:
        """Do what `Client.person` does."""
        return self._person(key, attest)

    async def arm(
        self, name: str, context: Mapping[str, Any] = {}, *, default: Any, within: float = 0.3, sticky: bool = True
    ) -> Arm[Awaitable[Outcome]]:
        """Do what `Client.arm` does."""
        end = monotonic() + within
        try:
            session = await self._in_time.get(name, within)
            if session is None:
                raise late(self._url, within)
            chosen = partial(self._fallbacks.arm, session, context, sticky=sticky)
            arm = await self._exchange.beside_in_time(chosen, end)
            if arm is None:
                raise late(self._url, within)
            return replace(arm, session=self._beside(session))
        except Exception as error:
            return self._fallbacks.default(name, default, error)

    async def join(self, name: str, cohort: str = "") -> "AsyncSession":
        """Do what `Client.join` does."""
        return self._beside(await self._joined(name, cohort))

    async def resume(self, name: str) -> "AsyncSession":
        """Do what `Client.resume` does."""
        return self._beside(await self._exchange.beside(self._resumed, self._exchange.run, name))

    async def report(self, name: str, reward: Any) -> Outcome:
        """Do what `Client.report` does."""
        return await self._exchange.run(self._reporting(self._exchange.run, name, reward))

    async def resend(self) -> dict[str, Outcome]:
        """Do what `Client.resend` does."""
        return await self._exchange.run(self._resending())

    async def resend_people(self) -> dict[str, Counter[Outcome]]:
        """Do what `Client.resend_people` does."""
        return await self._exchange.run(self._resending_people())

    async def fetch_tokens(self, name: str) -> int:
        """Do what `Client.fetch_tokens` does."""
        return await self._exchange.run(self._ahead(name))

    async def forget(self) -> None:
        """Do what `Client.forget` does."""
        await self._exchange.run(self._forgetting())

    async def _joined(self, name: str, cohort: str = "") -> Session[Awaitable[Outcome]]:
        return await self._exchange.run(self._joining(self._exchange.run, name, cohort))

    def _beside(self, session: Session[Awaitable[Outcome]]) -> "AsyncSession":
        from privateer_client.async_session import AsyncSession

        return AsyncSession(session, self._exchange)

    async def close(self) -> None:
        """Do what `Client.close` does."""
        if not self._is_shared:
            await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
