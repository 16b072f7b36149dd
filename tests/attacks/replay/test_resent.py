"""Reports that come again, and claims that a shuffler has lost."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from privateer_core.errors import BatchRefused, Conflict, PrivateerError
from privateer_core.wire.batch import SIGNATURE_HEADER, decode_batch
from privateer_core.wire.publication import Header, decode_publication, split_bytes
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
from tests.unit.shuffler.helpers import assert_problem as assert_problem_of_refill
from tests.unit.shuffler.helpers import sealed_reports as sealed_reports_of_claims
from tests.unit.shuffler.helpers import sealed_reports as sealed_reports_of_refill
from tests.unit.shuffler.helpers import sealed_reports as some_bytes
from tests.unit.shuffler.test_delivery import FakeAsyncio, answering

# A device whose answer was lost sends the same bytes again, and the server asks for another batch of the version.
#
# Were the bytes in both batches, the server would see the same ciphertext twice: this person's report, singled out.


MESSAGES = 4


async def upload_until_accepted(shuffler: Shuffler, header: Header, sealed: list[bytes]) -> httpx.Response:
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
        assert (facts["accepted"], facts["refused"]) == (170, {"decryption-failed": 30})
        await until(lambda: len(way.batches) == 2)  # the server publishes before it answers
    first, second = (set(split_bytes(decode_batch(body).sealed, round_.report_size)) for body in way.batches)
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
        assert (await upload_until_accepted(shuffler, header, reports[:5])).status_code == 202
        answer = await upload_until_accepted(shuffler, header, [reports[5], reports[0], *reports[6:10]])
        assert answer.json() == {"accepted": 5, "refused": {"duplicate-report": 1}}
        if not restarts:
            await check_duplicates(shuffler, header, reports)
    if restarts:
        async with serving(create_app(settings, way)) as client:
            await check_duplicates(Shuffler(client, server), header, reports)


async def check_duplicates(shuffler: Shuffler, header: Header, reports: list[bytes]) -> None:
    """Ten reports of two delivered batches are duplicates, an eleventh is not."""
    answer = await upload_until_accepted(shuffler, header, reports[::-1])
    assert answer.json() == {"accepted": 1, "refused": {"duplicate-report": 10}}


async def test_a_person_with_a_repeated_message_is_refused(new_store: Callable[..., RoundStore]) -> None:  # noqa: F811
    """Refuses all 4 messages of a participant if a delivered batch holds any of them."""
    pool = pool_of(new_store(2, messages=MESSAGES))
    people = [b"".join(some_bytes(MESSAGES)) for _ in range(3)]
    await pool.hold(people[:2])
    next_pool = await pool.start_next_batch()
    person_with_repeated_message = people[2][:-SIZE] + people[0][:SIZE]
    receipt = await next_pool.hold([people[1], person_with_repeated_message, people[2]])
    assert (receipt.accepted, receipt.refused, next_pool.n_held) == (1, {"duplicate-report": 2}, 1)
    await next_pool.forget()


async def test_a_kill_at_any_moment_leaves_a_whole_batch_or_all_fingerprints(
    new_store: Callable[..., RoundStore],  # noqa: F811
    tmp_path: Path,
) -> None:
    """The files as they are before each statement, and after the last: what a shuffler that was killed there finds."""
    store, reports = new_store(5), some_bytes(5)
    pool, images = pool_of(store), list[Path]()
    await pool.hold(reports)
    batch = await pool.read_batch()

    def copy_files(_: str) -> None:
        images.append(tmp_path / f"image{len(images)}")
        images[-1].mkdir()
        for path in tmp_path.glob("*.db*"):
            shutil.copy(path, images[-1])

    store._connection.set_trace_callback(copy_files)
    next_pool = await pool.start_next_batch()
    store._connection.set_trace_callback(None)
    copy_files("the end")
    await next_pool.forget()
    states = [await remainder_of_batch(folder, reports, batch) for folder in images]
    assert states == sorted(states)
    assert set(states) == {"a batch", "fingerprints"}


async def remainder_of_batch(folder: Path, reports: list[bytes], batch: bytes) -> str:
    """Return whether a delivered batch is left, or its fingerprints."""
    store = RoundStore.load(next(folder.glob("*.db")))
    assert store is not None
    pool = pool_of(store)
    if pool.n_held:
        assert (pool.n_held, pool.filled.is_set(), await pool.read_batch()) == (5, True, batch)
        remainder = "a batch"
    else:
        assert (await pool.hold(reports)).refused == {"duplicate-report": 5}
        remainder = "fingerprints"
    await pool.close()
    return remainder


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
            next_pool = await pool.start_next_batch()
            (path,) = tmp_path.glob("*.db")
            contents.append(path.read_bytes())
            fingerprints = store.fingerprints(reports)
            with path.open("rb") as kept_open:  # what a look at the freed blocks of the disk would find
                await next_pool.forget()
                remains = kept_open.read()
            assert not list(tmp_path.glob("*.db*"))
            assert not any(fingerprint in remains for fingerprint in fingerprints)
    assert contents[0] == contents[1]
    assert all(fingerprint in contents[0] for fingerprint in fingerprints)
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
        assert (await upload_until_accepted(shuffler, header, some_bytes(1))).status_code == 202
        (old,) = settings.data.glob("*.db")
        server.publish(version=2)
        await until(lambda: not old.exists() and len(list(settings.data.glob("*.db"))) == 1)


# The server asks for another batch, publishes the next version, and takes its time over the claim.


_TURNS = 200


class SlowClaims(httpx.AsyncBaseTransport):
    """A way to the server on which claims wait while ``open`` is not set."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner, self.open, self.waiting = inner, asyncio.Event(), 0
        self.open.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if SIGNATURE_HEADER in request.headers and request.url.path != "/batches":
            self.waiting += 1
            await self.open.wait()
            self.waiting -= 1
        return await self.inner.handle_async_request(request)


