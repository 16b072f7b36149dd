"""Somebody sends reports on decisions of every earlier version, and junk beside them: others must not wait for it."""

import os

import pytest

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_core.policies.decisions import AGE_SIZE
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.servers import SMALL, Api

VERSIONS = 7


async def test_plans_of_earlier_choices_are_made_once_each(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs more than to open a report, and what does not parse is looked for by halving a group again."""
    made: list[int] = []
    analyzer = PartitionPolicy.analyzer

    def noting(self: PartitionPolicy, earlier: PartitionPolicy) -> object:
        made.append(earlier.version)
        return analyzer(self, earlier)

    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL | {"experiment.horizon": 400})
        for _ in range(VERSIONS):
            body = await api.publication()
            await client.post("/reports", content=body_of(body, sealed_reports(body, 20)))
        body = await api.publication()
        good = [os.urandom(16) + age.to_bytes(AGE_SIZE, "little") + bytes(6) for age in range(VERSIONS + 1)]
        bad = os.urandom(16) + bytes(AGE_SIZE + 4) + b"\xff\xff"
        monkeypatch.setattr(PartitionPolicy, "analyzer", noting)
        answer = await client.post("/reports", content=body_of(body, [seal(body, one) for one in [*good, bad]]))
        assert answer.json() == {"accepted": VERSIONS + 1, "refused": {"out-of-range": 1}}
        assert sorted(made) == list(range(1, VERSIONS + 2))
