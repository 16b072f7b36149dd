"""A device whose answer was lost sends the same bytes again, and the server asks for another batch of the version.

Were the bytes in both batches, the server would see the same ciphertext twice: this person's report, singled out.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.batch import decode_batch
from privateer_core.wire.envelope import Header, pieces
from privateer_core.wire.publication import decode_publication
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import Losing, pair
from tests.support.servers import SHUFFLED, assert_problem
from tests.unit.shuffler.conftest import new_store, server, settings  # noqa: F401
from tests.unit.shuffler.fake_server import SIZE, FakeServer
from tests.unit.shuffler.helpers import Shuffler, pool_of, until
from tests.unit.shuffler.helpers import sealed_reports as some_bytes

MESSAGES = 4


async def accepted(shuffler: Shuffler, header: Header, sealed: list[bytes]) -> httpx.Response:
    """The answer to an upload, sent again for as long as the next batch is being made room for."""
    async with asyncio.timeout(20):
        while (answer := await shuffler.post(header, sealed)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
            await asyncio.sleep(0.005)
    return answer


async def test_no_report_is_in_two_deliveries(tmp_path: Path) -> None:
    """Junk makes the server ask for another batch, and a person of the first one comes again for it."""
    way = Losing(0)
    async with pair(tmp_path, way) as services:
        await services.api.create(SHUFFLED)
        publication = await services.api.publication()
        round_ = decode_publication(publication).round
        people = sealed_reports(publication, 170)
        await services.uploads(publication, [os.urandom(round_.report_size) for _ in range(30)])
        assert await services.uploads(publication, people[:70]) == 70
        async with asyncio.timeout(20):
            while not (await services.shuffler.get("/experiments/test")).json()["open"]:  # to another batch
                await asyncio.sleep(0.005)
        for target in (people[0], people[69]):
            assert_problem(await services.upload(publication, target), 409, "duplicate-report")
        assert await services.uploads(publication, people[70:]) == 100
        facts = await services.version(2)
        assert (facts["accepted"], facts["refused"]) == (170, {"unopenable": 30})
        await until(lambda: len(way.batches) == 2)  # the server publishes before it answers
    first, second = (set(pieces(decode_batch(body).sealed, round_.report_size)) for body in way.batches)
    assert (len(first), len(second), first & second) == (100, 100, set())


@pytest.mark.parametrize("restarts", [False, True])
async def test_every_earlier_batch_of_the_version_counts(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
    restarts: bool,
) -> None:
    """The third batch takes nothing of the first two, after a restart neither."""
    server.insatiable = True
    header, reports = server.publish(), some_bytes(11)
    way = httpx.ASGITransport(server.app)

    async with serving(create_app(settings, way)) as client:
        shuffler = Shuffler(client, server)
        assert (await accepted(shuffler, header, reports[:5])).status_code == 202
        answer = await accepted(shuffler, header, [reports[5], reports[0], *reports[6:10]])
        assert answer.json() == {"accepted": 5, "refused": {"duplicate-report": 1}}
        if not restarts:
            await all_known(shuffler, header, reports)
    if restarts:
        async with serving(create_app(settings, way)) as client:
            await all_known(Shuffler(client, server), header, reports)


async def all_known(shuffler: Shuffler, header: Header, reports: list[bytes]) -> None:
    """Ten reports of two delivered batches are duplicates, an eleventh is not."""
    answer = await accepted(shuffler, header, reports[::-1])
    assert answer.json() == {"accepted": 1, "refused": {"duplicate-report": 10}}


async def test_all_messages_of_a_person_or_none(new_store: Callable[..., RoundStore]) -> None:  # noqa: F811
    """Somebody who shares one message of 4 with a delivered batch is refused whole."""
    pool = pool_of(new_store(2, messages=MESSAGES))
    people = [b"".join(some_bytes(MESSAGES)) for _ in range(3)]
    await pool.hold(people[:2])
    another = await pool.renew()
    mixed = people[2][:-SIZE] + people[0][:SIZE]
    receipt = await another.hold([people[1], mixed, people[2]])
    assert (receipt.accepted, receipt.refused, another.held) == (1, {"duplicate-report": 2}, 1)
    await another.forget()


async def test_a_kill_at_any_moment_leaves_a_whole_batch_or_all_fingerprints(
    new_store: Callable[..., RoundStore],  # noqa: F811
    tmp_path: Path,
) -> None:
    """The files as they are before each statement, and after the last: what a shuffler that was killed there finds."""
    store, reports = new_store(5), some_bytes(5)
    pool, images = pool_of(store), list[Path]()
    await pool.hold(reports)
    batch = await pool.batch()

    def photograph(_: str) -> None:
        images.append(tmp_path / f"image{len(images)}")
        images[-1].mkdir()
        for path in tmp_path.glob("*.db*"):
            shutil.copy(path, images[-1])

    store._connection.set_trace_callback(photograph)
    another = await pool.renew()
    store._connection.set_trace_callback(None)
    photograph("the end")
    await another.forget()
    found = [await state(folder, reports, batch) for folder in images]
    assert found == sorted(found)
    assert set(found) == {"a batch", "fingerprints"}


async def state(folder: Path, reports: list[bytes], batch: bytes) -> str:
    """What is left of a delivered batch."""
    store = RoundStore.load(next(folder.glob("*.db")))
    assert store is not None
    pool = pool_of(store)
    if pool.held:
        assert (pool.held, pool.filled.is_set(), await pool.batch()) == (5, True, batch)
        left = "a batch"
    else:
        assert (await pool.hold(reports)).refused == {"duplicate-report": 5}
        left = "fingerprints"
    await pool.close()
    return left


async def test_fingerprints_tell_no_order_and_go_with_the_version(
    new_store: Callable[..., RoundStore],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is the same whatever the order of arrival; no report is in it, and after the version no fingerprint."""
    with monkeypatch.context() as known_key:
        known_key.setattr("privateer_shuffler.pool.round_file.secrets.token_bytes", bytes)
        reports, contents = some_bytes(200), list[bytes]()
        for arrived in (reports, reports[::-1]):
            store = new_store(200)
            pool = pool_of(store)
            for report in arrived:
                await pool.hold([report])
            another = await pool.renew()
            (path,) = tmp_path.glob("*.db")
            contents.append(path.read_bytes())
            fingerprints = store.fingerprints(reports)
            with path.open("rb") as kept_open:  # what a look at the freed blocks of the disk would find
                await another.forget()
                remains = kept_open.read()
            assert not list(tmp_path.glob("*.db*"))
            assert not any(one in remains for one in fingerprints)
    assert contents[0] == contents[1]
    assert all(one in contents[0] for one in fingerprints)
    assert not any(report[:8] in contents[0] for report in reports)


async def test_fingerprints_are_erased_when_a_newer_version_follows(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
) -> None:
    server.insatiable = True
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler = Shuffler(client, server)
        header = server.publish()
        await shuffler.post(header, some_bytes(5))
        assert (await accepted(shuffler, header, some_bytes(1))).status_code == 202
        (old,) = settings.data.glob("*.db")
        server.publish(version=2)
        await until(lambda: not old.exists() and len(list(settings.data.glob("*.db"))) == 1)
