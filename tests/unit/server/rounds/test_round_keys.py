"""Keys of rounds, and deadlines over a restart."""

import asyncio
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_server.intake.decryption import Decryptor, RoundKeys
from privateer_server.store.round_keys import KeyFolder
from tests.support.clocks import Hands
from tests.support.phased import tables
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.servers import ADMIN, Api
from tests.unit.server.rounds.conftest import Serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_key_is_found_again_by_another_process(folder: Path) -> None:
    public = RoundKeys(KeyFolder(folder)).create_key()
    key = RoundKeys(KeyFolder(folder)).find_decryptor(public)
    assert key.public_key == public
    (path,) = folder.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == (f"{public.hex()}.key", 0o600)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_every_round_has_its_own_key(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    assert len({keys.create_key() for _ in range(5)}) == 5


@pytest.mark.parametrize("raw", [b"", b"short", bytes(32), bytes(33)])
def test_a_damaged_key_is_as_good_as_lost(folder: Path, raw: bytes) -> None:
    public = RoundKeys(KeyFolder(folder)).create_key()
    (folder / f"{public.hex()}.key").write_bytes(raw)
    assert RoundKeys(KeyFolder(folder)).find_decryptor(public) is None


def test_a_key_that_cannot_be_deleted_is_not_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    keys = RoundKeys(KeyFolder(folder))
    public = keys.create_key()
    monkeypatch.setattr(KeyFolder, "erase", fail)
    keys.destroy(public)
    assert (folder / f"{public.hex()}.key").exists()
    assert keys.find_decryptor(public) is None


def test_a_destroyed_key_is_overwritten_before_its_name_goes(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    public = keys.create_key()
    path = folder / f"{public.hex()}.key"
    private = path.read_bytes()
    (folder.parent / "link").hardlink_to(path)
    keys.destroy(public)
    assert (keys.find_decryptor(public), list(folder.iterdir())) == (None, [])
    assert (folder.parent / "link").read_bytes() not in (private, b"")
    keys.destroy(public)  # again is the same


def test_a_key_that_cannot_be_deleted_is_destroyed_later(folder, monkeypatch, caplog):
    keys = RoundKeys(KeyFolder(folder))
    public = keys.create_key()

    def fail_to_unlink(_: int) -> None:
        raise OSError("secret detail")

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(os, "fsync", fail_to_unlink)
        keys.destroy(public)
    assert keys.find_decryptor(public) is not None or list(folder.iterdir())
    assert "not destroyed yet" in caplog.text
    assert "secret" not in caplog.text
    keys.retry_erasures()
    assert list(folder.iterdir()) == []


def test_only_the_keys_of_open_rounds_are_kept(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    open_key, *_ = [keys.create_key() for _ in range(3)]
    (folder / f"{os.urandom(32).hex()}.key").write_bytes(b"half")
    (folder / "notes.txt").write_bytes(b"of the operator")
    (folder / "lost+found").mkdir()
    keys.erase_all_except([open_key, os.urandom(32)])
    assert {path.name for path in folder.iterdir()} == {f"{open_key.hex()}.key", "notes.txt", "lost+found"}


def test_encrypted_sums_need_their_key_and_round(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    first, second = keys.find_decryptor(keys.create_key()), keys.find_decryptor(keys.create_key())
    protected = [first.encrypt_sums(b"sums", b"digest") for _ in range(2)]
    assert protected[0] != protected[1]
    assert [first.decrypt_sums(text, b"digest") for text in protected] == [b"sums"] * 2
    assert b"sums" not in protected[0]
    spoilt = protected[0][:-1] + bytes([protected[0][-1] ^ 1])
    tries = [
        second.decrypt_sums(protected[0], b"digest"),
        first.decrypt_sums(protected[0], b"other"),
        first.decrypt_sums(spoilt, b"digest"),
    ]
    assert [*tries, first.decrypt_sums(b"", b"digest"), first.decrypt_sums(b"short", b"digest")] == [None] * 5


def test_a_decryptor_does_not_print_its_key() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    assert private.private_bytes_raw().hex() not in repr(vars(Decryptor(private)))


SHORT = {
    "experiment.horizon": 600,
    "algorithm.alpha": 0.2,
    "algorithm.participants_factor": 20,
    "recruitment.timeout_seconds": 60,
    "recruitment.extensions": 0,
    "recruitment.min_response_rate": 0.5,
    "privacy.min_batch": 12,
}


async def open_phase(api: Api) -> bytes:
    await api.client.post("/experiments", json=tables(SHORT, "shuffle"), headers=ADMIN)
    return await api.publication()


async def wait_for_checks(api: Api) -> dict[str, Any]:
    """The experiment's facts after some looks at its deadline."""
    await asyncio.sleep(0.2)
    return await api.facts()


async def test_a_batch_that_could_not_be_delivered_still_counts(serve, clock, shuffler_key):
    async with serve() as api:
        publication = await open_phase(api)
    min_reports = decode_publication(publication).round.least
    body = body_of(publication, permuted(publication, sealed_reports(publication, min_reports), random.Random(0)))
    clock.time += 1000
    async with serve() as api:
        assert (await wait_for_checks(api))["version"] == 1
        headers = {SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)}
        answer = await api.client.post("/batches", content=body, headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (202, min_reports)
        assert (await wait_for_checks(api))["status"] == "open"


@pytest.mark.usefixtures("shuffler_key")
async def test_a_round_without_a_delivery_is_given_up(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await open_phase(api)
    clock.time += 1000
    async with serve() as api:
        assert (await wait_for_checks(api))["status"] == "open"
        clock.time += 60
        async with asyncio.timeout(20):
            while (await api.facts())["status"] != "failed":
                await asyncio.sleep(0.01)
