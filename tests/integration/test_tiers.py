"""Participants choose how much they give, over HTTP: devices, simulated people, the record and the answer."""

from pathlib import Path

import httpx

from privateer_client import Client, Ledger, Limits, ReportStatus
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import free_port, run_services
from tests.integration.test_pipeline import wait_for_the_end
from tests.support.specs import tables

TIERS = [{"name": "generous", "epsilon": 4.0, "share": 0.5}]
PEOPLE = 598


def test_people_of_two_tiers_report_into_the_same_rounds(tmp_path: Path) -> None:
    changes = {"algorithm.name": "bandit", "privacy.tiers": TIERS, "experiment.round_size": 200}
    data = tables(changes | {"experiment.horizon": PEOPLE + 2})
    del data["context"]
    with run_services(tmp_path, free_port(), free_port()) as at:
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=data, headers=headers, timeout=60).status_code == 201
        options = {"users": PEOPLE, "population": {"name": "bernoulli"}, "batch": 50, "seed": 1}
        result = run_load("test", at.server, at.shuffler, sender_key=at.sender_key, **options)
        assert (result.accepted, dict(result.refused)) == (PEOPLE, {})
        epsilons = []
        for number, limits in enumerate((Limits(), Limits(epsilon=4.0))):
            ledger = Ledger(tmp_path / f"ledger-{number}.db")
            with Client(at.server, limits=limits, ledger=ledger) as client:
                session = client.join("test")
                session.choose()
                assert session.report(1.0) is ReportStatus.ACCEPTED
            epsilons += [payment.epsilon for payment in ledger.payments()]
        assert epsilons == [1.0, 4.0]
        wait_for_the_end(at)
        record = httpx.get(f"{at.server}/experiments/test/privacy").json()
        certificates = read_certificates(record)
        promised = {name: certificate.claims[0].epsilon for name, certificate in certificates.items()}
        assert promised == {"": 1.0, "generous": 4.0}
        assert all(verdict.holds for certificate in certificates.values() for verdict in recompute(certificate))
        assert [row["version"] for row in record["tiers"][0]["rounds"]] == [row["version"] for row in record["rounds"]]
        parts = httpx.get(f"{at.server}/experiments/test/answer").json()["result"]["parts"]
        (contributed,) = (part["rows"] for part in parts if "each tier contributed" in part.get("title", ""))
        assert [row[:2] for row in contributed] == [["(none)", 1.0], ["generous", 4.0]]
        assert sum(row[2] for row in contributed) == PEOPLE + 2
