"""Linear bandits over real sockets under every trust model: devices, services and learner agree on every round."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer.algorithms import parse_spec
from privateer.errors import UnfitValueWarning
from privateer.spec import Spec
from privateer.trust import TRUST
from privateer_client import Client, Ledger, Limits
from privateer_lab.load import run_load
from privateer_lab.services import Services, free_port, running

PROMISES: dict[str, dict[str, Any]] = {
    "local": {"epsilon": 4.0},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6, "min_batch": 300},
    "central": {"epsilon": 4.0, "delta": 1e-6},
    "none": {},
}
PEOPLE = 900


def spec_of(model: str) -> Spec:
    """Rounds of 300 people with two numbers and a level."""
    numbers = {f"x{j}": {"low": -1.0, "high": 1.0} for j in (1, 2)}
    data = {
        "experiment": {"name": model, "arms": ["a", "b", "c"], "horizon": PEOPLE, "round_size": 300},
        "context": {"features": numbers},
        "privacy": {"model": model, **PROMISES[model]},
        "algorithm": {"name": "linear", "link": "logistic"},
    }
    return parse_spec(data)


def create(at: Services, spec: Spec) -> None:
    body = spec.model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    answer = httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60)
    assert answer.status_code == 201, answer.text


def test_people_report_under_every_trust_model_and_the_last_policy_is_learned(tmp_path: Path) -> None:
    people = {"name": "disjoint", "link": "logistic"}
    with running(tmp_path, free_port(), free_port()) as at:
        for model in TRUST:
            create(at, spec_of(model))
            result = run_load(
                model, at.server, at.shuffler, sender_key=at.sender_key, population=people, batch=50, seed=1
            )
            assert (result.over, result.accepted) == (True, PEOPLE)
            last = httpx.get(f"{at.server}/experiments/{model}/policy", timeout=60).json()
            assert last["version"] == 4
            assert len({tuple(arm.items()) for arm in last["policy"]["arms"].values()}) == 3
        limits = Limits(epsilon=4.0)
        with Client(at.server, ledger=Ledger(tmp_path / "ledger.db"), shuffler=at.shuffler, limits=limits) as client:
            session = client.join("local")
            assert session.choose({"x1": 5.0, "x2": float("inf")}) in ("a", "b", "c")
            with pytest.warns(UnfitValueWarning, match="x1"):
                session.choose({"x1": float("nan"), "x2": 0.0})
