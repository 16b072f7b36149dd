"""The account of a device: payments and their limits, pending reports, and stored choices."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from privateer_client.ledger.choice import StoredArm
from privateer_client.ledger.known_servers import Servers
from privateer_client.ledger.token_store import TokenStore
from privateer_client.participation import SealedReport, StoredChoice
from privateer_core.errors import AlreadyReported, TermsRefused

COSTS: Final = ("epsilon", "delta", "local_epsilon")


@dataclass(frozen=True)
class Payment:
    """The total cost of the reports to an experiment."""

    # identity of the experiment: server and name. A new spec under an old name does not buy a second report.
    experiment: str
    # version, model: round of the last report, and trust model
    version: int
    model: str
    # epsilon, delta, local_epsilon: the promise under the trust model, and what remains of it if everybody else
    # colludes; infinite without a bound. The first report pays for all that share the promise.
    epsilon: float
    delta: float
    local_epsilon: float
    day: int = 0  # when the last report was made, in days since 1970: no finer, since somebody may look into the device
    # reports, made: reports that share the promise, and how many of them are made
    reports: int = 1
    made: int = 1
    period: int = 0  # number of the period of the last report, 0 where a person reports once
    pinned: str = ""  # what a server must not change between them (`privateer_client.ledger.choice`)

    def allows(self, period: float) -> bool:
        """Whether the device may make another report in this period."""
        return self.made < self.reports and self.period < period

    def followed_by(self, new_payment: "Payment") -> "Payment":
        """Return the payment that includes another report, whose promise is already paid for."""
        if self.made >= self.reports:
            raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
        if new_payment.pinned != self.pinned:
            raise changed_terms()
        if not self.allows(new_payment.period):
            raise AlreadyReported("this device has reported in this period", remedy="come back in the next one")
        if new_payment.version <= self.version:
            raise AlreadyReported("this device has reported to this round", remedy="report to the next one")
        local_epsilon = max(self.local_epsilon, new_payment.local_epsilon)
        return replace(new_payment, made=self.made + 1, local_epsilon=local_epsilon)


class Account(Protocol):
    """The interface of a device's record of payments, reports, choices and publications; see `Ledger`."""

    @property
    def servers(self) -> Servers:
        """The known servers of the device."""

    @property
    def tokens(self) -> TokenStore | None:
        """The store of upload tokens; None: tokens are not stored."""

    def transaction(self) -> AbstractContextManager[object]:
        """Make the calls of this thread in a context a single durable transaction, which must not contain requests.

        The calls have no transactions of their own: an error that is caught within the context undoes nothing.
        """

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment together with the sealed report that it is for, and erase the choice; or refuse it."""

    def payment(self, experiment: str) -> Payment | None:
        """Return the payment of an experiment's reports; None: there are none."""

    def count_visit(self, experiment: str, times: int, seconds: float, period: int) -> bool:
        """Count a visit, and return whether it is the one of ``times`` visits that was drawn for the report."""

    def draw_number(self, experiment: str, seed: int, n_participants: int) -> int:
        """Return the device's number among the participants for a seed; it is drawn and stored at the first call."""

    def pending_reports(self) -> list[SealedReport]:
        """Return the pending reports, on which no endpoint has decided."""

    def tie_token(self, report: SealedReport) -> bytes | None:
        """Return the upload token of a pending report, and tie an available one to it if it has none; or None."""

    def erase_report(self, report: SealedReport) -> None:
        """Overwrite a sealed report, since an endpoint has decided; its payment stays."""

    def choice(self, experiment: str) -> StoredChoice | None:
        """Return the stored choice of an experiment, or None."""

    def experiments_with_choice(self) -> list[str]:
        """Return the experiments with a stored choice."""

    def change_choice(
        self, experiment: str, change: Callable[[StoredChoice | None], StoredChoice | None]
    ) -> StoredChoice | None:
        """Replace the stored choice by the result of ``change`` atomically; None once a report is paid for."""

    def change_arm(self, experiment: str, change: Callable[[StoredArm | None], StoredArm | None]) -> StoredArm | None:
        """Replace the stored arm by the result of ``change`` atomically; an unreadable arm counts as None."""

    def forget(self, experiment: str) -> None:
        """Overwrite the stored choice and arm, whether they can be read or not, so that no report is made."""

    def publication(self, experiment: str) -> bytes | None:
        """Return the stored publication of an experiment; None if there is none, or it is damaged."""

    def store_publication(self, experiment: str, publication: bytes) -> None:
        """Store a publication that is in its server's log, instead of the one before."""

    def has_witnessed(self, experiment: str, publication_digest: bytes) -> bool:
        """Whether the stored publication has this digest, and was in its server's log."""


def changed_terms() -> TermsRefused:
    """Return the error about a server that has changed the terms that a participant's reports share."""
    detail = "reports a person, their period or their promise are not those of before"
    return TermsRefused(detail, field="experiment.reports_per_person", remedy="do not take part")
