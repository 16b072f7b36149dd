"""The notebook and a server: policies, results, histories and pictures of an experiment that runs."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import privateer_lab as lab
from privateer_core.errors import PrivateerError
from privateer_lab.services.processes import free_port, run_services

SHAPE = {"experiment.round_size": 1000, "privacy.model": "central", "privacy.delta": None}


def test_a_notebook_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("PRIVATEER_URL", url)
    for function in (lab.result, lab.history, lab.policy):
        with pytest.raises(PrivateerError, match="no answer from the service") as refused:
            function("trial")
        assert url in str(refused.value)


@pytest.mark.nightly
def test_an_experiment_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = lab.spec("examples/trial.toml", SHAPE, users=2000)
    with run_services(tmp_path, free_port(), free_port()) as at:
        body = spec.without_people().model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        monkeypatch.setenv("PRIVATEER_URL", at.server)
        assert "Nothing is known yet" in str(lab.result("trial"))
        load = [sys.executable, "-m", "privateer_lab", "load", "trial", "--users", "2000", "--url", at.server]
        load += ["--population", "examples/trial.toml", "--shuffler", at.shuffler]
        process = subprocess.run(
            load, env=os.environ | {"PRIVATEER_LEDGER": str(tmp_path / "l")}, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        page = f"{at.server}/experiments/trial"
        result, rounds, policy = lab.result("trial"), lab.history(page), lab.policy(page)
        assert {"segment", "arm", "effect", "low", "high"} <= set(result.to_arrow().column_names)
        assert rounds.to_arrow()["received"].to_pylist()[0] == 2000
        assert policy.arms == spec.options
        assert policy.shares({"group": ["a", "b"]}).shape == (2, 3)
        assert lab.policy("trial", version=1).decoded.version == 1
        pictures = lab.plot.effects("trial"), lab.plot.policy(policy), lab.plot.privacy("trial")
        assert all(picture.title.startswith("trial: ") for picture in pictures)
        export = httpx.get(f"{at.admin}/experiments/trial/export", headers=headers, timeout=60)
        (tmp_path / "trial.json").write_bytes(export.content)
        exported = lab.policy(tmp_path / "trial.json")
        assert (exported.shares({"group": ["a", "b"]}) == policy.shares({"group": ["a", "b"]})).all()
        with pytest.raises(PrivateerError, match="no such experiment"):
            lab.history("nobody")
    with pytest.raises(PrivateerError, match="no answer from the service"):
        lab.result("trial")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(PrivateerError, match="policy: is not an exported experiment"):
        lab.policy(tmp_path / "other.json")
