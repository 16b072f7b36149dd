"""Phased elimination over real sockets: the same as in one process, whatever dies when."""

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.load.command import main
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.simulation.simulate import simulate_once
from tests.support.answers import fact
from tests.support.phased import phased_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "stations.toml"
QUICK = {
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
    spec = phased_spec({**QUICK, "experiment.participants": 800, "privacy.min_batch": None}, "local")
    limits = Limits(epsilon=8.0, local_epsilon=8.0)
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        outcomes = []
        for person in range(20):
            ledger = Ledger(tmp_path / f"{person}.db")
            with Client(at.server, limits=limits, ledger=ledger) as client:
                session = client.join("test")
                outcomes.append((session.report_requested, session.report(dict.fromkeys(session.choose(), 0.1))))
        answered = {True: ReportStatus.ACCEPTED, False: ReportStatus.NOT_REQUESTED}
        assert all(outcome is answered[is_invited] for is_invited, outcome in outcomes)
        assert get(at, spec, "")["received"] == sum(is_invited for is_invited, _ in outcomes)


def test_the_load_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = phased_spec({**STILL, "experiment.horizon": 100})
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        options = ["test", "--url", at.server, "--shuffler", at.shuffler, "--json"]
        main(options)
        output = json.loads(capsys.readouterr().out)
        assert (output["over"], output["people"]["held"]["needed"]) == (True, 0)
        assert output["accepted"] == output["took_part"] == output["people"]["counted"] > 0
        for wrong in (["--cohort", "x"], ["--users", "801"], ["--set", "population.scale=-1"]):
            with pytest.raises(SystemExit) as stop:
                main([*options, *wrong])
            assert stop.value.code == 2, wrong
            output = capsys.readouterr().err
            assert output.startswith("privateer: ")
            assert output.count("\n") == 1


@pytest.mark.nightly
def test_two_thousand_devices(tmp_path: Path) -> None:
    spec = load_spec(EXAMPLE, [])
    with run_services(tmp_path, free_port(), free_port()) as at:
        create(at, spec)
        result = drive(at, spec)
        assert result.over
        assert_recorded(at, spec, result)
    assert_true_to_the_process(spec, result, 20)
