"""What becomes of a report whose token no endpoint takes any more: it comes with another one, and counts once."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from privateer_client import AsyncClient
from privateer_client.ledger.ledger import Ledger
from privateer_client.states import Outcome
from privateer_core.errors import TokenWarning
from privateer_core.wire.attestation import attest
from privateer_lab.load.driver import LIMITS
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, assert_problem
from tests.support.tokens import SECRET, Trio, now, trio

ENDPOINTS = pytest.mark.parametrize(("changes", "host"), [(SMALL, "server"), (SHUFFLED, "shuffler")])
WAITS, ARRIVED = {"test": Outcome.PENDING}, {"test": Outcome.ACCEPTED}


@asynccontextmanager
async def device(services: Trio, issuer: str = "http://issuer") -> AsyncIterator[AsyncClient]:
    """One person's device, which sends each report once a call."""
    async with AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        issuer=issuer,
        attest=lambda name: attest(SECRET, name, "somebody", now() + 600),
        limits=LIMITS,
        ledger=Ledger(services.folder / "one.db"),
        patience=0,
        transport=services.ways,
    ) as client:
        yield client


async def reported(services: Trio, changes: dict[str, Any], host: str, is_taken: bool) -> None:
    """Have the device report once, and hear no answer: the endpoint took the report, or was away."""
    await services.create(changes)
    async with device(services) as client:
        session = await client.join("test")
        await session.choose({"x1": 0.5, "x2": 0.5})
        if is_taken:
            services.ways.lost.append(host)
            assert await session.report(1.0) is Outcome.PENDING
            return
        there, services.ways.hosts[host] = services.ways.hosts[host], away
        assert await session.report(1.0) is Outcome.PENDING
        services.ways.hosts[host] = there


async def away(scope: Any, receive: Any, send: Any) -> None:
    """A service that somebody is just starting again."""
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def lose(folder: Path) -> None:
    """Lose the issuer's keys, and what it knows of shares."""
    shutil.rmtree(folder / "issuer")


@ENDPOINTS
@pytest.mark.parametrize("is_taken", [False, True], ids=["new", "counted"])
@pytest.mark.battery
async def test_a_report_whose_token_names_a_lost_key(
    tmp_path: Path, changes: dict[str, Any], host: str, is_taken: bool
) -> None:
    """It comes with another token once there is one. Where the first try was counted, the second one is not."""
    async with trio(tmp_path, attestation="hmac") as services:
        await reported(services, changes, host, is_taken)
        first = services.ways.to(host, "/reports")[-1]
    lose(tmp_path)
    async with trio(tmp_path, attestation="hmac") as services, device(services) as client:
        assert await client.resend() == WAITS
        assert await client.resend() == ARRIVED
        refused, last = services.ways.to(host, "/reports")
        assert first.content == refused.content == last.content
        assert first.headers["authorization"] == refused.headers["authorization"] != last.headers["authorization"]
        assert services.ways.statuses(host, "/reports") == [401, 409 if is_taken else 202]
        assert await client.resend() == {}


@ENDPOINTS
async def test_a_report_that_was_counted_is_a_duplicate_whichever_token_it_comes_with(
    tmp_path: Path, changes: dict[str, Any], host: str
) -> None:
    at = "server" if host == "server" else ""
    async with trio(tmp_path) as services:
        body = body_of(publication := await services.create(changes), sealed_reports(publication, 1))
        assert (await services.upload(body, await services.token(origin=host), host=at)).status_code == 202
        other = await services.token(origin=host)
        assert_problem(await services.upload(body, other, host=at), 409, "duplicate-report")
    async with trio(tmp_path) as services:  # after a restart
        assert_problem(await services.upload(body, other, host=at), 409, "duplicate-report")


async def test_a_report_of_a_round_that_is_over_is_late_whichever_token_it_comes_with(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SMALL | {"experiment.round_size": 2})
        bodies = [body_of(publication, [sealed]) for sealed in sealed_reports(publication, 2)]
        for body in bodies:
            assert (await services.upload(body, await services.token(origin="server"), host="server")).is_success
        for body in bodies:
            again = await services.upload(body, await services.token(origin="server"), host="server")
            assert_problem(again, 409, "round-closed")


@ENDPOINTS
async def test_a_token_that_the_endpoint_may_take_again_is_kept(
    tmp_path: Path, changes: dict[str, Any], host: str
) -> None:
    """An endpoint that goes by a wrong name for an hour makes no device ask for a second token."""
    async with trio(tmp_path, attestation="hmac") as services:
        await reported(services, changes, host, is_taken=False)
    async with trio(tmp_path, attestation="hmac", misnamed=True) as services, device(services) as client:
        for _ in range(3):
            assert await client.resend() == WAITS
        assert services.ways.statuses(host, "/reports") == [401, 401, 401]
        assert not services.ways.to("issuer", "/tokens")
    async with trio(tmp_path, attestation="hmac") as services, device(services) as client:
        assert await client.resend() == ARRIVED
        assert not services.ways.to("issuer", "/tokens")


@ENDPOINTS
async def test_a_report_keeps_its_token_until_there_is_another_one(
    tmp_path: Path, changes: dict[str, Any], host: str
) -> None:
    """An issuer that finds its keys again has them count."""
    async with trio(tmp_path, attestation="hmac") as services:
        await reported(services, changes, host, is_taken=False)
    shutil.copytree(tmp_path / "issuer", tmp_path / "copy")
    lose(tmp_path)
    async with trio(tmp_path, attestation="hmac") as services:
        services.ways.hosts["issuer"] = away
        async with device(services) as client:
            for _ in range(2):
                with pytest.warns(TokenWarning, match="signed no token"):
                    assert await client.resend() == WAITS
    lose(tmp_path)
    (tmp_path / "copy").rename(tmp_path / "issuer")
    async with trio(tmp_path, attestation="hmac") as services, device(services) as client:
        assert await client.resend() == ARRIVED


@ENDPOINTS
async def test_an_issuer_by_another_name(tmp_path: Path, changes: dict[str, Any], host: str) -> None:
    """Its tokens of before are for elsewhere; the application names it anew, and the report comes with another one."""
    async with trio(tmp_path, attestation="hmac") as services:
        await reported(services, changes, host, is_taken=True)
    lose(tmp_path)
    async with trio(tmp_path, attestation="hmac", name="other:80") as services:
        async with device(services) as client:
            with pytest.warns(TokenWarning, match="another issuer's"):
                assert await client.resend() == WAITS
        services.ways.hosts["other"] = away
        async with device(services, "http://other") as client:
            with pytest.warns(TokenWarning, match="signed no token"):
                assert await client.resend() == WAITS
            services.ways.hosts["other"] = services.ways.hosts["issuer"]
            assert await client.resend() == WAITS
            assert await client.resend() == ARRIVED
        first, second, third, last = (one.headers["authorization"] for one in services.ways.to(host, "/reports"))
        assert first == second == third != last
        assert services.ways.statuses(host, "/reports") == [401, 401, 401, 409]
