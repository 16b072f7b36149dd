"""What a device keeps account of: payments, and sealed reports on their way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


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
    """Where a device records payments and keeps sealed reports; see `Ledger`."""

    def pay(self, payment: Payment, endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Record a payment together with the sealed report that it is for, or refuse it."""
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
