"""An experiment whose first round asks for events: its record has the promise, before and after that round."""

from pathlib import Path

from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import pair
from tests.support.servers import SHUFFLED


async def test_an_experiment_that_asks_for_events_has_a_record(tmp_path: Path) -> None:
    (tmp_path / "trusted").mkdir()
    rare = {
        "reward.base_rate": 0.005,
        "privacy.min_batch": 1000,
        "experiment.round_size": 1000,
        "experiment.horizon": 20_000,
    }
    async with pair(tmp_path) as services:
        assert (await services.api.create(SHUFFLED | rare)).status_code == 201
        for version in (1, 2):
            publication = await services.api.publication()
            record = (await services.api.client.get("/experiments/test/privacy")).json()
            row = record["rounds"][-1]
            assert record["certificate"]["claims"], "something is claimed"
            if version == 1:
                assert row["mechanism"]["type"] == "event-symbol"
                assert row["mechanism"]["keys"] >= 2
            await services.uploads(publication, sealed_reports(publication, 1000, seed=version))
