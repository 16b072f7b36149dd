"""Many kills at random moments: no acknowledged report is lost, and none is counted twice."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.services.processes import Services
from tests.integration.test_pipeline import SHUFFLED, count_held, facts, is_settled, services
from tests.support.nights import KILLS
from tests.support.specs import make_spec

LONG = {**SHUFFLED, "experiment.horizon": 15_000}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6, "experiment.horizon": 15_000}


class Killer:
    """Kills a random process, again and again: soon after it is ready, and one time in four while it starts."""

    def __init__(self, at: Services, victims: list[str], rng: random.Random) -> None:
        self._at, self._victims, self._rng = at, victims, rng
        self._over, self._thread = threading.Event(), threading.Thread(target=self._run)
        self.kills = 0

    def _run(self) -> None:
        while not self._over.wait(self._rng.uniform(0.0, 1.0)):
            victim = self._rng.choice(self._victims)
            self._at.processes.kill(victim)
            self._at.processes.start(victim)
            self.kills += 1
            if self._rng.random() < 0.75:
                self._at.processes.wait(victim)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
            for name in ("server", "shuffler"):
                self._at.processes.wait(name)


def create(at: Services, spec: Spec) -> None:
    body, headers = spec.model_dump(mode="json", exclude_none=True), {"Authorization": f"Bearer {at.token}"}
    httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).raise_for_status()


def load(at: Services, seed: int) -> LoadResult:
    people: dict[str, Any] = {"population": {"name": "peaks"}, "users": 14_500}
    return run_load("test", at.server, at.shuffler, batch=20, seed=seed, sender_key=at.sender_key, **people)


def count_reports(at: Services, folder: Path, min_accepted: int) -> int:
    """Count the reports at the server and in the shuffler, once no report is on its way."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if facts(at)["accepted"] >= min_accepted // 1000 * 1000 and is_settled(at, folder / "shuffler"):
            break
        time.sleep(0.1)
    at.processes.kill("shuffler")
    return int(facts(at)["accepted"]) + count_held(folder / "shuffler")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("changes", "victims"), [(LONG, ["server", "shuffler"]), (CENTRAL, ["server"])])
def test_many_kills_lose_and_double_nothing(tmp_path, monkeypatch, changes, victims):
    monkeypatch.setattr("privateer_lab.load.endpoints.STARTUP_SECONDS", 90.0)  # a busy machine is slow
    rng, kills, run = random.Random(7), 0, 0
    while kills < KILLS:
        folder, run = tmp_path / str(run), run + 1
        with services(folder) as at:
            create(at, make_spec(changes))
            killer = Killer(at, victims, rng)
            with killer.at_work():
                result = load(at, run)
            kills += killer.kills
            n_refused = sum(result.refused.values())
            assert result.accepted + n_refused == result.people
            total = count_reports(at, folder, result.accepted) if changes is LONG else int(facts(at)["accepted"])
            print(f"{killer.kills} kills: {result.accepted} acknowledged, {n_refused} not, {total} counted", flush=True)
            # Who is cut off between storing and answer may find the round closed when asking again.
            assert result.accepted <= total <= result.accepted + n_refused
