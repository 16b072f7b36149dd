"""How a person's one report is paid for, sent, and answered: what all sessions share."""

from collections.abc import Callable
from typing import Any

from privateer.errors import AlreadyReported
from privateer.wire.envelope import Envelope, encode_envelope
from privateer_client.account import Account, Payment, SealedReport
from privateer_client.answers import Outcome
from privateer_client.delivery import Steps, deliver
from privateer_client.exchange import AsyncExchange, Exchange
from privateer_client.followed import Followed
from privateer_client.pace import Pace


class Part:
    """One person's part in one round; does no input or output but the ledger's."""

    def __init__(self, pace: Pace, followed: Followed, account: Account, identity: str, endpoint: str) -> None:
        self._pace = pace
        self._followed = followed
        self._account = account
        self._identity = identity
        self._endpoint = endpoint
        self.refusal: str | None = None
        """Reason of a refused report, or why one still waits."""
        self.clipped = False
        """Whether what is told had to be clipped to its bounds."""

    def _check_unpaid(self) -> None:
        if self._account.has_paid(self._identity):
            raise AlreadyReported(
                "this device has reported to the experiment", remedy="nothing to do: if it waits, the client sends it"
            )

    def _paid(self, seal: Callable[[], bytes]) -> bytes:
        """The body to send: made once, and kept by the ledger together with its payment."""
        terms, facts = self._followed.terms, self._followed.round
        promise = (terms.epsilon, terms.delta, terms.local_epsilon)
        payment = Payment(self._identity, facts.version, terms.model, *promise)
        return self._account.pay(
            payment, self._endpoint, lambda: encode_envelope(Envelope(self._followed.header, seal()))
        )

    def _delivered(self, body: bytes | None) -> Steps[Outcome]:
        if body is None:
            return Outcome.NOT_ASKED
        report = SealedReport(self._identity, self._endpoint, body)
        verdict = (yield from deliver([report], self._account, self._pace))[self._identity]
        self.refusal = verdict.reason
        return verdict.outcome


class Sending(Part):
    """A part over a blocking transport."""

    def __init__(self, exchange: Exchange, *part: Any) -> None:
        super().__init__(*part)
        self._exchange = exchange

    def _send(self, body: bytes | None) -> Outcome:
        return self._exchange.run(self._delivered(body))


class AsyncSending(Part):
    """A part over an asyncio transport."""

    def __init__(self, exchange: AsyncExchange, *part: Any) -> None:
        super().__init__(*part)
        self._exchange = exchange

    async def _send(self, body: bytes | None) -> Outcome:
        return await self._exchange.run(self._delivered(body))
