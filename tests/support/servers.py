"""What tests ask a learning server."""

from typing import Any

import httpx

from privateer_core.wire.problem import read_slug
from privateer_server.api.endpoints import BatchesEndpoint
from privateer_server.app import Server
from privateer_server.intake.intake import Intake
from tests.support.specs import tables

TOKEN = "token-of-the-tests"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
MSGPACK = {"accept": "application/msgpack"}
PHASED = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "actions.count": 6}
"""Changes to a phased spec: five rounds of 23 to 40 people."""
SMALL = {"experiment.round_size": 20, "experiment.horizon": 1000}
SHUFFLED = {
    "privacy.model": "shuffle",
    "privacy.delta": 1e-6,
    "privacy.min_batch": 100,
    "experiment.round_size": 100,
    "experiment.horizon": 1000,
}


def intake_of(app: Server) -> Intake:
    """The intake of a server in this process."""
    endpoint = app._endpoints[BatchesEndpoint.route]
    assert isinstance(endpoint, BatchesEndpoint)
    return endpoint._intake


class Api:
    """A learning server behind a client."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def create(self, changes: dict[str, Any] | None = None) -> httpx.Response:
        return await self.client.post("/experiments", json=tables(changes), headers=ADMIN)

    async def publication(self, name: str = "test") -> bytes:
        response = await self.client.get(f"/experiments/{name}/policy", headers=MSGPACK)
        assert response.status_code == 200
        return response.content

    async def facts(self, name: str = "test") -> dict[str, Any]:
        return dict((await self.client.get(f"/experiments/{name}")).json())

    async def metric(self, line: str) -> float:
        """The value of a line of the metrics, 0 if it is not there."""
        text = (await self.client.get("/metrics")).text
        return next((float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if row.rsplit(" ", 1)[0] == line), 0.0)


def assert_problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The problem document of a response that must be one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert read_slug(response.content) == slug
    problem = response.json()
    assert problem["status"] == status
    assert problem["detail"]
    return dict(problem)
