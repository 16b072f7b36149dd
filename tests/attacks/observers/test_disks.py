"""Somebody reads the disk of a server, a curator or a process that serves many people."""

import asyncio
import sqlite3
from contextlib import closing
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client import Client
from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode, encode
from privateer_core.errors import Malformed, SpecError
from privateer_core.serving.store.database import Schema
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_core.wire.publication import decode_publication, hpke_info
from privateer_server.app import create_app
from privateer_server.intake.decryption import Decryptor
from privateer_server.rounds.open_round import read_policy
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.crashes import earlier_states, files
from tests.support.experiments import CONTEXT, Device, Server
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.sealing import body_of, header_for, plain_reports, seal
from tests.support.servers import ADMIN, TOKEN, Api, assert_problem
from tests.support.specs import make_spec, sparse_tables

# Somebody reads the disk of a curator: what do the files tell of single people, while a round is open and after it?
#
# Under ``central`` the sums of an open round are raw. One report at a time, two successive sums differ by one person's
# arm and reward.


PEOPLE = 19
CURATED = {
    "central": {"privacy.model": "central", "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
}
ROUND = {"experiment.round_size": PEOPLE + 1, "experiment.horizon": 1000}


def plain_messages(publication: bytes) -> list[bytes]:
    return [bytes([number]) * 16 + row for number, row in enumerate(plain_reports(publication, PEOPLE + 1))]


def mechanism_of(publication: bytes) -> Any:
    published = decode_publication(publication)
    return read_policy(parse_spec(msgspec.json.decode(published.spec)), published).terms.mechanism


def decode_sums(states: list[bytes], kind: type[Any]) -> list[Any]:
    """Return the states that decode to sums."""
    sums = []
    for state in states:
        try:
            sums.append(decode(state, kind))
        except Malformed:
            continue
    return sums


def difference(later: Any, earlier: Any) -> Any:
    return type(later)(**{name: value - getattr(earlier, name) for name, value in vars(later).items()})


def count_recovered_reports(states: list[bytes], publication: bytes) -> int:
    """Return the number of participants whose report is the difference of two successive sums."""
    mechanism = mechanism_of(publication)
    totals = sorted(decode_sums(states, type(mechanism.empty())), key=lambda total: int(total.reports))
    single_report_sums = {
        encode(mechanism.add(mechanism.empty(), mechanism.parse(message[-mechanism.report_size :])))
        for message in plain_messages(publication)
    }
    differences = [encode(difference(later, earlier)) for earlier, later in pairwise(totals)]
    return sum(each in single_report_sums for each in differences)


def make_decryptors(stolen: dict[str, bytes]) -> list[Decryptor]:
    """Return a decryptor for each file that has the size of a private key."""
    return [Decryptor(X25519PrivateKey.from_private_bytes(raw)) for raw in stolen.values() if len(raw) == 32]


def decrypt_reports(stolen: dict[str, bytes], sealed: list[bytes], info: bytes) -> list[bytes]:
    """Decrypt sealed reports with each key among the files; a message is empty where a key does not decrypt it."""
    return [message for opener in make_decryptors(stolen) for message in opener.decrypt(sealed, info)]


def decrypt_sums(states: list[bytes], digests: list[bytes], stolen: dict[str, bytes]) -> list[bytes]:
    """Return the sums that keys among the files decrypt."""
    tries = [
        key.decrypt_sums(state, digest) for key, state, digest in product(make_decryptors(stolen), states, digests)
    ]
    return [total for total in tries if total is not None]


@pytest.mark.parametrize("trust", CURATED)
async def test_sums_found_in_the_log_reveal_no_report(settings: ServerSettings, tmp_path: Path, trust: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED[trust]})
        publication = await Api(client).publication()
        sealed = [seal(publication, message) for message in plain_messages(publication)]
        states: list[bytes] = []
        for message in sealed[:PEOPLE]:
            assert (await client.post("/reports", content=body_of(publication, [message]))).status_code == 202
            states += earlier_states(files(settings.data), scratch)
        assert count_recovered_reports(list(dict.fromkeys(states)), publication) == 0


