"""What a device keeps account of: payments, sealed reports on their way, and choices until they are reported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from privateer_client.choice import Choice


@dataclass(frozen=True)
class Payment:
    """What one report costs.

    Attributes
    ----------
    experiment
        Identity of the experiment: server and name. A new spec under an old name does not buy a second report.
    version, model
        Round and trust model.
    epsilon, delta, local_epsilon
        The promise under the trust model, and what remains of it if everybody else colludes; infinite without a bound.
    day
        When it was paid, in days since 1970: no finer, since somebody may look into the device.
    """

    experiment: str
    version: int
    model: str
    epsilon: float
    delta: float
    local_epsilon: float
    day: int = 0

    @property
    def server(self) -> str:
        """Origin of the experiment's server: scheme, host and port, whatever the path."""
        return "/".join(self.experiment.split("/")[:3])


class SealedReport(NamedTuple):
    """A report on its way: sealed to the server, so that the device itself can no longer open it.

    Attributes
    ----------
    experiment
        Identity of the experiment.
    endpoint
        URL that the report was made for.
    body
        What the device sends there: the same bytes each time.
    """

    experiment: str
    endpoint: str
    body: bytes


class Account(Protocol):
    """Where a device records payments, and keeps reports, choices and publications; see `Ledger`."""

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment together with the sealed report that it is for, and erase the choice; or refuse it."""
        ...

    def has_paid(self, experiment: str) -> bool:
        """Tell whether the device has contributed to an experiment."""
        ...

    def number(self, experiment: str, seed: int, people: int) -> int:
        """Return the device's number among an experiment's people, for the draw of this seed."""
        ...

    def waiting(self) -> list[SealedReport]:
        """Return the reports that no endpoint has answered for good."""
        ...

    def discard(self, experiment: str) -> None:
        """Forget the sealed report of an experiment, but not its payment."""
        ...

    def choice(self, experiment: str) -> Choice | None:
        """Return the choice that is kept for an experiment."""
        ...

    def choices(self) -> list[str]:
        """Return the experiments for which a choice is kept."""
        ...

    def change(self, experiment: str, change: Callable[[Choice | None], Choice | None]) -> Choice | None:
        """Replace the choice that is kept by what ``change`` makes of it, at once; None once a report is paid for."""
        ...

    def forget(self, experiment: str) -> None:
        """Erase the choice that is kept, whether it can be read or not."""
        ...

    def publication(self, experiment: str) -> bytes | None:
        """Return the publication that is kept for an experiment."""
        ...

    def remember(self, experiment: str, publication: bytes) -> None:
        """Keep a publication in the place of the one before."""
        ...
