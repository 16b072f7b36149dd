"""How a person's one report is paid for, sent, and answered: what all sessions share."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import httpx

from privateer.errors import AlreadyReported
from privateer.wire.envelope import MEDIA_TYPE, Envelope, encode_envelope
from privateer.wire.problem import slug_of
from privateer_client.followed import Followed
from privateer_client.ledger import Account, Payment

_HEADERS: Final = {"Content-Type": MEDIA_TYPE}


class Outcome(StrEnum):
    """What became of a report.

    ``accepted``: it is durable. ``late``: the round closed before the report came. ``not-asked``: the experiment is
    over, it is other people's turn, or they were drawn. ``refused``: the door did not take it. ``unsent``: nobody
    answered; it may have arrived or not.
    """

    ACCEPTED = "accepted"
    LATE = "late"
    NOT_ASKED = "not-asked"
    REFUSED = "refused"
    UNSENT = "unsent"


class Part:
    """One person's part in one round; does no input or output but the ledger's."""

    def __init__(self, followed: Followed, account: Account, identity: str, door: str) -> None:
        self._followed = followed
        self._account = account
        self._identity = identity
        self._door = door
        self.refusal: str | None = None
        """Reason of a refused report."""
        self.clipped = False
        """Whether what is told had to be clipped to its bounds."""

    def _check_unpaid(self) -> None:
        if self._account.has_paid(self._identity):
            raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")

    def _paid(self, seal: Callable[[], bytes]) -> bytes:
        """The body to send, paid for before it is made."""
        terms, facts = self._followed.terms, self._followed.round
        promise = (terms.epsilon, terms.delta, terms.local_epsilon)
        self._account.pay(Payment(self._identity, facts.version, terms.model, *promise))
        return encode_envelope(Envelope(self._followed.header, seal()))

    def _outcome(self, response: httpx.Response, retried: bool) -> Outcome:
        if response.is_success:
            return Outcome.ACCEPTED
        self.refusal = slug_of(response.content)
        if retried and self.refusal == "duplicate-report":
            return Outcome.ACCEPTED
        return Outcome.LATE if self.refusal == "round-closed" else Outcome.REFUSED


class Sending(Part):
    """A part over a blocking transport."""

    def __init__(self, http: httpx.Client, retries: int, *part: Any) -> None:
        super().__init__(*part)
        self._http, self._retries = http, retries

    def _send(self, body: bytes | None) -> Outcome:
        if body is None:
            return Outcome.NOT_ASKED
        for attempt in range(self._retries + 1):
            try:
                response = self._http.post(self._door, content=body, headers=_HEADERS)
            except httpx.TransportError:
                continue
            if not response.is_server_error:
                return self._outcome(response, attempt > 0)
        return Outcome.UNSENT


class AsyncSending(Part):
    """A part over an asyncio transport."""

    def __init__(self, http: httpx.AsyncClient, retries: int, *part: Any) -> None:
        super().__init__(*part)
        self._http, self._retries = http, retries

    async def _send(self, body: bytes | None) -> Outcome:
        if body is None:
            return Outcome.NOT_ASKED
        for attempt in range(self._retries + 1):
            try:
                response = await self._http.post(self._door, content=body, headers=_HEADERS)
            except httpx.TransportError:
                continue
            if not response.is_server_error:
                return self._outcome(response, attempt > 0)
        return Outcome.UNSENT
