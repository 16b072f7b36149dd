"""Devices that cheat and strangers that send junk: the experiment does not pay for it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.algorithms import algorithm
from privateer_core.mechanisms.mechanism import VectorTotal
from privateer_core.mechanisms.vectors.vector_bits import BIT, BitVectors
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.sampling.randomness import NoiseSource
from privateer_core.spec.sections import parse_section
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, decode_batch
from privateer_core.wire.publication import Round, decode_publication, encode_envelope
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.app import create_app
from privateer_server.intake.accumulator import Accumulator
from privateer_server.rounds.open_round import open_first_round, open_following_round
from privateer_server.rounds.states import RoundState
from privateer_server.settings import ServerSettings
from privateer_shuffler.delivery import Forwarding
from tests.support.answers import fact
from tests.support.asgi import serving
from tests.support.phased import tables
from tests.support.publications import KEY
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.server_and_shuffler import Losing, Pair, pair
from tests.support.servers import ADMIN, PHASED, SHUFFLED, TOKEN, Api, assert_problem

# Somebody without a name sends random bytes of the right size: the experiment must not pay for it.


SHORT = {**SHUFFLED, "experiment.horizon": 300}


def facts_of(publication: bytes) -> Round:
    return decode_publication(publication).round


def junk(round_: Round, people: int) -> list[bytes]:
    return [os.urandom(round_.report_size) for _ in range(people)]


async def flood(services: Pair, publication: bytes, batches: int) -> None:
    """Fill whole batches with random bytes."""
    round_ = facts_of(publication)
    for _ in range(batches):
        await services.uploads(publication, junk(round_, round_.batch_size))


async def wait_for_refusals(services: Pair, refused: int) -> dict[str, Any]:
    """Wait until the experiment counts this number of reports that cannot be decrypted, and return its facts."""
    async with asyncio.timeout(20):
        while (facts := await services.api.facts())["refused"].get("decryption-failed", 0) < refused:
            await asyncio.sleep(0.005)
    return facts


async def wait_for_forwarded(answers: list[bool], batches: int) -> None:
    """Wait until the shuffler has forwarded this number of batches; the server may learn from a batch before that."""
    async with asyncio.timeout(20):
        while len(answers) < batches:
            await asyncio.sleep(0.005)


async def test_random_bytes_do_not_use_up_an_experiment(tmp_path: Path) -> None:
    """600 of them against an experiment for 300 people: all 300 are learned from afterwards."""
    async with pair(tmp_path) as services:
        await services.api.create(SHORT)
        first_coordinates_only = await services.api.publication()
        await flood(services, first_coordinates_only, 6)
        facts = await wait_for_refusals(services, 600)
        assert (facts["version"], facts["status"], facts["accepted"]) == (1, "open", 0)
        for version in (1, 2, 3):
            publication = await services.api.publication()
            assert await services.uploads(publication, sealed_reports(publication, 100, seed=version)) == 100
            await services.version(version + 1)
        facts = await services.api.facts()
        assert (facts["status"], facts["accepted"]) == ("finished", 300)
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["people"]) == (3, 300)


async def test_reports_beside_junk_are_not_thrown_away(tmp_path: Path) -> None:
    """30 of a batch's 100 are junk: it waits for another batch, and both are learned from together."""
    async with pair(tmp_path) as services:
        await services.api.create(SHUFFLED)
        publication = await services.api.publication()
        people = sealed_reports(publication, 170)
        await services.uploads(publication, junk(facts_of(publication), 30))
        assert await services.uploads(publication, people) == 170
        facts = await services.version(2)
        assert (facts["accepted"], facts["refused"]) == (170, {"decryption-failed": 30})
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["people"]) == (1, 170)


async def create_phased(services: Pair, people: int) -> bytes:
    body = tables({**PHASED, "experiment.participants": people}, "shuffle")
    assert (await services.api.client.post("/experiments", json=body, headers=ADMIN)).status_code == 201
    return await services.api.publication()


