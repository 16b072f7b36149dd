"""A mechanism may hold reports until the release: they are encrypted on disk, across restarts, and erased then."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms.cell_pairs import REPORT, CellPairs
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.disks import files
from tests.support.sealing import body_of, plain_reports, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import SMALL, TOKEN, Api

CENTRAL = {**SMALL, "privacy.model": "central", "privacy.delta": 1e-6}


@dataclass(frozen=True)
class Held:
    """A total that is all its reports, as they came."""

    reports: int
    rows: bytes

    def merged(self, other: "Held") -> "Held":
        return Held(self.reports + other.reports, self.rows + other.rows)


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pairs that look at nothing before the release; notes how many records each release had."""
    released: list[int] = []
    empty, add, release = CellPairs.empty, CellPairs.add, CellPairs.release

    def release_of(self: CellPairs, total: Held, noise: Any) -> Any:
        released.append(total.reports)
        return release(self, add(self, empty(self), np.frombuffer(total.rows, REPORT)), noise)

    monkeypatch.setattr(CellPairs, "empty", lambda _: Held(0, b""))
    monkeypatch.setattr(CellPairs, "add", lambda _, total, rows: total.merged(Held(len(rows), rows.tobytes())))
    monkeypatch.setattr(CellPairs, "release", release_of)
    return released


async def test_records_are_held_until_the_release_and_then_erased(tmp_path: Path, holding: list[int]) -> None:
    settings = ServerSettings(data=tmp_path / "data", admin_token=TOKEN, sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        assert (await Api(client).create(CENTRAL)).status_code == 201
        first = await Api(client).publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 13)))
    records = plain_reports(first, 13)
    stored = files(tmp_path / "data")
    assert not any(record in content for record in records for content in stored.values()), "held, but not in the clear"
    async with serving(create_app(settings)) as client:
        await client.post("/reports", content=body_of(first, sealed_reports(first, 7, seed=1)))
        assert (await Api(client).facts())["version"] == 2
        assert holding == [20]
    sizes = [len(content) for name, content in files(tmp_path / "data").items() if name.startswith("keys/")]
    assert sizes == [32], "the key of the closed round, with which its records were encrypted, is gone"
