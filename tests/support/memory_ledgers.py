"""A ledger in memory, for tests with many devices."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.choice import KeptArm, KeptChoice
from privateer_client.ledger.known_servers import KnownServer
from privateer_client.participation import SealedReport
from privateer_core.wire.publication import digest


class MemoryServers:
    """What is known of servers, in memory."""

    def __init__(self) -> None:
        self._known: dict[str, KnownServer] = {}
        self._evidence: dict[str, str] = {}

    def get(self, server: str) -> KnownServer | None:
        return self._known.get(server)

    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        self._known[server] = change(self._known.get(server))

    def accuse(self, server: str, evidence: str) -> None:
        self._evidence[server] = evidence

    def acquit(self, server: str) -> None:
        self._evidence.pop(server, None)

    def evidence(self, server: str) -> str | None:
        return self._evidence.get(server)


class MemoryLedger:
    """Pays for what it is asked for, and keeps choices and publications as they are."""

    def __init__(self) -> None:
        self.servers = MemoryServers()
        self.paid: list[Payment] = []
        self._choices: dict[str, KeptChoice] = {}
        self._arms: dict[str, KeptArm] = {}
        self._publications: dict[str, bytes] = {}

    @property
    def tokens(self) -> None:
        return None

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def pay(self, payment: Payment, _endpoint: str, seal: Callable[[], bytes]) -> bytes:
        sealed = seal()
        self.paid.append(payment)
        self._choices.pop(payment.experiment, None)
        return sealed

    def payment(self, _: str) -> Payment | None:
        return self.paid[-1] if self.paid else None

    def draw(self, _experiment: str, times: int, _seconds: float, _period: int) -> bool:
        return times == 1

    def number(self, _experiment: str, _seed: int, people: int) -> int:
        return people // 2

    def waiting(self) -> list[SealedReport]:
        return []

    def answered(self, _: SealedReport) -> None:
        pass

    def choice(self, experiment: str) -> KeptChoice | None:
        return self._choices.get(experiment)

    def choices(self) -> list[str]:
        return list(self._choices)

    def change(self, experiment: str, change: Callable[[KeptChoice | None], KeptChoice | None]) -> KeptChoice | None:
        changed = change(self.choice(experiment))
        self._choices.pop(experiment, None)
        if changed is not None:
            self._choices[experiment] = changed
        return changed

    def change_arm(self, experiment: str, change: Callable[[KeptArm | None], KeptArm | None]) -> KeptArm | None:
        changed = change(self._arms.get(experiment))
        if changed is not None:
            self._arms[experiment] = changed
        return changed

    def forget(self, experiment: str) -> None:
        self._choices.pop(experiment, None)
        self._arms.pop(experiment, None)

    def publication(self, experiment: str) -> bytes | None:
        return self._publications.get(experiment)

    def remember(self, experiment: str, publication: bytes) -> None:
        self._publications[experiment] = publication

    def has_witnessed(self, experiment: str, name: bytes) -> bool:
        kept = self._publications.get(experiment)
        return kept is not None and digest(kept) == name
