"""A person who comes back, through the SDK, the shuffler and the server; and what the server then claims."""

from pathlib import Path

import pytest

from privateer_client import AsyncClient, Ledger, ReportStatus
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from tests.integration.test_changes import CONTEXT, device
from tests.support.clocks import Hands
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import pair
from tests.support.servers import SHUFFLED

DAY = 86_400.0


async def take_part(client: AsyncClient) -> ReportStatus:
    session = await client.join("test")
    await session.choose(CONTEXT)
    return await session.report(1.0)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "partition"},
        pytest.param({"name": "linear"}, marks=pytest.mark.nightly),
        pytest.param({"name": "additive"}, marks=pytest.mark.nightly),
    ],
    ids=lambda section: section["name"],
)
async def test_reports_of_one_person_in_several_rounds_share_a_promise(
    tmp_path: Path, algorithm: dict[str, str]
) -> None:
    (tmp_path / "trusted").mkdir()
    clock = Hands()
    async with pair(tmp_path) as services:
        created = await services.api.create(SHUFFLED | {"experiment.reports_per_person": 2, "algorithm": algorithm})
        assert created.status_code == 201
        for version in (1, 2):
            publication = await services.api.publication()
            assert await take_part(device(services, tmp_path / "one.db", clock)) is ReportStatus.ACCEPTED
            assert await services.uploads(publication, sealed_reports(publication, 99, seed=version)) == 99
            assert (await services.version(version + 1))["accepted"] == 100 * version
            clock.time += DAY
        assert await take_part(device(services, tmp_path / "one.db", clock)) is ReportStatus.ALREADY_REPORTED
        record = (await services.api.client.get("/experiments/test/privacy")).json()
    (cost,) = Ledger(tmp_path / "one.db").payments()
    assert (cost.epsilon, cost.delta, cost.made, cost.version) == (1.0, 1e-6, 2, 2)
    assert record["reports_per_person"] == 2
    (certificate,) = read_certificates(record).values()
    joint_claim, colluding = recompute(certificate)
    assert joint_claim.holds
    assert 0.9e-6 < joint_claim.recomputed_delta < 1e-6
    assert colluding.epsilon == cost.local_epsilon == 2 * max(row["mechanism"]["epsilon"] for row in record["rounds"])
    record["rounds"][0]["mechanism"]["epsilon"] = 3.0  # what a person who reports once may spend
    with pytest.raises(SpecError, match="more than a report's share"):
        read_certificates(record)
