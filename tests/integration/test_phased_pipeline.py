"""Phased elimination and linear bandits over real sockets: the same as in one process, whatever dies when."""

import math
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.errors import InvalidValueWarning
from privateer_core.primitives.questions import L2VectorSum
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.simulation.simulate import simulate_once
from tests.support.answers import fact
from tests.support.phased import phased_spec

QUICK: dict[str, Any] = {
    "experiment.horizon": 700,
    "experiment.participants": 800,
    "actions.count": 12,
    "actions.dimension": 3,
    "algorithm.alpha": 0.2,
    "algorithm.participants_factor": 90,
    "privacy.epsilon": 8.0,
    "privacy.min_batch": 100,
    "population.scale": 0.7,
}
BOX: dict[str, Any] = {
    **{name: value for name, value in QUICK.items() if not name.startswith("actions.")},
    "experiment.name": "box",
    "experiment.horizon": 4000,
    "experiment.participants": 1000,
    "actions": {"low": [0.0, -10.0, 1.0], "high": [1.0, 10.0, 5.0]},
}
STILL = {**QUICK, "privacy.epsilon": None, "privacy.min_batch": None}


def create(at: Services, spec: Spec) -> None:
    body = spec.without_people().model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    answer = httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60)
    assert answer.status_code == 201, answer.text


def get(at: Services, spec: Spec, page: str) -> dict[str, Any]:
    return dict(httpx.get(f"{at.server}/experiments/{spec.experiment.name}{page}").json())


def drive(at: Services, spec: Spec, **options: Any) -> LoadResult:
    assert spec.population is not None
    people = dict(spec.population)
    return run_load(
        spec.experiment.name, at.server, at.shuffler, sender_key=at.sender_key, population=people, batch=40, **options
    )


def assert_true_to_the_process(spec: Spec, result: LoadResult, seeds: int) -> None:
    """Check that a run over HTTP is within 5 standard deviations of the mean of runs in one process."""
    regrets = np.array([simulate_once(spec, seed).regret for seed in range(seeds)])
    assert abs(result.regret - regrets.mean()) <= 5 * regrets.std(ddof=1)
    assert result.regret < result.uniform_regret / 2


def assert_recorded(at: Services, spec: Spec, result: LoadResult) -> None:
    record = get(at, spec, "/privacy")
    assert all(verdict.holds for verdict in recompute(read_certificates(record)[""]))
    counted = sum(row["received"] for row in record["rounds"] if row["released"])
    # Who is cut off after a report was counted and before the answer may find the phase closed when asking again.
    assert result.accepted <= counted <= result.accepted + result.refused["round-closed"]
    assert len(record["rounds"]) == result.rounds


def test_shuffled_phases_over_http(tmp_path: Path) -> None:
    spec = phased_spec(QUICK, "shuffle")
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        result = drive(at, spec)
        assert (result.over, dict(result.refused), result.accepted) == (True, {}, result.people)
        assert get(at, spec, "")["status"] == "finished"
        state = get(at, spec, "/state")["answer"]
        assert fact(state, "people asked") == result.people
        assert_recorded(at, spec, result)
        # 64 bytes of sealing and 3 of what is said, and the envelopes' headers.
        assert 67 * result.messages_sent < result.bytes_sent < 68 * result.messages_sent
    assert_true_to_the_process(spec, result, 8)


def test_a_box_over_http(tmp_path: Path) -> None:
    """Phases refine the cover, and the answer names a point of it, with a test of the fit."""
    spec = phased_spec({**BOX, "privacy.min_batch": None}, "central")
    assert spec.actions.box is not None
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        result = drive(at, spec)
        assert (result.over, dict(result.refused), result.accepted) == (True, {}, result.people)
        assert result.regret < result.uniform_regret
        assert_recorded(at, spec, result)
        answer = get(at, spec, "/answer")["result"]
        fit = next(part for part in answer["parts"] if part["kind"] == "table")
        assert fit["title"] == "where the best point is"
        assert [row[0] for row in fit["rows"]] == ["x1", "x2", "x3"]
        assert all(low <= 0 <= high for *_, low, high in fit["rows"])
        assert answer["recommended"] == "({})".format(", ".join(f"{row[1]:g}" for row in fit["rows"]))
        rows = {spec.options.index(estimate["name"]) for estimate in answer["estimates"]}
        assert not rows <= set(spec.actions.box.list_rows(spec.actions.box.first_level).tolist())


@pytest.mark.nightly
def test_kill_minus_nine_in_a_phase_changes_nothing(tmp_path: Path) -> None:
    """Without a mechanism's noise what comes out is a function of the seed."""
    spec = phased_spec(STILL)
    results, states = [], []
    for victim in ("", "server"):
        with run_services(tmp_path / f"data{victim}", free_port(), free_port()) as at:
            create(at, spec)
            killer = threading.Thread(target=kill_twice, args=(at, victim))
            killer.start()
            results.append(drive(at, spec, seed=3, concurrency=1))
            killer.join()
            if victim:
                at.processes.wait(victim)
            states.append(get(at, spec, "/state")["answer"])
            assert_recorded(at, spec, results[-1])
    assert [result.accepted + result.refused["round-closed"] for result in results] == [results[0].people] * 2
    actives = [state.pop("estimates") for state in states]
    assert states[0] == states[1]
    # Vectors are rounded to their grid at random, by the operating system's randomness.
    assert [row["name"] for row in actives[0]] == [row["name"] for row in actives[1]]
    estimates = [[row["value"] for row in active] for active in actives]
    assert np.allclose(*estimates, atol=1e-4)
    assert math.isclose(results[0].regret, results[1].regret)


