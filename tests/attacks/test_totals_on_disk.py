"""Somebody reads the disk of a curator: what do the files tell of single people, while a round is open and after it?

Under ``central`` the sums of an open round are raw. One report at a time, two successive sums differ by one person's
arm and reward.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode, encode
from privateer_core.errors import Malformed
from privateer_core.wire.envelope import binding
from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.intake.opening import Opener
from privateer_server.rounds.open_round import read_policy
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.disks import earlier_states, files
from tests.support.sealing import body_of, header_for, plain_reports, seal
from tests.support.servers import TOKEN, Api

PEOPLE = 19
CURATED = {
    "central": {"privacy.model": "central", "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
}
ROUND = {"experiment.round_size": PEOPLE + 1, "experiment.horizon": 1000}


def people(publication: bytes) -> list[bytes]:
    return [bytes([number]) * 16 + row for number, row in enumerate(plain_reports(publication, PEOPLE + 1))]


def mechanism_of(publication: bytes) -> Any:
    published = decode_publication(publication)
    return read_policy(parse_spec(msgspec.json.decode(published.spec)), published).terms.mechanism


def decoded(states: list[bytes], kind: type[Any]) -> list[Any]:
    """The sums among what was found."""
    found = []
    for state in states:
        try:
            found.append(decode(state, kind))
        except Malformed:
            continue
    return found


def difference(later: Any, earlier: Any) -> Any:
    return type(later)(**{name: value - getattr(earlier, name) for name, value in vars(later).items()})


def recovered(states: list[bytes], publication: bytes) -> int:
    """People whose own report is the difference of two successive sums."""
    mechanism = mechanism_of(publication)
    found = sorted(decoded(states, type(mechanism.empty())), key=lambda total: int(total.reports))
    alone = {
        encode(mechanism.add(mechanism.empty(), mechanism.parse(one[-mechanism.report_size :])))
        for one in people(publication)
    }
    told = [encode(difference(later, earlier)) for earlier, later in pairwise(found)]
    return sum(one in alone for one in told)


def openers(taken: dict[str, bytes]) -> list[Opener]:
    """Every file that may be a private key, used as one."""
    return [Opener(X25519PrivateKey.from_private_bytes(raw)) for raw in taken.values() if len(raw) == 32]


def opened(taken: dict[str, bytes], sealed: list[bytes], info: bytes) -> list[bytes]:
    """What the keys among the files make of sealed reports; empty where one does not open."""
    return [one for opener in openers(taken) for one in opener.open(sealed, info)]


def revealed(states: list[bytes], digests: list[bytes], taken: dict[str, bytes]) -> list[bytes]:
    """What the keys among the files make of sums."""
    tries = [opener.reveal(state, digest) for opener in openers(taken) for state in states for digest in digests]
    return [total for total in tries if total is not None]


@pytest.mark.parametrize("trust", CURATED)
async def test_sums_found_in_the_log_tell_nobodys_report(settings: ServerSettings, tmp_path: Path, trust: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED[trust]})
        publication = await Api(client).publication()
        sealed = [seal(publication, one) for one in people(publication)]
        states: list[bytes] = []
        for one in sealed[:PEOPLE]:
            assert (await client.post("/reports", content=body_of(publication, [one]))).status_code == 202
            states += earlier_states(files(settings.data), scratch)
        assert recovered(list(dict.fromkeys(states)), publication) == 0


async def test_whoever_kept_everything_and_takes_the_server_after_the_round_opens_nothing(
    settings: ServerSettings, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        publication = await Api(client).publication()
        sealed = [seal(publication, one) for one in people(publication)]
        info = binding(header_for(publication), "central")
        states: list[bytes] = []
        for one in sealed[:PEOPLE]:
            await client.post("/reports", content=body_of(publication, [one]))
            states += earlier_states(files(settings.data), scratch)
        during = files(settings.data)
        assert sum(map(bool, opened(during, sealed, info))) == len(sealed)  # the attack works
        await client.post("/reports", content=body_of(publication, sealed[PEOPLE:]))
        assert (await Api(client).facts())["version"] == 2
        after = files(settings.data)
        states += earlier_states(after, scratch)
        digests = [header_for(publication).digest, header_for(await Api(client).publication()).digest]
        assert not any(opened(after, sealed, info))
        assert recovered([*states, *revealed(states, digests, after)], publication) == 0
        assert not after["server.db-wal"]


async def test_plain_bytes_of_the_folder_hold_no_sums(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        publication = await Api(client).publication()
        mechanism = mechanism_of(publication)
        total = mechanism.empty()
        for one in people(publication):
            sums = encode(total.cells)
            assert sums in encode(total)
            assert not [name for name, body in files(settings.data).items() if sums in body and total.reports]
            total = mechanism.add(total, mechanism.parse(one[-mechanism.report_size :]))
            await client.post("/reports", content=body_of(publication, [seal(publication, one)]))
        last = encode(total.cells)
        assert not [name for name, body in files(settings.data).items() if last in body]


async def test_the_folder_is_its_owners_alone(settings: ServerSettings) -> None:
    settings.data.mkdir(mode=0o755)
    async with serving(create_app(settings)) as client:
        await Api(client).create({**ROUND, **CURATED["central"]})
        paths = [settings.data, *settings.data.rglob("*")]
        modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    assert len(modes) >= 4
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def test_an_admin_token_is_not_kept(settings: ServerSettings) -> None:
    assert TOKEN not in repr(settings)
    assert TOKEN not in map(str, vars(settings).values())
