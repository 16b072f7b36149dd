"""A token admits one report, once, also while the shuffler's disk is full."""

import asyncio
import hashlib
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.publication import Header
from privateer_core.wire.token import Challenge, authorization
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.crashes import snapshot_at
from tests.support.issuing import ISSUER, ORIGIN, minted
from tests.support.issuing import settings as tokens
from tests.support.senders import TRUSTED
from tests.unit.shuffler.fake_server import SIZE, FakeServer, body_of
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until

# A token admits one report, once: whatever is spent, forged or for elsewhere is refused, and harms nobody else.


class Gated(Shuffler):
    """A shuffler whose people come with tokens."""

    async def report(self, header: Header, sealed: bytes, token: bytes | None) -> httpx.Response:
        """One person's upload, unsigned."""
        headers = {"authorization": authorization(token)} if token else {}
        url = f"/experiments/{header.experiment}/reports"
        return await self.client.post(url, content=body_of(header, [sealed]), headers=headers, auth=httpx.Auth())


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def settings(tmp_path: Path) -> ShufflerSettings:
    data = tmp_path / "data"
    return ShufflerSettings(
        server_url="http://server",
        data=data,
        public_key_file=data / "shuffler.pub",
        min_batch=2,
        sender_keys=TRUSTED,
        tokens=tokens(tmp_path / "tokens", "spring", "autumn"),
    )


@pytest.fixture
async def shuffler(settings: ShufflerSettings, server: FakeServer) -> AsyncIterator[Gated]:
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        yield Gated(client, server)


def junk() -> bytes:
    return sealed_reports(1)[0]


async def test_a_token_spends_once(shuffler: Gated) -> None:
    header, token, sealed = shuffler.server.publish(), minted(), junk()
    assert (await shuffler.report(header, sealed, token)).status_code == 202
    assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
    assert_problem(await shuffler.report(header, sealed, token), 409, "duplicate-report")  # whose answer was lost
    assert_problem(await shuffler.report(header, sealed, minted()), 409, "duplicate-report")
    assert await shuffler.metric("reports_held") == 1


async def test_a_token_that_came_with_a_duplicate_is_not_spent(shuffler: Gated) -> None:
    header, sealed, token = shuffler.server.publish(), junk(), minted()
    await shuffler.report(header, sealed, minted())
    assert_problem(await shuffler.report(header, sealed, token), 409, "duplicate-report")
    assert (await shuffler.report(header, junk(), token)).status_code == 202


async def test_each_reason_is_counted(shuffler: Gated) -> None:
    header, token = shuffler.server.publish(batch=50), minted()
    await shuffler.report(header, junk(), token)
    forged = token[:-1] + bytes([token[-1] ^ 1])
    ways = {
        "token-missing": None,
        "token-spent": token,
        "token-wrong-audience": minted("winter"),
        "token-invalid": forged[:2] + bytes(32) + forged[34:],
    }
    for slug, wrong in ways.items():
        for _ in range(10):
            answer = await shuffler.report(header, junk(), wrong)
            assert_problem(answer, 401, slug)
            assert answer.headers["www-authenticate"].startswith("PrivateToken")
        assert await shuffler.refused(slug) == 10
    assert (await shuffler.report(header, junk(), minted())).status_code == 202  # harmless to the rest


async def test_a_token_of_another_experiment_admits_nothing(shuffler: Gated) -> None:
    spring, autumn = shuffler.server.publish("spring"), shuffler.server.publish("autumn")
    assert_problem(await shuffler.report(spring, junk(), minted("autumn")), 401, "token-wrong-audience")
    mixed = f"/experiments/{autumn.experiment}/reports"
    headers = {"authorization": authorization(minted("autumn"))}
    answer = await shuffler.client.post(mixed, content=body_of(spring, [junk()]), headers=headers, auth=httpx.Auth())
    assert_problem(answer, 400, "malformed-report")


