"""Whatever learns: a server that dies after a release goes on with the same state, and draws no second noise."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.algorithms import algorithm
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from tests.support.asgi import serving
from tests.support.crashes import snapshot_at
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, TOKEN, Api

PEOPLE = 100


def spec_of(name: str, model: str) -> Spec:
    """A small instance, in rounds of 100 people."""
    spec = algorithm(name).spec.instances()[model]
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_size": PEOPLE, "horizon": 3 * PEOPLE}
    data["privacy"] |= {"min_batch": PEOPLE} if spec.privacy.trust.batched else {}
    return type(spec).model_validate(data)


@asynccontextmanager
async def served(data: Path, trusted: Path) -> AsyncIterator[Api]:
    settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=(trusted,), sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        yield Api(client)


async def learned(api: Api) -> tuple[Any, ...]:
    """All that the server has learned, and what it says of it."""
    found = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    return found["version"], found["state"], found["result"]


async def send(api: Api, spec: Spec, key: Ed25519PrivateKey) -> None:
    """Have a whole round report."""
    publication = await api.publication()
    body = body_of(publication, sealed_reports(publication, PEOPLE))
    batched = spec.privacy.trust.batched
    headers = {SIGNATURE_HEADER: BATCH.sign(body, key)} if batched else {}
    sent = await api.client.post("/batches" if batched else "/reports", content=body, headers=headers)
    assert sent.json()["accepted"] == PEOPLE


@pytest.mark.parametrize("name", ["bandit", "convex", "linear"])
@pytest.mark.parametrize("model", ["central", "shuffle"])
async def test_a_learner_goes_on_from_the_release_that_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    """Planted: a server that dies before its release is on record draws a curator's noise again, and learns otherwise.

    In a shuffled batch all noise is in the reports, so that what is learned is the same.
    """
    spec, key, trusted = spec_of(name, model), Ed25519PrivateKey.generate(), tmp_path / "trusted"
    trusted.mkdir()
    (trusted / "one.pub").write_text(key.public_key().public_bytes_raw().hex() + "\n")
    data, copies = tmp_path / "data", {after: tmp_path / f"copy-{after}" for after in (False, True)}
    async with served(data, trusted) as api:
        tables = spec.model_dump(mode="json", exclude_none=True)
        assert (await api.client.post("/experiments", json=tables, headers=ADMIN)).status_code == 201
        await send(api, spec, key)
        with monkeypatch.context() as patched:
            made = [snapshot_at(patched, Journal, "write", data, copies[one], after=one) for one in copies]
            await send(api, spec, key)
        assert all(one() for one in made)
        known, published = await learned(api), await api.publication()
    async with served(copies[True], trusted) as api:
        assert (await learned(api), await api.publication()) == (known, published)
        await send(api, spec, key)
    async with served(copies[False], trusted) as api:
        if spec.privacy.trust.batched:
            assert await learned(api) == known
        else:
            assert await learned(api) != known