async def test_the_files_left_after_the_round_decrypt_no_report(settings: ServerSettings, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        publication = await Api(client).publication()
        sealed = [seal(publication, message) for message in plain_messages(publication)]
        info = hpke_info(header_for(publication), "central")
        states: list[bytes] = []
        for message in sealed[:PEOPLE]:
            await client.post("/reports", content=body_of(publication, [message]))
            states += earlier_states(files(settings.data), scratch)
        during = files(settings.data)
        assert sum(map(bool, decrypt_reports(during, sealed, info))) == len(sealed)  # the attack works
        await client.post("/reports", content=body_of(publication, sealed[PEOPLE:]))
        assert (await Api(client).facts())["version"] == 2
        after = files(settings.data)
        states += earlier_states(after, scratch)
        digests = [header_for(publication).digest, header_for(await Api(client).publication()).digest]
        assert not any(decrypt_reports(after, sealed, info))
        assert count_recovered_reports([*states, *decrypt_sums(states, digests, after)], publication) == 0
        assert not after["server.db-wal"]


async def test_plain_bytes_of_the_folder_hold_no_sums(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        publication = await Api(client).publication()
        mechanism = mechanism_of(publication)
        total = mechanism.empty()
        for person in plain_messages(publication):
            sums = encode(total.cells)
            assert sums in encode(total)
            assert not [name for name, body in files(settings.data).items() if sums in body and total.reports]
            total = mechanism.add(total, mechanism.parse(person[-mechanism.report_size :]))
            await client.post("/reports", content=body_of(publication, [seal(publication, person)]))
        last = encode(total.cells)
        assert not [name for name, body in files(settings.data).items() if last in body]


async def test_only_its_owner_may_read_the_folder(settings: ServerSettings) -> None:
    settings.data.mkdir(mode=0o755)
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        paths = [settings.data, *settings.data.rglob("*")]
        modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    assert len(modes) >= 4
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def test_an_admin_token_is_not_stored(settings: ServerSettings) -> None:
    assert TOKEN not in repr(settings)
    assert TOKEN not in map(str, vars(settings).values())


# Records of a curator are sealed, and nowhere on disk: in the database, its log, the journal and backups; and erased.
#
# What is held of an open round is sums, encrypted with the round's key, and ids, which keep a replay from counting.


PEOPLE_OF_RECORDS = 300
"""So many fill a round."""


def spec() -> dict[str, object]:
    tables = sparse_tables(experiment__round_size=PEOPLE_OF_RECORDS, context__features=8, algorithm__sparsity=1)
    return {name: table for name, table in tables.items() if name != "population"}


async def test_records_are_on_no_disk_and_gone_with_the_release(settings: ServerSettings, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        assert (await client.post("/experiments", json=spec(), headers=ADMIN)).status_code == 201
        publication = await Api(client).publication()
        records = plain_reports(publication, PEOPLE_OF_RECORDS)
        sealed = [seal(publication, number.to_bytes(16) + record) for number, record in enumerate(records)]
        assert (await client.post("/reports", content=body_of(publication, sealed[:-1]))).status_code == 202
        during, copy = files(settings.data), (await client.get("/backup", headers=ADMIN)).content
        states = earlier_states(during, scratch)
        assert_problem(
            await client.post("/reports", content=body_of(publication, [sealed[0]])), 409, "duplicate-report"
        )
        assert (await client.post("/reports", content=body_of(publication, sealed[-1:]))).status_code == 202
        assert (await Api(client).facts())["version"] == 2
        after = files(settings.data)
        assert_problem(await client.post("/reports", content=body_of(publication, [sealed[0]])), 409, "round-closed")
        later = (await client.get("/backup", headers=ADMIN)).content
    all_contents = [*during.values(), *after.values(), copy, later]
    assert not any(record in content for record in records for content in all_contents)
    info, digests = hpke_info(header_for(publication), "central"), [header_for(publication).digest]
    assert sum(map(bool, decrypt_reports(during, sealed, info))) == PEOPLE_OF_RECORDS, "the attack works"
    assert decrypt_sums(states, digests, during), "and sums are there as long as the round is open"
    assert not any(decrypt_reports(after, sealed, info))
    assert not decrypt_sums([*states, *earlier_states(after, scratch)], digests, after)
    assert not after["server.db-wal"]


async def test_a_backup_has_neither_sums_nor_ids_of_an_open_round(settings: ServerSettings, tmp_path: Path) -> None:
    async with serving(create_app(settings)) as client:
        await client.post("/experiments", json=spec(), headers=ADMIN)
        publication = await Api(client).publication()
        sealed = [seal(publication, bytes([9]) * 16 + plain_report) for plain_report in plain_reports(publication, 1)]
        await client.post("/reports", content=body_of(publication, sealed))
        during = files(settings.data)
        copy = (await client.get("/backup", headers=ADMIN)).content
    (scratch := tmp_path / "scratch").mkdir()
    assert bytes([9]) * 16 not in copy
    assert [state for state in earlier_states({"server.db": copy}, scratch) if state] == []
    digests = [header_for(publication).digest]
    assert decrypt_sums(earlier_states(during, scratch), digests, during), "it is not as nothing had been held"


# Somebody who has the files, and the key, of a process that serves many people; and one whose visitor goes away.


def bodies(device: Device) -> list[bytes]:
    """What the ledger keeps of all choices and arms, encrypted."""
    with closing(sqlite3.connect(device.folder / "ledger.db")) as database:
        return [body for table in ("choices", "arms") for (body,) in database.execute(f"SELECT body FROM {table}")]


def choosing(client: Client, *keys: str) -> None:
    for key in keys:
        client.person(key).join("test").choose(CONTEXT)


def test_the_files_hold_nothing_of_a_forgotten_person(tmp_path: Path) -> None:
    """The log of writes has what was overwritten in the file, and the key that decrypts it is beside it."""
    device = Device(tmp_path, Server(published(make_spec())))
    client = device.start()
    choosing(client, "a")
    (choice, arm) = bodies(device)
    assert choice[-60:] in device.files()  # the test can see
    client.person("a").forget()
    assert not any(body[-60:] in device.files() for body in (choice, arm))
    choosing(client, "b", "c")
    client.person("b").forget()
    assert len(bodies(device)) == 2
    assert all(body[-60:] in device.files() for body in bodies(device))


class StuckTransport(httpx.AsyncBaseTransport):
    """A server that never answers the first request."""

    def __init__(self, server: Server) -> None:
        self._notarized, self.request_started = Notary().transport(server), asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.request_started.is_set():
            self.request_started.set()
            await asyncio.sleep(3600)
        return await self._notarized.handle_async_request(request)


async def test_a_cancelled_join_blocks_no_other_participant(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    stuck = StuckTransport(device.server)
    async with device.start_async(transport=stuck) as client:
        join = asyncio.ensure_future(client.person("a").join("test"))
        await stuck.request_started.wait()
        join.cancel()
        (error,) = await asyncio.gather(join, return_exceptions=True)
        assert isinstance(error, asyncio.CancelledError)
        session = await asyncio.wait_for(client.person("b").join("test"), 3.0)
        assert await session.choose(CONTEXT)


# An address of a database may have a password in it, which no message repeats.


@pytest.mark.parametrize("password", ["hunter2%zz", "hunt er2", "hunter2@@"])
def test_an_error_does_not_repeat_an_invalid_address(password: str) -> None:
    with pytest.raises(SpecError) as refused:
        PostgresDatabase(f"postgresql://u:{password}@127.0.0.1:1/x", Schema("x", 1, ()), "PRIVATEER_DATABASE")
    assert "PRIVATEER_DATABASE" in str(refused.value)
    assert "hunt" not in str(refused.value)
    assert "er2" not in str(refused.value)
