"""Answers are of releases: of two populations of whom the same is released they are equal, and before it they wait."""

import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, plain_reports, seal, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, SMALL, TOKEN, Api
from tests.support.specs import tables

PEOPLE = 20
MODELS: dict[str, dict[str, Any]] = {
    "local": {},
    "central": {"privacy.model": "central", "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
}


@asynccontextmanager
async def served(data: Path, changes: dict[str, Any]) -> AsyncIterator[Api]:
    async with serving(create_app(ServerSettings(data=data, admin_token=TOKEN, sender_keys=TRUSTED))) as client:
        response = await client.post("/experiments", json=tables(SMALL | changes), headers=ADMIN)
        assert response.status_code in (200, 201), response.text
        yield Api(client)


@asynccontextmanager
async def twins(folder: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Two servers that published the same: one is a copy of the other."""
    async with served(folder / "one", {}):
        pass
    shutil.copytree(folder / "one", folder / "other")
    async with served(folder / "one", {}) as one, served(folder / "other", {}) as other:
        assert await one.publication() == await other.publication()
        yield one, other


async def answer(api: Api) -> bytes:
    return (await api.client.get("/experiments/test/answer")).content


async def report(api: Api, publication: bytes, messages: list[bytes]) -> None:
    sealed = [seal(publication, os.urandom(16) + message) for message in messages]
    response = await api.client.post("/reports", content=body_of(publication, sealed))
    assert response.json()["accepted"] == len(messages), response.text


@pytest.mark.parametrize("model", MODELS)
async def test_before_a_release_no_report_changes_an_answer(tmp_path: Path, model: str) -> None:
    async with served(tmp_path, MODELS[model]) as api:
        before = await answer(api)
        publication = await api.publication()
        for sealed in sealed_reports(publication, PEOPLE - 1):
            assert (await api.client.post("/reports", content=body_of(publication, [sealed]))).status_code == 202
            assert await answer(api) == before
        await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1, seed=1)))
        assert await answer(api) != before


async def test_an_answer_is_of_the_release_not_of_who_sent_what_and_when(tmp_path: Path) -> None:
    async with twins(tmp_path) as (one, other):
        publication = await one.publication()
        messages = plain_reports(publication, PEOPLE, seed=3)
        await report(one, publication, messages)
        random.Random(5).shuffle(messages)
        for start in range(0, PEOPLE, 4):
            await report(other, publication, messages[start : start + 4])
        assert await answer(one) == await answer(other)
        assert b'"people":20,' in await answer(one)


async def test_other_releases_have_other_answers(tmp_path: Path) -> None:
    """So the comparison above can fail."""
    async with twins(tmp_path) as (one, other):
        publication = await one.publication()
        await report(one, publication, plain_reports(publication, PEOPLE, seed=3))
        await report(other, publication, plain_reports(publication, PEOPLE, seed=4))
        assert await answer(one) != await answer(other)
