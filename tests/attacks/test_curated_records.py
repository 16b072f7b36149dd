"""Records of a curator are sealed, and nowhere on disk: in the database, its log, the journal and backups; and erased.

What is held of an open round is sums, encrypted with the round's key, and ids, which keep a replay from counting.
"""

from pathlib import Path

import pytest

from privateer_core.wire.envelope import binding
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.attacks.test_totals_on_disk import opened, revealed
from tests.support.asgi import serving
from tests.support.disks import earlier_states, files
from tests.support.sealing import body_of, header_for, plain_reports, seal
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, TOKEN, Api, assert_problem
from tests.support.sparse import sparse_tables

PEOPLE = 300
"""So many fill a round."""


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings(data=tmp_path / "data", admin_token=TOKEN, sender_keys=TRUSTED)


def spec() -> dict[str, object]:
    tables = sparse_tables(experiment__round_size=PEOPLE, context__features=8, algorithm__sparsity=1)
    return {name: table for name, table in tables.items() if name != "population"}


async def test_records_are_on_no_disk_and_gone_with_the_release(settings: ServerSettings, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        assert (await client.post("/experiments", json=spec(), headers=ADMIN)).status_code == 201
        publication = await Api(client).publication()
        records = plain_reports(publication, PEOPLE)
        sealed = [seal(publication, number.to_bytes(16) + one) for number, one in enumerate(records)]
        assert (await client.post("/reports", content=body_of(publication, sealed[:-1]))).status_code == 202
        during, copy = files(settings.data), (await client.get("/backup", headers=ADMIN)).content
        states = earlier_states(during, scratch)
        assert_problem(
            await client.post("/reports", content=body_of(publication, [sealed[0]])), 409, "duplicate-report"
        )
        assert (await client.post("/reports", content=body_of(publication, sealed[-1:]))).status_code == 202
        assert (await Api(client).facts())["version"] == 2
        after = files(settings.data)
        assert_problem(await client.post("/reports", content=body_of(publication, [sealed[0]])), 409, "round-closed")
        later = (await client.get("/backup", headers=ADMIN)).content
    everything = [*during.values(), *after.values(), copy, later]
    assert not any(record in content for record in records for content in everything)
    info, digests = binding(header_for(publication), "central"), [header_for(publication).digest]
    assert sum(map(bool, opened(during, sealed, info))) == PEOPLE, "the attack works"
    assert revealed(states, digests, during), "and sums are there as long as the round is open"
    assert not any(opened(after, sealed, info))
    assert not revealed([*states, *earlier_states(after, scratch)], digests, after)
    assert not after["server.db-wal"]


async def test_a_backup_has_neither_sums_nor_ids_of_an_open_round(settings: ServerSettings, tmp_path: Path) -> None:
    async with serving(create_app(settings)) as client:
        await client.post("/experiments", json=spec(), headers=ADMIN)
        publication = await Api(client).publication()
        sealed = [seal(publication, bytes([9]) * 16 + one) for one in plain_reports(publication, 1)]
        await client.post("/reports", content=body_of(publication, sealed))
        during = files(settings.data)
        copy = (await client.get("/backup", headers=ADMIN)).content
    (scratch := tmp_path / "scratch").mkdir()
    assert bytes([9]) * 16 not in copy
    assert [state for state in earlier_states({"server.db": copy}, scratch) if state] == []
    digests = [header_for(publication).digest]
    assert revealed(earlier_states(during, scratch), digests, during), "it is not as nothing had been held"