async def draw(services: Pair) -> dict[str, Any]:
    return dict((await services.api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"])


async def test_random_bytes_do_not_fail_a_phased_experiment(tmp_path: Path) -> None:
    """A phase that they filled asks other people, and is learned from."""
    async with pair(tmp_path) as services:
        first_coordinates_only = await create_phased(services, 1000)
        before = await draw(services)
        await flood(services, first_coordinates_only, 1)
        facts = await services.version(2)
        assert (facts["status"], facts["batch_size"]) == ("open", facts_of(first_coordinates_only).batch_size)
        after = await draw(services)
        assert after == {**before, "start": before["places"]}  # the next people of the same order
        second = await services.api.publication()
        assert (
            await services.uploads(second, sealed_reports(second, facts_of(second).batch_size))
            == facts_of(second).batch_size
        )
        await services.version(3)
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["stage"], fact(state, "people asked")) == (1, "learning", 2 * before["places"])
        rows = (await services.api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert [row["released"] for row in rows[:2]] == [False, True]


async def test_a_phased_experiment_fails_when_nobody_is_left_to_ask(tmp_path: Path) -> None:
    async with pair(tmp_path) as services:
        publication = await create_phased(services, 200)
        version, n_invited = 1, 0
        while (round_ := facts_of(publication)).batch_size:
            n_invited += (await draw(services))["places"]
            await flood(services, publication, 1)
            version += 1
            await services.version(version)
            publication = await services.api.publication()
        facts = await services.api.facts()
        assert (facts["status"], facts["accepted"]) == ("failed", 0)
        assert n_invited <= 200 < n_invited + facts_of(await first_publication(services)).batch_size
        del round_


async def first_publication(services: Pair) -> bytes:
    accept = {"accept": "application/msgpack"}
    return (await services.api.client.get("/experiments/test/policy/1", headers=accept)).content


@pytest.mark.parametrize("restart", [False, True])
async def test_a_batch_whose_answer_was_lost_counts_once(tmp_path, restart, monkeypatch):
    """The server has it, the shuffler does not know: the same bytes again, and the same answer, even after restarts."""
    monkeypatch.setattr("privateer_shuffler.delivery._FIRST_PAUSE_SECONDS", 0.01)
    answers: list[bool] = []
    run = Forwarding.deliver_when_complete

    async def run_and_note(self: Forwarding, *pool: Any) -> bool:
        answers.append(await run(self, *pool))
        return answers[-1]

    monkeypatch.setattr(Forwarding, "deliver_when_complete", run_and_note)
    way = Losing(10_000 if restart else 3)
    async with pair(tmp_path, way) as services:
        await services.api.create(SHUFFLED)
        publication = await services.api.publication()
        people = sealed_reports(publication, 160)
        await services.uploads(publication, junk(facts_of(publication), 40) + people[:60])
        await wait_for_refusals(services, 40)
        if not restart:
            assert await services.uploads(publication, people[60:]) == 100
            facts = await services.version(2)
            await wait_for_forwarded(answers, 2)
    if restart:
        assert way.batches
        way.n_lost = 0
        async with pair(tmp_path, way) as services:
            assert await services.uploads(publication, people[60:]) == 100
            facts = await services.version(2)
            await wait_for_forwarded(answers, 2)
    assert (facts["accepted"], facts["refused"]) == (160, {"decryption-failed": 40})
    assert answers == [False, True]
    assert len(set(way.batches)) == 2


# A dishonest device spends all its shuffled bits on one coordinate, to move that sum by more than anybody else can.


FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "privacy.min_batch": 12}


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[VectorTotal]:
    """The totals of all rounds, as they are when they are released."""
    totals: list[VectorTotal] = []
    build_release = BitVectors.release

    def release(self: BitVectors, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        totals.append(total)
        return build_release(self, total, noise)

    monkeypatch.setattr(BitVectors, "release", release)
    return totals


def seal_messages(publication: bytes, coordinates: Callable[[Round], np.ndarray], bit: int) -> bytes:
    """Return a participant's sealed messages for these coordinates, all with the same bit."""
    facts = decode_publication(publication).round
    messages = np.empty(facts.messages, BIT)
    messages["coordinate"], messages["bit"] = coordinates(facts), bit
    return b"".join(seal(publication, os.urandom(16) + message.tobytes()) for message in messages)


def assigned_coordinates(facts: Round) -> np.ndarray:
    return np.repeat(np.arange(facts.groups), facts.messages_of_kind)


def first_coordinates_only(facts: Round) -> np.ndarray:
    return np.zeros(facts.messages, int)


def backwards(facts: Round) -> np.ndarray:
    return assigned_coordinates(facts)[::-1]


async def run_attacked_round(folder: Path, attack: Callable[[Round], np.ndarray]) -> tuple[Round, dict[str, int]]:
    """Run a round in which all bits but the attacker's are 0; return its facts and the refusals by reason."""
    async with pair(folder) as services:
        answer = await services.api.client.post("/experiments", json=tables(FEW, "shuffle"), headers=ADMIN)
        assert answer.status_code == 201
        publication = await services.api.publication()
        facts = decode_publication(publication).round
        honest = [seal_messages(publication, assigned_coordinates, 0) for _ in range(facts.batch_size - 1)]
        people = [*honest[:5], seal_messages(publication, attack, 1), *honest[5:]]
        assert await services.uploads(publication, people) == facts.batch_size
        next_facts = await services.version(2)
        refused = next_facts["refused"]
        assert isinstance(refused, dict)
        return facts, refused


@pytest.mark.parametrize("attack", [first_coordinates_only, backwards])
async def test_a_forged_report_moves_a_sum_by_its_share_at_most(tmp_path, totals, attack):
    facts, refused = await run_attacked_round(tmp_path, attack)
    assert facts.groups > 1
    (total,) = totals
    expected_sums = np.where(attack(facts) == assigned_coordinates(facts), 1, 0).reshape(facts.groups, -1).sum(axis=1)
    np.testing.assert_array_equal(total.sums, expected_sums)
    assert total.sums.max() <= facts.messages_of_kind
    assert refused == {"out-of-range": 1}


async def test_a_report_of_ones_moves_each_sum_by_its_share(tmp_path: Path, totals: list[VectorTotal]) -> None:
    """The largest report that a forger can send has every bit 1."""
    facts, refused = await run_attacked_round(tmp_path, assigned_coordinates)
    assert refused == {}
    np.testing.assert_array_equal(totals[0].sums, np.full(facts.groups, facts.messages_of_kind))


async def test_the_attack_works_where_kinds_are_not_kept_apart(tmp_path, totals, monkeypatch):
    """The planted defect: a server that believes the coordinate that a message names."""
    monkeypatch.setattr(Accumulator, "_select_expected_kind", lambda _, opened: [each for each in opened if each])
    facts, _ = await run_attacked_round(tmp_path, first_coordinates_only)
    assert totals[0].sums[0] == facts.messages == facts.groups * facts.messages_of_kind


# A shuffler that is trusted, but not with this experiment, has its open round put on record as over.


async def deliver(api: Api, batch: bytes, key: Ed25519PrivateKey) -> int:
    answer = await api.client.post("/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, key)})
    return answer.status_code


async def test_a_batch_under_an_earlier_version_does_not_end_the_round(tmp_path: Path) -> None:
    """Batches of closed rounds are answered before the server checks which shuffler the experiment has."""
    shuffler_key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for name, key in {"one": shuffler_key, "two": other}.items():
        (trusted / f"{name}.pub").write_text(key.public_key().public_bytes_raw().hex())
    settings = ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=(trusted,), sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SHUFFLED)
        first = await api.publication()
        assert await deliver(api, body_of(first, sealed_reports(first, 100, 1)), shuffler_key) == 202
        second = await api.publication()
        batch = body_of(second, sealed_reports(second, 100, 2))
        assert await deliver(api, batch, other) == 403
        envelope = decode_batch(batch)
        header = msgspec.structs.replace(envelope.header, version=1)
        forged = encode_envelope(msgspec.structs.replace(envelope, header=header))
        headers = {SIGNATURE_HEADER: BATCH.sign(forged, other)}
        assert_problem(await client.post("/batches", content=forged, headers=headers), 409, "round-closed")
    async with serving(create_app(settings)) as client:
        api = Api(client)
        assert (await api.facts())["version"] == 2
        assert await deliver(api, batch, shuffler_key) == 202


# A round whose last report would leave the server without a next publication: the learner takes no late reports.


PEOPLE = 3000
WEEK = 7 * 86_400.0
REWARDS = np.array([0.05, 0.95])
NUMBER = {"context": {"features": {"x": {"low": 0.0, "high": 1.0}}}}
SPECS: dict[str, dict[str, Any]] = {
    "boundaries of planned people": {"algorithm": {"name": "trial", "looks": 1}} | NUMBER,
    "the best arm is known": {"algorithm": {"name": "bandit", "objective": "best-arm"}},
}


@pytest.mark.parametrize("sections", SPECS.values(), ids=SPECS)
def test_the_experiment_ends_without_a_further_round(sections: dict[str, Any]) -> None:
    table = {
        "name": "test",
        "arms": ["a", "b"],
        "horizon": PEOPLE,
        "round_size": PEOPLE,
        "conversion_window_seconds": WEEK,
    }
    data = {"experiment": table, "privacy": {"model": "local", "epsilon": 4.0}} | sections
    opened = open_first_round(parse_section(algorithm(sections["algorithm"]["name"]).spec, data), b"k" * 32)
    closed = replace(opened, received=PEOPLE, state=RoundState.CLOSED, total=_total(opened.step.policy))
    after = open_following_round(closed, KEY.public_key().public_bytes_raw, now=1.0)
    assert (after.round.version, after.round.batch_size, after.drain) == (2, 0, None)


def _total(policy: Any) -> Any:
    """Reports of people who like the second arm."""
    rng = np.random.default_rng(5)
    contexts, coins = np.full((PEOPLE, 1), 0.5), rng.integers(0, 1 << 32, PEOPLE, np.uint32)
    decisions, mechanism = policy.decide(contexts, coins), policy.terms.mechanism
    rewards = (rng.random(PEOPLE) < REWARDS[decisions.arms]).astype(np.float64)
    rows = mechanism.randomize(policy.contribute(contexts, coins, decisions, rewards), SeededNoise(rng))
    return mechanism.add(mechanism.empty(), rows)
