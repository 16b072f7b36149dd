"""What tests change in a running experiment."""

import asyncio
from typing import Any

import httpx

from privateer_client.participation import Participation
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from tests.support.devices import EVERYTHING
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, MSGPACK, Api


async def change(api: Api, action: str, body: dict[str, Any] | None = None, name: str = "test") -> httpx.Response:
    """Ask for a change as the operator."""
    return await api.client.post(f"/experiments/{name}/{action}", json=body, headers=ADMIN)


async def make_change(api: Api, action: str, body: dict[str, Any] | None = None, name: str = "test") -> dict[str, Any]:
    """The answer to a change that is carried out."""
    response = await change(api, action, body, name)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def lines(api: Api, name: str = "test") -> list[tuple[str, int, int | None]]:
    """Action, version and first version of every line of a log."""
    answer = (await api.client.get(f"/experiments/{name}/log", headers=ADMIN)).json()
    return [(row["action"], row["version"], row["since_version"]) for row in answer["changes"]]


async def report(api: Api, people: int, publication: bytes | None = None, seed: int = 0) -> httpx.Response:
    """Upload reports of so many participants to a publication, by default the newest."""
    body = publication or await api.publication()
    return await api.client.post("/reports", content=body_of(body, sealed_reports(body, people, seed)))


async def arms_played(api: Api, name: str = "test") -> set[str]:
    """The arms that the policy may give to somebody."""
    shows = (await api.client.get(f"/experiments/{name}/policy")).json()["policy"]["shows"]
    return {arm for row in shows["bins"] for arm in row["arms"]}


async def record_holds(api: Api) -> dict[str, Any]:
    """The privacy record, every claim of which a verifier confirms."""
    record = dict((await api.client.get("/experiments/test/privacy")).json())
    assert all(verdict.holds for verdict in recompute(read_certificates(record)[""]))
    return record


async def asks(api: Api, name: str = "test") -> bool:
    """Whether a device that comes now is asked."""
    answer = await api.client.get(f"/experiments/{name}/policy", headers=MSGPACK)
    is_paused = {"nobody": True, "published": False}[answer.headers["privateer-asks"]]
    return Participation(answer.content, name, EVERYTHING, is_paused=is_paused).is_report_requested


async def wait_for_version(api: Api, version: int) -> None:
    """Wait for a version."""
    async with asyncio.timeout(20):
        while (await api.facts())["version"] < version:
            await asyncio.sleep(0.01)
