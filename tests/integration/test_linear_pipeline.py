"""Linear bandits over real sockets under every trust model: devices, services and learner agree on every round."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Client, Ledger, Limits
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.errors import InvalidValueWarning
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services

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


def create(at: Services, spec: Spec) -> None:
    body = spec.model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    answer = httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60)
    assert answer.status_code == 201, answer.text


def test_people_report_under_every_trust_model_and_the_last_policy_is_learned(tmp_path: Path) -> None:
    people = {"name": "disjoint", "link": "logistic"}
    with run_services(tmp_path, free_port(), free_port()) as at:
        for spec in (*map(spec_of, TRUST), spec_of("shuffle", messages=3)):
            create(at, spec)
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
