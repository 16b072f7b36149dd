"""A ledger in memory, for tests with many devices."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.choice import StoredArm
from privateer_client.ledger.known_servers import KnownServer
from privateer_client.participation import SealedReport, StoredChoice
from privateer_core.wire.publication import digest


class MemoryServers:
    """What is known of servers, in memory."""

    def __init__(self) -> None:
        self._records: dict[str, KnownServer] = {}
        self._evidence: dict[str, str] = {}

    def get(self, server: str) -> KnownServer | None:
        return self._records.get(server)

    def change(self, server: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        self._records[server] = change(self._records.get(server))

    def store_evidence(self, server: str, evidence: str) -> None:
        self._evidence[server] = evidence

    def mark_rollback_answered(self, server: str) -> None:
        self._evidence.pop(server, None)

    def evidence(self, server: str) -> str | None:
        return self._evidence.get(server)


class MemoryLedger:
    """Pays for what it is asked for, and keeps choices and publications as they are."""

    def __init__(self) -> None:
        self.servers = MemoryServers()
        self.payments: list[Payment] = []
        self._choices: dict[str, StoredChoice] = {}
        self._arms: dict[str, StoredArm] = {}
        self._publications: dict[str, bytes] = {}

    @property
    def tokens(self) -> None:
        return None

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def pay(self, payment: Payment, _endpoint: str, seal: Callable[[], bytes]) -> bytes:
        sealed = seal()
        self.payments.append(payment)
        self._choices.pop(payment.experiment, None)
        return sealed

    def payment(self, _: str) -> Payment | None:
        return self.payments[-1] if self.payments else None

    def count_visit(self, _experiment: str, times: int, _seconds: float, _period: int) -> bool:
        return times == 1

    def draw_number(self, _experiment: str, _seed: int, n_participants: int) -> int:
        return n_participants // 2

    def pending_reports(self) -> list[SealedReport]:
        return []

    def tie_token(self, _: SealedReport) -> None:
        return None

    def erase_report(self, _: SealedReport) -> None:
        pass

    def choice(self, experiment: str) -> StoredChoice | None:
        return self._choices.get(experiment)

    def experiments_with_choice(self) -> list[str]:
        return list(self._choices)

    def change_choice(
        self, experiment: str, change: Callable[[StoredChoice | None], StoredChoice | None]
    ) -> StoredChoice | None:
        changed = change(self.choice(experiment))
        self._choices.pop(experiment, None)
        if changed is not None:
            self._choices[experiment] = changed
        return changed

    def change_arm(self, experiment: str, change: Callable[[StoredArm | None], StoredArm | None]) -> StoredArm | None:
        changed = change(self._arms.get(experiment))
        if changed is not None:
            self._arms[experiment] = changed
        return changed

    def forget(self, experiment: str) -> None:
        self._choices.pop(experiment, None)
        self._arms.pop(experiment, None)

    def publication(self, experiment: str) -> bytes | None:
        return self._publications.get(experiment)

    def store_publication(self, experiment: str, publication: bytes) -> None:
        self._publications[experiment] = publication

    def has_witnessed(self, experiment: str, name: bytes) -> bool:
        stored = self._publications.get(experiment)
        return stored is not None and digest(stored) == name
