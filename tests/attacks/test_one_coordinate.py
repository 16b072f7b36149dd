"""A dishonest device spends all its shuffled bits on one coordinate, to move that sum by more than anybody else can."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from privateer_core.mechanisms.vectors.vector_bits import BIT, BitVectors
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.clipping import VectorTotal
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.wire.publication import Round, decode_publication
from privateer_server.intake.accumulator import Accumulator
from tests.support.phased import tables
from tests.support.sealing import seal
from tests.support.server_and_shuffler import pair
from tests.support.servers import ADMIN

FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.clients": 20, "privacy.min_batch": 12}


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[VectorTotal]:
    """The totals of all rounds, as they are when they are released."""
    seen: list[VectorTotal] = []
    before = BitVectors.release

    def release(self: BitVectors, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        seen.append(total)
        return before(self, total, noise)

    monkeypatch.setattr(BitVectors, "release", release)
    return seen


def sent(publication: bytes, coordinates: Callable[[Round], np.ndarray], bit: int) -> bytes:
    """What one person sends: messages that name these coordinates, with one bit."""
    facts = decode_publication(publication).round
    messages = np.empty(facts.messages, BIT)
    messages["coordinate"], messages["bit"] = coordinates(facts), bit
    return b"".join(seal(publication, os.urandom(16) + one.tobytes()) for one in messages)


def everyones(facts: Round) -> np.ndarray:
    return np.repeat(np.arange(facts.groups), facts.messages_of_kind)


def first(facts: Round) -> np.ndarray:
    return np.zeros(facts.messages, int)


def backwards(facts: Round) -> np.ndarray:
    return everyones(facts)[::-1]


async def sums_of(folder: Path, attack: Callable[[Round], np.ndarray]) -> tuple[Round, dict[str, int]]:
    """A round of people whose bits are all 0, but for one; its facts, and who was refused."""
    async with pair(folder) as services:
        answer = await services.api.client.post("/experiments", json=tables(FEW, "shuffle"), headers=ADMIN)
        assert answer.status_code == 201
        publication = await services.api.publication()
        facts = decode_publication(publication).round
        honest = [sent(publication, everyones, 0) for _ in range(facts.batch - 1)]
        people = [*honest[:5], sent(publication, attack, 1), *honest[5:]]
        assert await services.uploads(publication, people) == facts.batch
        told = await services.version(2)
        refused = told["refused"]
        assert isinstance(refused, dict)
        return facts, refused


@pytest.mark.parametrize("attack", [first, backwards])
async def test_it_moves_a_sum_by_its_own_share_at_most(
    tmp_path: Path, released: list[VectorTotal], attack: Callable[[Round], np.ndarray]
) -> None:
    facts, refused = await sums_of(tmp_path, attack)
    assert facts.groups > 1
    (total,) = released
    own = np.where(attack(facts) == everyones(facts), 1, 0).reshape(facts.groups, -1).sum(axis=1)
    np.testing.assert_array_equal(total.sums, own)
    assert total.sums.max() <= facts.messages_of_kind
    assert refused == {"out-of-range": 1}


async def test_who_keeps_to_the_share_moves_each_sum_by_it(tmp_path: Path, released: list[VectorTotal]) -> None:
    """As far as anybody gets: every bit that one may send is 1."""
    facts, refused = await sums_of(tmp_path, everyones)
    assert refused == {}
    np.testing.assert_array_equal(released[0].sums, np.full(facts.groups, facts.messages_of_kind))


async def test_the_attack_works_where_kinds_are_not_kept_apart(
    tmp_path: Path, released: list[VectorTotal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: a server that believes the coordinate that a message names."""
    monkeypatch.setattr(Accumulator, "_placed", lambda _, opened: [one for one in opened if one])
    facts, _ = await sums_of(tmp_path, first)
    assert released[0].sums[0] == facts.messages == facts.groups * facts.messages_of_kind
