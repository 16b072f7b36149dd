"""The issuer's pages, and what it refuses to sign."""

import asyncio
import logging
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from privateer_core.errors import AttestationRefused, InputError, SpecError
from privateer_core.wire.attestation import HEADER, LIFETIME_MAX, attest, verify_attestation
from privateer_core.wire.token import TYPE, Challenge, PendingToken
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.app import create_app
from privateer_issuer.store import IssuerStore
from tests.support.asgi import serving
from tests.support.servers import assert_problem
from tests.support.tokens import SECRET, issuer_settings


async def key_of(client: httpx.AsyncClient, name: str = "test") -> TokenKey:
    page = await client.get("/token-keys")
    assert page.headers["content-type"] == "application/private-token-issuer-directory"
    return Directory.decode(page.content).keys(name)[0]


def draw_token(key: TokenKey, name: str = "test") -> PendingToken:
    return PendingToken.draw(Challenge("issuer", "shuffler", name), key)


async def ask(client: httpx.AsyncClient, body: bytes, text: str = "", name: str = "test") -> httpx.Response:
    return await client.post(f"/experiments/{name}/tokens", content=body, headers={HEADER: text} if text else {})


def signed(pseudonym: str, name: str = "test", life: int = 600) -> str:
    return attest(SECRET, name, pseudonym, int(time.time()) + life)


async def test_a_request_is_signed(tmp_path: Path) -> None:
    async with serving(create_app(issuer_settings(tmp_path))) as client:
        key = await key_of(client)
        pending = draw_token(key)
        answer = await ask(client, pending.request)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/private-token-response")
        assert pending.finish(key, answer.content)[:98] == pending.input
        metrics = (await client.get("/metrics")).text
        assert 'privateer_issuer_tokens_issued_total{experiment="test"} 1.0' in metrics
        (timestamp,) = re.findall(r'privateer_issuer_key_timestamp_seconds{experiment="test"} (.+)', metrics)
        assert float(timestamp) == key.not_before
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_requests_that_the_issuer_does_not_sign(tmp_path: Path) -> None:
    async with serving(create_app(issuer_settings(tmp_path))) as client:
        key = await key_of(client)
        request = draw_token(key).request
        other = bytes([request[2] ^ 1])
        assert_problem(await ask(client, request, name="nobody"), 404, "not-found")
        assert_problem(await ask(client, request[:-1]), 422, "token-request-refused")
        assert_problem(await ask(client, b"\0\1" + request[2:]), 422, "token-request-refused")
        assert_problem(await ask(client, TYPE + other + request[3:]), 422, "token-request-refused")
        assert_problem(await ask(client, request[:3] + b"\xff" * 256), 422, "token-request-refused")
        assert_problem(await ask(client, request + b"x"), 413, "too-large")
        assert_problem(await client.get("/experiments/test/tokens"), 405, "method-not-allowed")
        metrics = (await client.get("/metrics")).text
        assert 'requests_refused_total{reason="token-request-refused"} 4.0' in metrics


async def test_devices_are_counted_durably(tmp_path: Path) -> None:
    settings = issuer_settings(tmp_path, attestation_verifier="hmac", tokens_per_device=2)
    async with serving(create_app(settings)) as client:
        key = await key_of(client)
        requests = [draw_token(key).request for _ in range(3)]
        for request in requests[:2]:
            assert (await ask(client, request, signed("one"))).status_code == 200
    async with serving(create_app(settings)) as client:  # after a restart
        assert_problem(await ask(client, requests[2], signed("one")), 403, "tokens-exhausted")
        assert (await ask(client, requests[0], signed("one"))).status_code == 200  # its answer was lost
        assert (await ask(client, requests[2], signed("two"))).status_code == 200
        other = draw_token(await key_of(client, "other"), "other").request
        assert (await ask(client, other, signed("one", "other"), "other")).status_code == 200


async def test_a_device_that_exceeds_its_token_quota_at_once_gets_no_token(tmp_path: Path) -> None:
    settings = issuer_settings(tmp_path, attestation_verifier="hmac", tokens_per_device=3)
    async with serving(create_app(settings)) as client:
        key = await key_of(client)
        answers = await asyncio.gather(*(ask(client, draw_token(key).request, signed("one")) for _ in range(40)))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [403] * 37


