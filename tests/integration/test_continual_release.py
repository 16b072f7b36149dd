"""Noise of continual releases over a server's life, and records that a mechanism holds until then."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_core.mechanisms.cell_pairs import REPORT, CellPairs
from privateer_core.mechanisms.vectors.running_vectors import RunningTotal, RunningVectors
from privateer_server.algorithms.linear.learner import ContinualLearner
from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.open_round import add_stored_sums, restore_without_sums
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore as restore_backup
from privateer_server.store.round_keys import KeyFolder
from privateer_server.store.schema import STORE_KIND as DATABASE
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.crashes import files
from tests.support.sealing import body_of, plain_reports, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, SMALL, TOKEN, Api
from tests.support.stores import embedded_store

SPEC: dict[str, Any] = {
    "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 200, "round_size": 20},
    "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
    "algorithm": {"name": "linear"},
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the step of every release that is learned from."""
    released_steps: list[int] = []
    learn = ContinualLearner.learn

    def noting(self: Any, state: Any, policy: Any, release: Any) -> Any:
        released_steps.append(release.step)
        return learn(self, state, policy, release)

    monkeypatch.setattr(ContinualLearner, "learn", noting)
    return released_steps


def settings_at(folder: Path) -> ServerSettings:
    return ServerSettings(data=folder, admin_token=TOKEN, sender_keys=TRUSTED)


async def fill(client: httpx.AsyncClient, rounds: int) -> None:
    for _ in range(rounds):
        published = await Api(client).publication()
        answer = await client.post("/reports", content=body_of(published, sealed_reports(published, 20)))
        assert answer.status_code == 202


def noise_on_disk(folder: Path) -> np.ndarray:
    """The noise that the open round brings along, read with its key."""
    store = embedded_store(folder)
    stored = store.experiments()[0].current
    store.close()
    blank = restore_without_sums(stored)
    decryptor = RoundKeys(KeyFolder(folder / "keys")).find_decryptor(blank.round.public_key)
    current = add_stored_sums(blank, [stored.total], decryptor)
    assert isinstance(current.mechanism, RunningVectors)
    return np.asarray(current.total.noise)


async def test_noise_goes_on_after_restarts_and_is_drawn_once(tmp_path: Path, steps: list[int]) -> None:
    settings = settings_at(tmp_path / "data")
    async with serving(create_app(settings)) as client:
        assert (await client.post("/experiments", json=SPEC, headers=ADMIN)).status_code == 201
        await fill(client, 2)
    before = noise_on_disk(settings.data)
    assert before.shape[0] == 2
    async with serving(create_app(settings)) as client:
        await fill(client, 1)
    after = noise_on_disk(settings.data)
    assert steps == [1, 2, 3]
    assert (after[:2] == before).all()
    raw = [row.tobytes() for row in after]
    assert not any(row in content for row in raw for content in files(settings.data).values()), "never in the clear"


async def test_noise_begins_anew_after_an_earlier_backup_was_restored(tmp_path: Path, steps: list[int]) -> None:
    """The rounds after the backup were released, and new releases are of other participants."""
    async with serving(create_app(settings_at(tmp_path / "data"))) as client:
        await client.post("/experiments", json=SPEC, headers=ADMIN)
        await fill(client, 2)
        (tmp_path / "copy.db").write_bytes((await client.get("/backup", headers=ADMIN)).content)
        await fill(client, 2)
    restored = settings_at(tmp_path / "restored")
    (tmp_path / "copy.db").rename(tmp_path / "server.db")
    restore_backup(tmp_path / "server.db", restored.data, DATABASE)
    async with serving(create_app(restored)) as client:
        await fill(client, 2)
        state = (await client.get("/experiments/test/state")).json()
    assert steps == [1, 2, 3, 4, 1, 2]
    assert state["answer"]["people"] == 80, json.dumps(state)


async def test_a_failure_between_journal_and_database_draws_no_second_noise(tmp_path, steps, monkeypatch):
    settings = settings_at(tmp_path / "data")
    noises: list[np.ndarray] = []
    settle = RunningVectors.release_and_carry

    def noting(self: RunningVectors, total: RunningTotal, noise: Any) -> Any:
        release, total_left = settle(self, total, noise)
        noises.append(total_left.noise)
        return release, total_left

    monkeypatch.setattr(RunningVectors, "release_and_carry", noting)
    async with serving(create_app(settings)) as client:
        await client.post("/experiments", json=SPEC, headers=ADMIN)
        await fill(client, 1)
        commit = Store.commit

        def dies(self: Store, changes: Any) -> None:
            if any(change.following for change in changes):
                raise OSError("full")
            commit(self, changes)

        with monkeypatch.context() as broken:
            broken.setattr(Store, "commit", dies)
            published = await Api(client).publication()
            await client.post("/reports", content=body_of(published, sealed_reports(published, 20)))
    async with serving(create_app(settings)) as client:
        assert (await Api(client).facts())["version"] == 3
    assert (noise_on_disk(settings.data) == noises[1]).all()
    assert len(noises) == 2
    assert steps == [1, 2]


CENTRAL = {**SMALL, "privacy.model": "central", "privacy.delta": 1e-6}


@dataclass(frozen=True)
class Held:
    """A total that is all its reports, as they came."""

    reports: int
    rows: bytes

    def merge_with(self, other: "Held") -> "Held":
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
    monkeypatch.setattr(CellPairs, "add", lambda _, total, rows: total.merge_with(Held(len(rows), rows.tobytes())))
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
