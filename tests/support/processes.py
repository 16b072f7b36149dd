"""A process that serves many people."""

from pathlib import Path
from typing import Any

from privateer_client import AsyncClient, Client, Ledger
from tests.support.clocks import Hands
from tests.support.experiments import OPEN, Server
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.specs import make_spec

PEOPLE = [f"user-{number}" for number in range(40)]


class Process:
    """A process that serves people, and the server that it asks."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self.folder, self.server = folder, server or Server(published(make_spec()))
        self.clock = Hands()
        self.path = folder / "people.db"

    def start(self, **options: Any) -> Client:
        usual = {
            "ledger": Ledger(self.path, clock=self.clock),
            "clock": self.clock,
            "retry_timeout": 0.0,
            "limits": OPEN,
        }
        return Client("http://s", **usual | {"transport": notarized(self.server)} | options)

    def start_async(self, **options: Any) -> AsyncClient:
        usual = {
            "ledger": Ledger(self.path, clock=self.clock),
            "clock": self.clock,
            "retry_timeout": 0.0,
            "limits": OPEN,
        }
        return AsyncClient("http://s", **usual | {"transport": notarized(self.server)} | options)

    def files(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.folder.iterdir()) if path.suffix != ".key")
