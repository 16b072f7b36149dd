"""Reports on decisions of earlier rounds: counted once, and refused where nothing is known of the decision."""

import math
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.clock import SystemClock
from privateer_core.policies.policy import AGE_SIZE, message_size
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.succession import EarlierPolicies
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.linears import linear_spec
from tests.support.publications import published
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True)


def follow(body: bytes) -> Participation:
    return Participation(body, "test", WIDE)


def choose_arms(body: bytes, people: int, seed: int = 1):
    """Contexts, coins and decisions of people who follow a publication."""
    part = follow(body)
    contexts, coins = np.random.default_rng(seed).random((people, part.spec.dimension)), part.draw_coins(people)
    return contexts, coins, part.decide(contexts, coins)


def seal_late_reports(body: bytes, choices, version: int) -> list[bytes]:
    """Reports to a round on choices of an earlier version."""
    contexts, coins, decisions = choices
    part, people = follow(body), len(coins)
    return part.make_reports(contexts, coins, decisions, np.ones(people), np.full(people, version))


async def fill_round(api: Api, people: int) -> bytes:
    """Fill the open round, and return the next one."""
    body = await api.publication()
    answer = await api.client.post("/reports", content=body_of(body, sealed_reports(body, people)))
    assert answer.json()["accepted"] == people
    return await api.publication()


async def test_reports_on_earlier_decisions_are_counted_also_after_a_restart(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        choices = choose_arms(await api.publication(), 10)
        await fill_round(api, 20)
        third = await fill_round(api, 20)
        answer = await client.post("/reports", content=body_of(third, seal_late_reports(third, choices, 1)))
        assert answer.json() == {"accepted": 10, "refused": {}}
    async with serving(create_app(settings)) as client:
        late_reports = seal_late_reports(third, choose_arms(third, 10), 3)
        answer = await client.post("/reports", content=body_of(third, late_reports))
        assert answer.json() == {"accepted": 10, "refused": {}}
        facts = await Api(client).facts()
        assert facts | {"version": 4, "accepted": 60, "refused": {}} == facts


@pytest.mark.parametrize("age", [3, 4, 65_535])
async def test_reports_on_unknown_policies_are_refused(api: Api, age: int) -> None:
    await api.create(SMALL)
    await fill_round(api, 20)
    third = await fill_round(api, 20)
    report = os.urandom(16) + age.to_bytes(AGE_SIZE, "little") + bytes(6)
    answer = await api.client.post("/reports", content=body_of(third, [seal(third, report)]))
    assert_problem(answer, 400, "out-of-range")
    assert (await api.facts())["received"] == 0


async def test_reports_with_bad_ages_are_refused_alone(api: Api) -> None:
    await api.create(SMALL)
    second = await fill_round(api, 20)
    bad = [seal(second, os.urandom(16) + (9).to_bytes(AGE_SIZE, "little") + bytes(6)) for _ in range(3)]
    answer = await api.client.post("/reports", content=body_of(second, [*bad, *sealed_reports(second, 5)]))
    assert answer.json() == {"accepted": 5, "refused": {"out-of-range": 3}}


async def test_the_learner_gets_the_policy_mix_of_a_batch(
    settings: ServerSettings, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds open at 0, 100 and 200 seconds; reports of the third, to 300, are on choices of 150 seconds before."""
    mixes, learned, clock = [], Schedule.learn, Hands()

    def noting(self, step, release, decided=()):
        mixes.append({policy.version: round(share, 1) for policy, share in decided})
        return learned(self, step, release, decided)

    monkeypatch.setattr(Schedule, "learn", noting)
    clock.time = SystemClock().now()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await api.create(SHUFFLED | {"experiment.conversion_window_seconds": 150})
        for _ in range(3):
            clock.time += 100
            body = await api.publication()
            batch = body_of(body, sealed_reports(body, 100))
            headers = {SIGNATURE_HEADER: BATCH.sign(batch, shuffler_key, clock.now())}
            assert (await client.post("/batches", content=batch, headers=headers)).json()["closed"]
    assert mixes == [{1: 1.0}, {1: 1.0}, {1: 0.5, 2: 0.5}]


async def test_the_learner_gets_the_policy_mix_of_reports_with_ages(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, where coins tell classes and reports their ages: all policies decided which arms people have."""
    mixes, learned, clock = [], Schedule.learn, Hands()

    def noting(self, step, release, decided=()):
        mixes.append({policy.version: round(share, 1) for policy, share in decided})
        return learned(self, step, release, decided)

    monkeypatch.setattr(Schedule, "learn", noting)
    spec = linear_spec("local").model_dump(mode="json", exclude_none=True)
    spec["experiment"] |= {"round_size": 20, "min_round_fraction": 0.0, "conversion_window_seconds": 150.0}
    clock.time = SystemClock().now()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        assert (await client.post("/experiments", json=spec, headers=ADMIN)).status_code == 201
        bodies = []
        for _ in range(3):
            clock.time += 100
            bodies.append(await api.publication())
            assert message_size(follow(bodies[-1]).policy) == 6 + AGE_SIZE
            choices = choose_arms(bodies[0], 20)
            reports = seal_late_reports(bodies[-1], choices, 1)
            answer = await client.post("/reports", content=body_of(bodies[-1], reports))
            assert answer.json() == {"accepted": 20, "refused": {}}
    assert mixes == [{1: 1.0}, {1: 1.0}, {1: 0.5, 2: 0.5}]


@pytest.mark.parametrize(("limit", "n_cached"), [("_MAX_CACHED_POLICIES", 2), ("_MAX_CACHED_BYTES", 2)])
def test_earlier_policies_are_cached_within_limits(monkeypatch: pytest.MonkeyPatch, limit: str, n_cached: int) -> None:
    """Room for two policies: the one that was asked for longest ago makes room."""
    bodies = {version: published(linear_spec("local"), version=version) for version in (1, 2, 3)}
    size = max(map(len, bodies.values()))
    monkeypatch.setattr(
        f"privateer_server.rounds.succession.{limit}", n_cached * (1 if limit == "_MAX_CACHED_POLICIES" else size)
    )
    reads: list[int] = []

    class Store:
        def publication(self, _name: str, version: int) -> bytes | None:
            reads.append(version)
            return bodies.get(version)

    policies = EarlierPolicies(Store())
    for version in (1, 2, 1, 3, 1, 3, 2, 9):
        policy = policies.find("test", version)
        assert (policy.version if policy else None) == (version if version in bodies else None)
    assert reads == [1, 2, 3, 2, 9]
