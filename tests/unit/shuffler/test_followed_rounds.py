"""Rounds that a shuffler follows, and what it asks the server."""

import asyncio
import logging
import time
from functools import partial

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import BatchRefused, SpecError, Unavailable
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim, verify_claim
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import Header
from privateer_shuffler.app import create_app, main
from privateer_shuffler.upstream import Upstream
from tests.support.asgi import serving
from tests.support.notary import notarized
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until


async def test_an_experiment_is_followed_from_its_first_upload(shuffler):
    server = shuffler.server
    server.publish(version=1)
    assert (await shuffler.facts())["version"] == 1
    server.publish(version=2, batch=7)
    await shuffler.reaches(2)
    expected = {"experiment": "spring", "version": 2, "model": "shuffle", "batch_size": 7, "open": True}
    assert await shuffler.facts() == expected
    assert server.questions <= 3  # first sight, the poll that brought version 2, the poll after it


async def test_a_newer_version_is_asked_for_once(shuffler):
    server = shuffler.server
    server.deaf = True
    await shuffler.post(server.publish(version=1), sealed_reports(1))
    header = server.publish(version=2)
    before = server.questions
    answers = await asyncio.gather(*(shuffler.post(header, [report]) for report in sealed_reports(4)))
    assert [answer.status_code for answer in answers] == [202] * 4
    assert server.questions <= before + 2  # the answer, and at most one long poll begun after it


async def test_an_answer_from_before_the_publication_does_not_count(shuffler):
    server = shuffler.server
    server.deaf = True
    old = server.publish(version=1)
    await shuffler.post(old, sealed_reports(1))
    server.delay = 0.2
    too_new = Header("spring", 9, old.key_id, old.digest)
    early = asyncio.create_task(shuffler.post(too_new, sealed_reports(1)))
    await asyncio.sleep(0.1)  # its question is under way when version 2 comes out
    header = server.publish(version=2)
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    assert_problem(await early, 409, "round-unknown")


async def test_a_round_closed_by_the_server_is_erased(shuffler, settings):
    server = shuffler.server
    await shuffler.post(server.publish(version=1), sealed_reports(3))
    (old,) = settings.data.glob("*.db")
    header = server.publish(version=2)
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    await until(lambda: not old.exists())
    assert await shuffler.metric("reports_dropped_total") == 3
    async with asyncio.timeout(20):  # the file goes before the pool is forgotten
        while await shuffler.metric("reports_held") != 1:
            await asyncio.sleep(0.01)
    assert not server.attempts


@pytest.mark.parametrize("version", [1, 2])
async def test_a_server_that_shows_another_publication_is_not_followed(shuffler, caplog, version):
    """Another policy for the same version, or an older version: reports for it find no door."""
    server = shuffler.server
    first = server.publish(version=2)
    await shuffler.post(first, sealed_reports(1))
    with caplog.at_level(logging.WARNING):
        second = server.publish(version=version, policy=b"another")
        await until(lambda: "went back to another publication" in caplog.text)
    refused = await shuffler.post(second, sealed_reports(1))
    assert refused.status_code == 409
    assert (await shuffler.post(first, sealed_reports(1))).status_code == 202
    assert await shuffler.metric("reports_held") == 2


async def test_concurrent_first_uploads_ask_the_server_once(shuffler):
    server = shuffler.server
    server.deaf, server.delay = True, 0.1
    header = server.publish()
    answers = await asyncio.gather(*(shuffler.post(header, [report]) for report in sealed_reports(5)))
    assert [answer.status_code for answer in answers] == [202] * 5
    assert server.questions <= 2


async def test_questions_about_unknown_experiments_are_bounded(shuffler):
    server = shuffler.server
    server.delay = 0.3
    answers = await asyncio.gather(*(shuffler.client.get(f"/experiments/e{i}") for i in range(80)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {404, 503}
    assert server.questions <= 64
    assert statuses.count(503) == 80 - server.questions


async def test_experiments_do_not_mix(shuffler):
    server = shuffler.server
    spring, summer = server.publish("spring", batch=3), server.publish("summer", batch=2)
    reports = sealed_reports(5)
    await shuffler.post(spring, reports[:2])
    await shuffler.post(summer, reports[2:4])
    await shuffler.post(spring, reports[4:])
    await until(lambda: len(server.delivered) == 2)
    assert sorted(server.received("spring")) == sorted([*reports[:2], reports[4]])
    assert sorted(server.received("summer")) == sorted(reports[2:4])


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"no publication"),
        httpx.Response(304),
        httpx.Response(500),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
    ],
)
async def test_uploads_are_unavailable_while_the_server_is_unreachable(settings, answer):
    def respond(_):
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)

    async with serving(create_app(settings, notarized(respond))) as client:
        assert_problem(await client.get("/experiments/spring"), 503, "unavailable")
        post = await Shuffler(client, FakeServer()).post(Header("spring", 1, b"k" * 8, b"d" * 32), sealed_reports(1))
        assert_problem(post, 503, "unavailable")