async def test_an_upload_of_two_reports_with_a_token_is_refused(shuffler: Gated) -> None:
    header, headers = shuffler.server.publish(), {"authorization": authorization(minted())}
    body = body_of(header, sealed_reports(2))
    answer = await shuffler.client.post("/experiments/spring/reports", content=body, headers=headers, auth=httpx.Auth())
    assert_problem(answer, 403, "sender-refused")


async def test_reports_with_forged_tokens_do_not_fill_a_batch(shuffler: Gated) -> None:
    header, token = shuffler.server.publish(batch=5), minted()
    forged = [token[:2] + bytes([n]) * 32 + token[34:] for n in range(1, 100)]
    answers = await asyncio.gather(*(shuffler.report(header, junk(), false) for false in [None] * 100 + forged))
    assert {answer.status_code for answer in answers} == {401}
    assert await shuffler.metric("reports_held") == 0
    people = [junk() for _ in range(5)]
    for sealed in people:
        assert (await shuffler.report(header, sealed, minted())).status_code == 202
    await until(lambda: bool(shuffler.server.delivered))
    assert sorted(shuffler.server.received()) == sorted(people)


async def test_concurrent_uploads_spend_a_token_once(shuffler: Gated) -> None:
    header, token = shuffler.server.publish(batch=50), minted()
    answers = await asyncio.gather(*(shuffler.report(header, junk(), token) for _ in range(40)))
    assert sorted(answer.status_code for answer in answers) == [202] + [401] * 39


async def test_nothing_is_read_without_a_token(shuffler: Gated) -> None:
    """The body is refused before a byte of it is asked for."""
    shuffler.server.publish()

    async def endless() -> AsyncIterator[bytes]:
        raise AssertionError("the body is read")
        yield b""

    answer = await shuffler.client.post("/experiments/spring/reports", content=endless(), auth=httpx.Auth())
    assert_problem(answer, 401, "token-missing")
    assert shuffler.server.questions == 0


async def test_a_trusted_sender_vouches_for_its_people(shuffler: Gated) -> None:
    header = shuffler.server.publish()
    assert (await shuffler.post(header, sealed_reports(3))).json() == {"accepted": 3, "refused": {}}


async def test_a_token_stays_spent_in_later_rounds_and_after_a_restart(settings, server):
    way, spent_tokens = httpx.ASGITransport(server.app), [minted() for _ in range(4)]
    async with serving(create_app(settings, way)) as client:
        shuffler = Gated(client, server)
        header = server.publish(batch=3)
        for token in spent_tokens[:3]:
            assert (await shuffler.report(header, junk(), token)).status_code == 202
        await until(lambda: bool(server.delivered))
        header = server.publish(version=2, batch=3)
        await shuffler.reaches(2)
        assert (await shuffler.report(header, junk(), spent_tokens[3])).status_code == 202
        for token in spent_tokens:
            assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
    async with serving(create_app(settings, way)) as client:
        shuffler = Gated(client, server)
        for token in spent_tokens:
            assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
        assert (await shuffler.report(header, junk(), minted())).status_code == 202


async def test_a_token_stays_spent_when_the_server_asks_for_another_batch(shuffler: Gated) -> None:
    shuffler.server.insatiable = True
    header, people = shuffler.server.publish(batch=3), [(junk(), minted()) for _ in range(3)]
    for sealed, token in people:
        assert (await shuffler.report(header, sealed, token)).status_code == 202
    await until(lambda: bool(shuffler.server.delivered))
    async with asyncio.timeout(20):
        while not (await shuffler.facts())["open"]:
            await asyncio.sleep(0.005)
    for sealed, token in people:
        assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
        assert_problem(await shuffler.report(header, sealed, token), 409, "duplicate-report")
    assert (await shuffler.report(header, junk(), minted())).status_code == 202