@pytest.mark.parametrize(
    "attest_device",
    [
        lambda: "",
        lambda: "one",
        lambda: signed("one")[:-1],
        lambda: signed("one", "other"),
        lambda: signed("one", life=-5),
        lambda: signed("one", life=LIFETIME_MAX + 100),
        lambda: attest(b"y" * 32, "test", "one", int(time.time()) + 600),
        lambda: signed("one").replace("one", "two"),
        lambda: "one.99999999999999.00",
    ],
    ids=["empty", "bare", "cut", "elsewhere", "over", "too-long", "forged", "renamed", "far-away"],
)
async def test_foreign_attestations_are_refused(tmp_path: Path, attest_device: Callable[[], str]) -> None:
    settings = issuer_settings(tmp_path, attestation_verifier="hmac")
    async with serving(create_app(settings)) as client:
        # Made when it is asked with: a text of when tests were collected is less far ahead by now.
        request = draw_token(await key_of(client)).request
        assert_problem(await ask(client, request, attest_device()), 403, "attestation-refused")


def test_an_attestation_is_for_one_experiment_and_some_time() -> None:
    text = attest(SECRET, "spring", "one", 1600)
    assert verify_attestation(text, "spring", [b"z" * 32, SECRET], 1000.0) == "one"
    for name, now in (("autumn", 1000.0), ("spring", 1601.0), ("spring", 1600.0 - LIFETIME_MAX - 1)):
        with pytest.raises(AttestationRefused):
            verify_attestation(text, name, [SECRET], now)


@pytest.mark.parametrize("pseudonym", ["", "a b", "a.b", "x" * 65, "one\n"])
def test_a_pseudonym_has_no_other_characters(pseudonym: str) -> None:
    with pytest.raises(InputError):
        attest(SECRET, "spring", pseudonym, 1600)


async def test_the_disk_has_no_pseudonym_and_no_request(tmp_path: Path) -> None:
    settings = issuer_settings(tmp_path, attestation_verifier="hmac")
    async with serving(create_app(settings)) as client:
        request = draw_token(await key_of(client)).request
        assert (await ask(client, request, signed("somebody-whom-we-know"))).status_code == 200
    content = b"".join(path.read_bytes() for path in settings.data.iterdir())
    assert b"somebody-whom-we-know" not in content
    assert request[3:35] not in content


async def test_a_disk_that_fails_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    settings = issuer_settings(tmp_path, attestation_verifier="hmac")
    async with serving(create_app(settings)) as client:
        request = draw_token(await key_of(client)).request
        with monkeypatch.context() as broken:
            broken.setattr(IssuerStore, "count_requests", fail)
            answer = await ask(client, request, signed("one"))
            assert_problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
            assert_problem(await client.get("/readyz"), 503, "unavailable")
        assert (await ask(client, request, signed("one"))).status_code == 200
        assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(("version", "says"), [(0, "is too old: schema 0"), (9, "was made by a newer Privateer")])
async def test_a_folder_of_another_age_is_untouched(tmp_path: Path, version: int, says: str) -> None:
    settings = issuer_settings(tmp_path)
    async with serving(create_app(settings)):
        pass
    with closing(sqlite3.connect(settings.data / "issuer.db")) as database:
        database.execute(f"PRAGMA user_version={version}")
    before = {path.name: path.read_bytes() for path in settings.data.iterdir()}
    with pytest.raises(SpecError, match=f"issuer.db {says}") as caught:
        create_app(settings)
    assert caught.value.remedy
    assert {path.name: path.read_bytes() for path in settings.data.iterdir()} == before


async def test_keys_and_what_a_start_recovers_are_a_line_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "privateer.issuer")
    settings = issuer_settings(tmp_path)
    async with serving(create_app(settings)):
        for name in ("issuer.db", "issuer.db-wal"):  # as a killed issuer leaves its folder
            (tmp_path / name).write_bytes((settings.data / name).read_bytes())
    async with serving(create_app(settings)):
        pass
    expected = [("key made", {"experiment": name}) for name in settings.experiments]
    assert [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records] == expected
    for name in ("issuer.db", "issuer.db-wal"):
        (settings.data / name).write_bytes((tmp_path / name).read_bytes())
    async with serving(create_app(settings)):
        pass
    (line,) = caplog.records[len(expected) :]
    assert line.getMessage() == "recovered after an unclean stop"
    assert line.__dict__["fields"] == {"keys": len(settings.experiments)}
