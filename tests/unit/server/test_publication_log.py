"""The public log of a server: signed, complete, and the same log after every restart and restore."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import SpecError
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim
from privateer_core.wire.identity import SIGNED_HEADER, verify_signature
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.merkle import is_consistent, is_included
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, read_proof, verify_proof
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore
from privateer_server.store.schema import STORE_KIND as DATABASE
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, Api, assert_problem
from tests.support.specs import tables


async def close_round(api: Api, name: str = "test") -> None:
    first = await api.publication(name)
    people = sealed_reports(first, decode_publication(first).round.batch_size)
    answer = await api.client.post("/reports", content=body_of(first, people), auth=Signing())
    assert answer.status_code == 202, answer.text


async def key_of(api: Api) -> bytes:
    return bytes.fromhex((await api.client.get("/log/key")).json()["key"])


async def head_of(api: Api) -> Head:
    return Head.verify((await api.client.get("/log/head")).text, await key_of(api))


async def entries_of(api: Api, **params: int) -> list[tuple[str, int]]:
    page = (await api.client.get("/log/entries", params=params)).json()
    return [(entry["experiment"], entry["version"]) for entry in page["entries"]]


def path_of(answer: httpx.Response) -> list[bytes]:
    return [base64.b64decode(text) for text in answer.json()["hashes"]]


async def test_every_publication_is_signed_and_in_the_log(api: Api) -> None:
    assert (await head_of(api)).size == 0
    await api.create(SMALL)
    await api.client.post("/experiments", json=tables(SMALL | {"experiment.name": "second"}), headers=ADMIN)
    await close_round(api)
    key, head = await key_of(api), await head_of(api)
    assert await entries_of(api) == [("test", 1), ("second", 1), ("test", 2)]
    for name, version in await entries_of(api):
        answer = await api.client.get(f"/experiments/{name}/policy/{version}", headers=MSGPACK)
        assert verify_signature(answer.headers[SIGNED_HEADER], answer.content, {key}) == key
        params = {"experiment": name, "version": version}
        proof = read_proof((await api.client.get("/log/proof", params=params)).content)
        entry = Entry(name, version, digest(answer.content))
        assert verify_proof(proof, entry, key, None) == head
        response = await api.client.get("/log/inclusion", params=params)
        assert is_included(entry.leaf, response.json()["index"], 3, path_of(response), head.root)
    current = await api.client.get("/experiments/test/policy", headers=MSGPACK)
    unchanged = await api.client.get(
        "/experiments/test/policy", headers=MSGPACK | {"if-none-match": current.headers["etag"]}
    )
    assert (unchanged.status_code, unchanged.headers[SIGNED_HEADER]) == (304, current.headers[SIGNED_HEADER])


async def test_heads_are_consistent(api: Api) -> None:
    await api.create(SMALL)
    heads = [await head_of(api)]
    for _ in range(3):
        await close_round(api)
        heads.append(await head_of(api))
    assert [head.size for head in heads] == [1, 2, 3, 4]
    for earlier in heads[:-1]:
        answer = await api.client.get("/log/consistency", params={"first": earlier.size, "second": 4})
        assert is_consistent(earlier.size, earlier.root, 4, heads[-1].root, path_of(answer))
    assert await entries_of(api, start=1, end=3) == [("test", 2), ("test", 3)]


@pytest.mark.parametrize(
    ("page", "params", "status", "slug"),
    [
        ("proof", {"experiment": "test", "version": 9}, 404, "not-found"),
        ("proof", {"experiment": "nobody", "version": 1}, 404, "not-found"),
        ("proof", {"experiment": "test", "version": 1, "block": 1}, 404, "not-found"),
        ("inclusion", {"experiment": "test", "version": 1, "size": 2}, 404, "not-found"),
        ("consistency", {"first": 2, "second": 1}, 404, "not-found"),
        ("consistency", {"first": 1, "second": 2}, 404, "not-found"),
        ("consistency", {"first": 0, "second": 1}, 422, "parameter-invalid"),
        ("proof", {"experiment": "test"}, 422, "parameter-invalid"),
        ("proof", {"experiment": "test", "version": 1, "block": -1}, 422, "parameter-invalid"),
        ("entries", {"start": 1 << 60}, 422, "parameter-invalid"),
    ],
)
async def test_invalid_log_requests_fail(api: Api, page: str, params: dict[str, Any], status: int, slug: str) -> None:
    await api.create(SMALL)
    problem = (await api.client.get(f"/log/{page}", params=params)).json()
    assert (problem["status"], problem["type"].rpartition(":")[2]) == (status, slug)
    assert problem["remedy"]


async def test_the_log_is_public(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        await Api(client).create(SMALL)
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            for page in ("key", "head", "entries", "proof?experiment=test&version=1", "consistency?first=1&second=1"):
                assert (await stranger.get(f"/log/{page}")).status_code == 200
            assert_problem(await stranger.post("/log/head"), 404, "not-found")


async def test_a_restart_goes_on_with_key_and_log(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        before, key = await head_of(Api(client)), await key_of(Api(client))
    assert (settings.data / "identity.key").stat().st_mode & 0o777 == 0o600
    async with serving(create_app(settings)) as client:
        assert (await head_of(Api(client)), await key_of(Api(client))) == (before, key)
        await close_round(Api(client))
        after = await head_of(Api(client))
        path = path_of(await client.get("/log/consistency", params={"first": 1, "second": 2}))
        assert is_consistent(1, before.root, 2, after.root, path)


async def test_the_publication_key_may_be_outside_the_data_folder(settings: ServerSettings, tmp_path: Path) -> None:
    elsewhere = settings.model_copy(update={"publication_key": tmp_path / "secret"})
    async with serving(create_app(elsewhere)):
        assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
        assert not (settings.data / "identity.key").exists()
    (tmp_path / "secret").write_text("no key")
    with pytest.raises(SpecError, match="PRIVATEER_PUBLICATION_KEY"):
        create_app(elsewhere)


async def test_a_deleted_experiment_keeps_its_digests_in_the_log(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        await close_round(Api(client))
        before = await head_of(Api(client))
        assert (await client.delete("/experiments/test", headers=ADMIN)).status_code == 200
        assert await head_of(Api(client)) == before
    async with serving(create_app(settings)) as client:
        assert await entries_of(Api(client)) == [("test", 1), ("test", 2)]


class Disaster:
    """A server whose disk goes after its third publication; there is a backup of the time of the first."""

    def __init__(self, settings: ServerSettings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.before = Head("", 0, b"", "")

    async def happen(self) -> None:
        async with serving(create_app(self.settings)) as client:
            api = Api(client)
            await api.create(SMALL)
            body = (await client.get("/backup", headers=ADMIN)).content
            (self.folder / "copy").mkdir()
            (self.folder / "copy" / "server.db").write_bytes(body)
            await close_round(api)
            await close_round(api)
            self.before = await head_of(api)
        restore(self.folder / "copy" / "server.db", self.folder / "new", DATABASE)

    def restored(self, **paths: Path) -> ServerSettings:
        return self.settings.model_copy(update={"data": self.folder / "new", **paths})


async def test_a_restored_database_goes_on_with_the_log_of_the_journal(settings, tmp_path):
    disaster = Disaster(settings, tmp_path)
    await disaster.happen()
    paths = {"journal": settings.data / "journal.db", "publication_key": settings.data / "identity.key"}
    async with serving(create_app(disaster.restored(**paths))) as client:
        after = await head_of(Api(client))
        assert after.origin == disaster.before.origin
        assert await entries_of(Api(client)) == [("test", 1), ("test", 2), ("test", 3), ("test", 1_000_001)]
        path = path_of(await client.get("/log/consistency", params={"first": 3, "second": 4}))
        assert is_consistent(3, disaster.before.root, 4, after.root, path)


async def test_without_its_journal_the_log_begins_anew_under_another_name(settings, tmp_path):
    """A server without its journal does not know its signed heads, and a new head may contradict no old one."""
    disaster = Disaster(settings, tmp_path)
    await disaster.happen()
    async with serving(create_app(disaster.restored(publication_key=settings.data / "identity.key"))) as client:
        after = await head_of(Api(client))
        assert after.origin != disaster.before.origin
        assert await entries_of(Api(client)) == [("test", 1), ("test", 1_000_001)]


async def test_the_journal_of_another_log_is_refused(settings: ServerSettings, tmp_path: Path) -> None:
    """After a start without it the journal that was kept comes back: two logs would have one name."""
    disaster = Disaster(settings, tmp_path)
    await disaster.happen()
    async with serving(create_app(disaster.restored())) as client:
        await close_round(Api(client))
    with pytest.raises(SpecError, match="not the one in the journal") as caught:
        create_app(disaster.restored(journal=settings.data / "journal.db"))
    assert caught.value.field == "PRIVATEER_JOURNAL"


async def test_a_crash_before_the_journal_entry_is_repaired_at_the_start(settings: ServerSettings) -> None:
    """The database has published, no head was signed: the next start goes on."""
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        first = await head_of(Api(client))
        await close_round(Api(client))  # nobody asks for a head
    async with serving(create_app(settings)) as client:
        after = await head_of(Api(client))
        assert (after.origin, after.size) == (first.origin, 2)


async def test_the_record_says_which_shuffler_closed_a_round(api, shuffler_key, settings):
    await api.create(SHUFFLED | {"experiment.shuffler": "one"})
    first = await api.publication()
    body = body_of(first, sealed_reports(first, 100))
    answer = await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)})
    assert answer.status_code == 202
    rows = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
    named = [(row["version"], row["shuffler"], row["organisation"]) for row in rows]
    assert named == [(1, signing_key_id(shuffler_key.public_key()), "one"), (2, None, None)]
    assert settings.shuffler_keys


async def test_an_experiment_accepts_one_shuffler_organisation(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    await api.create(SHUFFLED | {"experiment.shuffler": "another"})
    claim = {SIGNATURE_HEADER: sign_claim("test", shuffler_key)}
    problem = assert_problem(await api.client.post("/experiments/test/shuffler", headers=claim), 409, "conflict")
    assert (problem["field"], "another" in problem["detail"]) == ("experiment.shuffler", True)
    first = await api.publication()
    body = body_of(first, sealed_reports(first, 100))
    signed = {SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)}
    assert_problem(await api.client.post("/batches", content=body, headers=signed), 403, "batch-refused")


async def test_an_organisation_needs_shuffled_reports(api: Api) -> None:
    answer = await api.create(SMALL | {"experiment.shuffler": "one"})
    assert assert_problem(answer, 422, "spec-invalid")["field"] == "experiment.shuffler"