async def test_a_publication_of_another_experiment_is_no_answer(shuffler):
    shuffler.server.publish("summer")
    shuffler.server.publications["spring"] = shuffler.server.publications["summer"]
    assert_problem(await shuffler.client.get("/experiments/spring"), 503, "unavailable")


async def test_experiment_names_are_escaped_in_the_server_address(shuffler):
    answer = await shuffler.client.get("/experiments/spring%3Fwait=9%23")
    assert_problem(answer, 404, "not-found")
    assert shuffler.server.questions == 1


async def test_a_restart_continues_with_stored_rounds(settings, server):
    transport = httpx.ASGITransport(server.app)
    header, reports = server.publish(batch=4), sealed_reports(4)
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(header, reports[:3])
    async with serving(create_app(settings, transport)) as client:
        shuffler = Shuffler(client, server)
        assert await shuffler.metric("reports_held") == 3
        assert_problem(await shuffler.post(header, reports[:3]), 409, "duplicate-report")
        assert (await shuffler.post(header, reports[3:])).status_code == 202
        await until(lambda: bool(server.delivered))
    assert sorted(server.received()) == sorted(reports)


async def test_a_restart_erases_rounds_closed_meanwhile(settings, server):
    transport = httpx.ASGITransport(server.app)
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(server.publish(version=1), sealed_reports(3))
    server.publish(version=2)
    async with serving(create_app(settings, transport)) as client:
        shuffler = Shuffler(client, server)
        await shuffler.reaches(2)
        await until(lambda: len(list(settings.data.glob("*.db"))) == 1)
        assert await shuffler.metric("reports_dropped_total") == 3


async def test_a_delivered_round_is_not_opened_again_after_a_restart(settings, server):
    """An older round is not opened either: a server could fill its batch around a single late device."""
    transport = httpx.ASGITransport(server.app)
    older, old_body = server.publish(version=1, batch=2), server.publications["spring"]
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(older, sealed_reports(2))
        await until(lambda: bool(server.delivered))
        header = server.publish(version=2, batch=2)
        await Shuffler(client, server).post(header, sealed_reports(2))
        await until(lambda: len(server.delivered) == 2 and not list(settings.data.glob("*.db*")))
    async with serving(create_app(settings, transport)) as client:
        assert_problem(await Shuffler(client, server).post(header, sealed_reports(1)), 409, "round-closed")
        assert (await Shuffler(client, server).facts())["open"] is False
    server.publications["spring"] = old_body
    async with serving(create_app(settings, transport)) as client:
        assert_problem(await Shuffler(client, server).post(older, sealed_reports(1)), 503, "unavailable")
    assert len(server.attempts) == 2


async def test_a_damaged_history_is_refused(settings):
    settings.data.mkdir()
    (settings.data / "taken.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(SpecError, match="PRIVATEER_DATA"):
        create_app(settings)


async def test_the_fill_level_is_shown_in_tenths(shuffler):
    header = shuffler.server.publish(batch=30)
    await shuffler.post(header, sealed_reports(8))
    assert await shuffler.metric("reports_held") == 6
    assert await shuffler.metric("reports_held") == 6


async def test_a_round_that_cannot_be_stored_is_tried_again(shuffler, settings):
    header = shuffler.server.publish()
    blocker = settings.data / (header.digest.hex() + ".db")
    blocker.mkdir()
    assert_problem(await shuffler.post(header, sealed_reports(1)), 503, "unavailable")
    blocker.rmdir()
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_without_certificates_is_refused(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=r"ca\.pem holds no certificates") as caught:
        Upstream("https://learn.example", authorities=path)
    assert caught.value.field == "PRIVATEER_SERVER_CA"


def test_a_bad_certificate_file_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path))
    monkeypatch.setenv("PRIVATEER_SERVER_URL", "https://learn.example")
    monkeypatch.setenv("PRIVATEER_SERVER_CA", str(tmp_path / "missing.pem"))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_refused_signature_is_attributed_to_clock_or_key(seconds):
    key, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public_key = (key if seconds else stranger).public_key()
    trusted_keys = {signing_key_id(public_key): public_key}

    def answer(request):
        text, now = request.headers[SIGNATURE_HEADER], time.time() + seconds
        check = BATCH.verify if request.url.path == "/batches" else partial(verify_claim, "spring")
        with pytest.raises(BatchRefused) as refused:
            check(text, trusted_keys, now)
        return httpx.Response(refused.value.status, content=problem_body(refused.value))

    upstream = Upstream("http://server", httpx.MockTransport(answer))
    says = "clocks of the shuffler and the learning server differ" if seconds else "does not trust|refuses the batch"
    with pytest.raises(Unavailable, match=says):
        await upstream.claim("spring", sign_claim("spring", key))
    with pytest.raises(BatchRefused, match=says):
        await upstream.deliver("spring", b"batch", BATCH.sign(b"batch", key))