@pytest.mark.parametrize("after", [True, False])
async def test_a_crash_at_the_commit_keeps_token_and_report_together(settings, server, tmp_path, monkeypatch, after):
    """Token and report are one transaction: either both are there, or neither, and the same bytes are always taken."""
    way, copy = httpx.ASGITransport(server.app), tmp_path / "copy"
    header, sealed, token = server.publish(), junk(), minted()
    async with serving(create_app(settings, way)) as client:
        await client.get("/experiments/spring")
        died = snapshot_at(monkeypatch, RoundStore, "commit", settings.data, copy, after=after)
        await Gated(client, server).report(header, sealed, token)
        assert died()
    async with serving(create_app(settings.model_copy(update={"data": copy}), way)) as client:
        shuffler = Gated(client, server)
        if after:
            assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
            assert_problem(await shuffler.report(header, sealed, token), 409, "duplicate-report")
        else:
            assert (await shuffler.report(header, sealed, token)).status_code == 202
            assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")


async def test_a_token_is_not_lost_to_a_full_disk(shuffler: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    header, sealed, token = shuffler.server.publish(), junk(), minted()
    await shuffler.client.get("/experiments/spring")
    with monkeypatch.context() as broken:
        broken.setattr(RoundStore, "write_tokens", full)
        assert_problem(await shuffler.report(header, sealed, token), 503, "unavailable")
    assert (await shuffler.report(header, sealed, token)).status_code == 202


async def test_a_crash_while_a_round_is_erased_keeps_tokens_spent(settings, server, tmp_path, monkeypatch):
    """Tokens are kept before the reports are erased, not after."""
    way, copy, spent_tokens = httpx.ASGITransport(server.app), tmp_path / "copy", [minted() for _ in range(3)]
    header = server.publish(batch=3)
    async with serving(create_app(settings, way)) as client:
        copy_exists = snapshot_at(monkeypatch, RoundStore, "erase", settings.data, copy, after=True)
        for token in spent_tokens:
            await Gated(client, server).report(header, junk(), token)
        await until(copy_exists)
    assert not list(copy.glob("*.db"))
    header = server.publish(version=2, batch=3)
    async with serving(create_app(settings.model_copy(update={"data": copy}), way)) as client:
        for token in spent_tokens:
            assert_problem(await Gated(client, server).report(header, junk(), token), 401, "token-spent")


async def test_two_shufflers_take_no_token_twice(settings, server, tmp_path):
    """A token names its endpoint, and other endpoints refuse it."""
    second = settings.model_copy(
        update={
            "data": tmp_path / "second",
            "public_key_file": tmp_path / "second.pub",
            "tokens": tokens(tmp_path / "tokens", "spring", origin="second:80"),
        }
    )
    way, token = httpx.ASGITransport(server.app), minted()
    header = server.publish()
    async with serving(create_app(settings, way)) as first_client, serving(create_app(second, way)) as second_client:
        assert (await Gated(first_client, server).report(header, junk(), token)).status_code == 202
        assert_problem(await Gated(second_client, server).report(header, junk(), token), 401, "token-wrong-audience")


async def test_tokens_are_turned_on_in_the_middle_of_a_round(settings: ShufflerSettings, server: FakeServer) -> None:
    way, header, early = httpx.ASGITransport(server.app), server.publish(), junk()
    async with serving(create_app(settings.model_copy(update={"tokens": type(settings.tokens)()}), way)) as client:
        assert (await Gated(client, server).report(header, early, None)).status_code == 202
    async with serving(create_app(settings, way)) as client:
        shuffler, token = Gated(client, server), minted()
        assert_problem(await shuffler.report(header, junk(), None), 401, "token-missing")
        assert (await shuffler.report(header, junk(), token)).status_code == 202
        assert_problem(await shuffler.report(header, junk(), token), 401, "token-spent")
        assert await shuffler.metric("reports_held") == 2


async def test_the_disk_ties_no_token_to_a_report(shuffler: Gated, settings: ShufflerSettings, tmp_path: Path) -> None:
    """Neither nonce nor order nor a common row: tokens and reports have places drawn apart."""
    header, people = shuffler.server.publish(batch=41), [(junk(), minted()) for _ in range(40)]
    for sealed, token in people:
        assert (await shuffler.report(header, sealed, token)).status_code == 202
    await asyncio.sleep(0.5)  # the log is emptied
    shutil.copytree(settings.data, tmp_path / "stolen")
    (file,) = (path for path in (tmp_path / "stolen").glob("*.db"))
    contents = b"".join(path.read_bytes() for path in (tmp_path / "stolen").iterdir())
    assert not any(token[2:34] in contents for _, token in people)
    with sqlite3.connect(file) as database:
        places = dict(database.execute("SELECT sealed, id FROM place WHERE taken"))
        tokens_at = dict(database.execute("SELECT substr(token, 1, 16), id FROM token WHERE taken"))
    with sqlite3.connect(tmp_path / "stolen" / TOKENS_FILE) as database:
        (secret,) = database.execute("SELECT key FROM secret").fetchone()
    hashed = [hashlib.blake2b(token[2:34], digest_size=16, key=secret).digest() for _, token in people]
    pairs = [(places[sealed], tokens_at[nonce_hash]) for (sealed, _), nonce_hash in zip(people, hashed, strict=True)]
    # In common places all 40 would agree. Of places drawn apart 8 or more agree in one run of 100,000.
    assert sum(place == token for place, token in pairs) < 8
    assert [place for place, _ in pairs] != sorted(place for place, _ in pairs)
    assert [token for _, token in pairs] != sorted(token for _, token in pairs)
    assert len(people[0][0]) == SIZE


# A disk that is full makes the shuffler forget a token that it has just spent: nobody gets in by its nonce alone.
#
# A spent token's signature is not looked at again: whoever asks about a report whose answer was lost costs little so.
# Its nonce admits nothing else, whatever has become of it when the body is there.


def forged(token: bytes, name: str) -> bytes:
    """A token of an experiment with the nonce of another one's, which no issuer signed."""
    return token[:34] + Challenge(ISSUER, ORIGIN, name).digest + token[66:98] + bytes(256)


async def test_a_nonce_that_is_taken_back_admits_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, keys = FakeServer(), tokens(tmp_path / "tokens", "spring", "autumn")
    settings = ShufflerSettings(
        server_url="http://server",
        data=tmp_path / "data",
        public_key_file=tmp_path / "shuffler.pub",
        min_batch=2,
        tokens=keys,
    )
    event, sends = asyncio.Event(), asyncio.Event()
    writing, fails = threading.Event(), threading.Event()

    def full(*_: object) -> None:
        writing.set()
        fails.wait(20)
        raise sqlite3.OperationalError("database or disk is full")

    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler, token = Gated(client, server), minted("spring")
        spring, autumn = server.publish("spring", batch=50), server.publish("autumn", batch=50)
        for name in ("spring", "autumn"):
            await client.get(f"/experiments/{name}")
        sealed = junk()

        async def slowly() -> AsyncIterator[bytes]:
            event.set()
            await sends.wait()
            yield body_of(autumn, [junk()])

        with monkeypatch.context() as broken:
            broken.setattr(RoundStore, "commit", full)
            task = asyncio.create_task(shuffler.report(spring, sealed, token))
            assert await asyncio.to_thread(writing.wait, 20)
            headers = {"authorization": authorization(forged(token, "autumn"))}
            page = "/experiments/autumn/reports"
            other = asyncio.create_task(client.post(page, content=slowly(), headers=headers, auth=httpx.Auth()))
            await asyncio.wait_for(event.wait(), 20)
            fails.set()
            assert_problem(await task, 503, "unavailable")
        sends.set()
        # It may be a device that asks about its own report: the same bytes are looked at anew when they come again.
        assert_problem(await other, 503, "unavailable")
        answer = await client.post(page, content=body_of(autumn, [junk()]), headers=headers, auth=httpx.Auth())
        assert_problem(answer, 401, "token-invalid")
        assert (await shuffler.report(spring, sealed, token)).status_code == 202