async def test_a_late_refill_does_not_reopen_an_older_version(settings: ShufflerSettings, server: FakeServer) -> None:  # noqa: F811
    """A late refill neither drops acknowledged reports of the newer version nor marks that version as closed."""
    way = SlowClaims(httpx.ASGITransport(server.app))
    server.insatiable = server.mute = True
    reports = sealed_reports_of_refill(10)
    async with serving(create_app(settings, way)) as client:
        shuffler = Shuffler(client, server)
        first = server.publish(version=1)
        await shuffler.post(first, reports[:5])
        await until(lambda: bool(server.attempts))
        way.open.clear()
        second = server.publish(version=2)
        await until(lambda: way.waiting == 1)  # version 2 is being opened
        server.mute = False
        async with asyncio.timeout(20):
            while await shuffler.metric("reports_forwarded_total") != 5:
                await asyncio.sleep(0.005)
        for _ in range(_TURNS):  # the answer for version 1 is acted on as far as it can be
            await shuffler.facts()
        way.open.set()
        assert (await shuffler.post(second, reports[5:8])).status_code == 202
        await until(lambda: len(list(settings.data.glob("*.db"))) == 1)
        assert (await shuffler.facts())["version"] == 2
        assert_problem_of_refill(await shuffler.post(first, sealed_reports_of_refill(1)), 409, "round-closed")
        assert (await shuffler.post(second, reports[8:])).status_code == 202
        await until(lambda: ("spring", 2) in server.delivered)
        assert sorted(server.received(version=2)) == sorted(reports[5:])
        assert await shuffler.metric("reports_dropped_total") == 0


def is_followed() -> bool:
    return any(getattr(task.get_coro(), "__name__", "") == "_follow_publications" for task in asyncio.all_tasks())


async def test_an_experiment_that_goes_on_after_its_end_is_followed_again(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
) -> None:
    """A server that was restored opens a later version: the next upload finds it, and nobody needs to find the next."""
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler = Shuffler(client, server)
        await shuffler.post(server.publish(version=1), sealed_reports_of_refill(1))
        server.publish(version=2, batch=0)
        await shuffler.reaches(2)
        await until(lambda: not is_followed())
        header = server.publish(version=1_000_001)
        assert (await shuffler.post(header, sealed_reports_of_refill(1))).status_code == 202
        server.publish(version=1_000_002)
        await shuffler.reaches(1_000_002)


# A shuffler's claim went to another one while it held a full batch: it must not knock for ever, nor hide it.


REFUSALS = [BatchRefused("another shuffler brings the batches"), Conflict("claimed")]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_batch_is_kept_until_its_version_is_over(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
    refusal: PrivateerError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses, transport, sleep = list[float](), answering(server, refusal), asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0.01)

    monkeypatch.setattr("privateer_shuffler.delivery.asyncio", FakeAsyncio(note))
    with caplog.at_level(logging.WARNING):
        async with serving(create_app(settings, transport)) as client:
            shuffler = Shuffler(client, server)
            await shuffler.post(server.publish(), sealed_reports_of_claims(5))
            (old,) = settings.data.glob("*.db")
            await until(lambda: transport.attempts >= 4)
            assert await shuffler.metric("reports_held") == 5
            assert set(pauses) == {30}
            assert "DELETE /experiments/spring/shuffler" in caplog.text
            server.publish(version=2)
            await until(lambda: not old.exists())
            attempts = transport.attempts
            await shuffler.reaches(2)
            assert await shuffler.metric("reports_dropped_total") == 5
            assert await shuffler.metric("batches_forwarded_total") == 0
            assert (await shuffler.client.get("/readyz")).status_code == 200
            assert transport.attempts == attempts
    assert "gave up version 1 of spring" in caplog.text
