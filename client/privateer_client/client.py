"""Clients of a server and of the shuffler that the application trusts.

The HTTP libraries are imported when a client is created.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from privateer_client.arm import Arm, Fallbacks
from privateer_client.base_client import BaseClient
from privateer_client.in_time import BackgroundTask, SessionsInTime
from privateer_client.session import Session
from privateer_client.states import ReportStatus
from privateer_core.privacy.terms_verification import Limits

if TYPE_CHECKING:
    import httpx


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
        The maximum cost of a contribution; default epsilon 1, delta 1e-5, and 4 if all other participants collude.
    ledger
        The record of contributions and choices: a `Ledger`, or the path of its file; default a file in the user's state
        directory. It is opened when it is first needed.
    timeout
        Seconds for one request and its whole answer.
    retry_timeout
        Seconds for which the client tries to send a report, with longer and longer pauses, before it leaves the report
        for later. The last try may begin just before they end.
    clock
        The clock that determines when a report is due.
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
        """Create the exchange with services, by the given transport or by own connections."""
        from privateer_client.transport import HttpExchange

        self._exchange = HttpExchange(transport)
        self._connections = self._exchange.connections
        self._fallbacks: Fallbacks[ReportStatus] = Fallbacks(lambda: ReportStatus.NOT_REQUESTED)

    @cached_property
    def _in_time(self) -> SessionsInTime:
        run = self._exchange.run
        make_steps = partial(self._join_steps, run, cohort="")
        return SessionsInTime(self._url, make_steps, run, partial(self._offline_session, run))

    def person(
        self, key: str | int, attest: Callable[[str], str] | None = None, *, limits: Limits | None = None
    ) -> Self:
        """Return the client of a participant, for a process that serves many participants; this sends nothing.

        These clients share connections, publications and the ledger's file. Close this client, not theirs.

        Parameters
        ----------
        key
            The application's key of the participant; a number is the same as its text. It is not sent.
        attest
            Returns the attestation that the application's backend signed for this participant, as in
            ``Client(attest=...)``.
        limits
            What this participant accepts at most; by default the limits of the client.

        Raises
        ------
        InputError
            If the key is no text and no whole number, or this client serves a single participant already.

        Examples
        --------
        >>> client.person("user-7").arm("offers", {"age": 41}, default="delivery")  # doctest: +SKIP
        """
        return self._make_person_client(key, attest, limits)

    def arm(
        self, name: str, context: Mapping[str, Any] = {}, *, default: Any, within: float = 0.3, sticky: bool = True
    ) -> Arm[ReportStatus]:
        """Return this participant's arm, or the default if there is no arm in time; never raise an exception.

        If the server is slower, its answer serves the next call, and a stored policy serves this call.

        Parameters
        ----------
        name
            The experiment's name.
        context
            A value for each feature of the experiment.
        default
            The value to show if there is no arm in time.
        within
            Seconds for the whole call.
        sticky
            As `Session.choose` has it.

        Returns
        -------
        The `Arm`: its ``name``, the reason for showing the default (``fallback``), and ``report``.

        Examples
        --------
        >>> shown = client.arm("offers", {"age": 41}, default="delivery")  # doctest: +SKIP
        >>> shown.name, shown.fallback  # doctest: +SKIP
        ('delivery', 'https://learn.example did not answer within 0.3 s (try again later)')
        >>> shown.report(1.0)  # doctest: +SKIP
        """

        def choose_in_background(is_awaited: Callable[[], bool]) -> Arm[ReportStatus]:
            choose = partial(self._fallbacks.choose, context=context, sticky=sticky, is_awaited=is_awaited)
            arm = self._choose_without_request(self._exchange.run, name, choose)
            return choose(self.session_in_time(name, within)) if arm is None else arm

        try:
            arm = BackgroundTask(choose_in_background).result(monotonic() + within)
            if arm is None:
                raise self._in_time.late_error(name, within)
        except Exception as error:
            return self._fallbacks.choose_default(name, default, error)
        return arm

    def session_in_time(self, name: str, within: float) -> Session[ReportStatus]:
        """Return this participant's session; raise `Unavailable` if there is no session after ``within`` seconds."""
        session = self._in_time.get(name, within)
        if session is None:
            raise self._in_time.late_error(name, within)
        return session

    def join(self, name: str, cohort: str = "") -> Session[ReportStatus]:
        """Fetch the policy of an experiment, check its terms, and start this participant's session.

        The client first makes the reports that are due, and sends pending reports once, all within ``timeout``.
        If the server does not answer, the session follows the last policy that the device has verified (`offline`).

        Parameters
        ----------
        name
            The experiment's name.
        cohort
            The source that this person belongs to, whose members report on arms played before; empty for the
            experiment's own participants.

        Raises
        ------
        TermsRefused
            If the terms violate the experiment's promise or this device's limits, or the draw of participants changed.
        SignatureInvalid, KeyChanged, ProofInvalid, LogRollback, LogForked
            If the server is not the one that this device knows, or contradicts itself (`evidence`). After a fork or a
            log that went back nothing goes on at this server: choosing, reporting and sending raise the same.
        NotFound, Deleted, Unavailable
            If there is no such experiment, there was one, or there is neither an answer nor a policy kept.
        InputError
            If the stored choice cannot be read.
        """
        return self._exchange.run(self._join_steps(self._exchange.run, name, cohort))

    def resume(self, name: str) -> Session[ReportStatus]:
        """Return the session of a stored choice, after a restart. This sends nothing.

        Raises
        ------
        AlreadyReported
            If its report is made.
        InputError
            If no choice is stored, or it cannot be read.
        TermsRefused
            If the limits of this client are below what the policy costs.
        Unavailable
            If its policy is not stored.
        """
        return self._resume_session(self._exchange.run, name)

    def report(self, name: str, reward: Any) -> ReportStatus:
        """Report on the stored choice as `Session.report`, whichever process or session made the choice.

        Without a choice nothing is reported: ``not-requested``, or ``already-reported``.
        """
        return self._exchange.run(self._report_steps(self._exchange.run, name, reward))

    def flush(self) -> dict[str, ReportStatus]:
        """Make the reports that are due, and send the pending reports for this client's server and shuffler.

        It fetches the open round once, and sends for ``retry_timeout`` seconds. Call it regularly: at the start of an
        application, and on a timer if the application runs for long.

        Returns
        -------
        The status of each report, by the experiment's name. No report is randomized or paid for twice.
        """
        return self._exchange.run(self._flush_steps())

    def fetch_tokens(self, name: str) -> int:
        """Fetch the upload tokens for an experiment in advance, for instance a day before the participant's choice.

        The longer before a report, the less the time of the report says about the device that got the token.

        Returns
        -------
        The number of tokens for reports.

        Raises
        ------
        TermsRefused
            If token keys are not those that everybody gets, or `join` would raise it.
        AttestationRefused, TokensExhausted
            If the issuer gives this device none.
        InputError, NotFound, Deleted, Unavailable
            If no issuer is named, there is no such experiment, or a service does not answer.
        """
        return self._exchange.run(self._prefetch_tokens_steps(name))

    def flush_people(self) -> dict[str, Counter[ReportStatus]]:
        """Flush the reports of all participants of this client, in random order, as `flush`; end if there is no answer.

        Call it regularly, in one of the processes that share the ledger.

        Returns
        -------
        The number of reports with each status, by the experiment's name.
        """
        return self._exchange.run(self._flush_people_steps())

    def forget(self) -> None:
        """Erase the participant's data in the ledger except payments, so that no second report can be made.

        Choices, arms, upload tokens and pending reports are overwritten.
        """
        self._exchange.run(self._forget_steps())

    def close(self) -> None:
        """Close the connections, unless another client shares them."""
        if not self._is_shared:
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