def kill_twice(at: Services, victim: str) -> None:
    for _ in range(2 if victim else 0):
        time.sleep(0.3)
        at.processes.kill(victim)
        at.processes.start(victim)


@pytest.mark.nightly
def test_a_phase_that_is_short_of_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the people never answer: with a deadline that reduces, the experiment goes on, and its record says so."""
    short = {
        "recruitment.timeout_seconds": 2,
        "recruitment.extensions": 0,
        "recruitment.min_response_rate": 0.3,
        "privacy.min_batch": 20,
    }
    spec = phased_spec({**QUICK, "experiment.horizon": 100, **short}, "shuffle")
    monkeypatch.setenv("PRIVATEER_MIN_BATCH", "20")
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        result = drive(at, spec, users=spec.experiment.participants // 2)
        assert result.over
        assert get(at, spec, "")["status"] == "finished"
        rows = get(at, spec, "/privacy")["rounds"]
        assert all(row["released"] and 0 < row["received"] < row["batch_size"] for row in rows)
        assert_recorded(at, spec, result)


def test_a_device_of_four_lines(tmp_path: Path) -> None:
    limits = Limits(epsilon=8.0, local_epsilon=8.0)
    answered = {True: ReportStatus.ACCEPTED, False: ReportStatus.NOT_REQUESTED}
    with run_services(tmp_path, free_port(), free_port()) as at:
        for changes in (QUICK, BOX):
            spec = phased_spec({**changes, "privacy.min_batch": None}, "local")
            create(at, spec)
            outcomes = []
            for person in range(20):
                ledger = Ledger(tmp_path / f"{spec.name}-{person}.db")
                with Client(at.server, limits=limits, ledger=ledger) as client:
                    session = client.join(spec.name)
                    plays = session.choose()
                    assert set(plays) <= set(range(spec.actions.shape[0]))
                    outcomes.append((session.report_requested, session.report(dict.fromkeys(plays, 0.1))))
            assert all(outcome is answered[is_invited] for is_invited, outcome in outcomes)
            assert get(at, spec, "")["received"] == sum(is_invited for is_invited, _ in outcomes)


PROMISES: dict[str, dict[str, Any]] = {
    "local": {"epsilon": 4.0},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6, "min_batch": 300},
    "central": {"epsilon": 4.0, "delta": 1e-6},
    "none": {},
}
PEOPLE = 900


SEVERAL: dict[str, Any] = {"honest_fraction": 0.3}
"""So few honest people that several messages tell more than one."""


def spec_of(model: str, messages: int = 1) -> LinearSpec:
    """Rounds of 300 people with two numbers and a level."""
    numbers = {f"x{j}": {"low": -1.0, "high": 1.0} for j in (1, 2)}
    data = {
        "experiment": {"name": f"{model}-{messages}", "arms": ["a", "b", "c"], "horizon": PEOPLE, "round_size": 300},
        "context": {"features": numbers},
        "privacy": {"model": model, **PROMISES[model], **(SEVERAL if messages > 1 else {})},
        "algorithm": {"name": "linear", "link": "logistic", "messages_per_report": messages},
    }
    return LinearSpec.model_validate(data)


def create_linear(at: Services, spec: Spec) -> None:
    body = spec.model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    answer = httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60)
    assert answer.status_code == 201, answer.text


def test_people_report_under_every_trust_model_and_the_last_policy_is_learned(tmp_path: Path) -> None:
    people = {"name": "disjoint", "link": "logistic"}
    with run_services(tmp_path, free_port(), free_port()) as at:
        models = [row.name for row in TRUST.values() if L2VectorSum in row.serves]
        for spec in (*map(spec_of, models), spec_of("shuffle", messages=3)):
            create_linear(at, spec)
            result = run_load(
                spec.name, at.server, at.shuffler, sender_key=at.sender_key, population=people, batch=50, seed=1
            )
            assert (result.over, result.accepted) == (True, PEOPLE)
            messages_per_report = spec.algorithm.messages_per_report  # a calibration may find that fewer say more
            assert result.messages_sent in [
                PEOPLE * count for count in range(min(messages_per_report, 2), messages_per_report + 1)
            ]
            last = httpx.get(f"{at.server}/experiments/{spec.name}/policy", timeout=60).json()
            assert last["version"] == 4
            assert len({tuple(arm.items()) for arm in last["policy"]["shows"]["arms"].values()}) == 3
        limits = Limits(epsilon=4.0)
        with Client(at.server, ledger=Ledger(tmp_path / "ledger.db"), shuffler=at.shuffler, limits=limits) as client:
            session = client.join("local-1")
            assert session.choose({"x1": 5.0, "x2": float("inf")}) in ("a", "b", "c")
            with pytest.warns(InvalidValueWarning, match="x1"):
                session.choose({"x1": float("nan"), "x2": 0.0})
