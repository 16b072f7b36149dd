"""Reports on decisions of earlier rounds: counted once, and refused where nothing is known of the decision."""

import math
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.clock import SystemClock
from privateer_core.policies.decisions import AGE_SIZE, message_size
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.rounds.late_reports import EarlierPolicies
from privateer_server.rounds.loop import Schedule
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.linears import linear_spec
from tests.support.publications import published
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)


def followed(body: bytes) -> Participation:
    return Participation(body, "test", WIDE)


def decided(body: bytes, people: int, seed: int = 1):
    """Contexts, coins and decisions of people who follow a publication."""
    part = followed(body)
    contexts, coins = np.random.default_rng(seed).random((people, part.spec.dimension)), part.coins(people)
    return contexts, coins, part.decide(contexts, coins)


def late(body: bytes, choices, version: int) -> list[bytes]:
    """Reports to a round on choices of an earlier version."""
    contexts, coins, decisions = choices
    part, people = followed(body), len(coins)
    return part.reports(contexts, coins, decisions, np.ones(people), np.full(people, version))


async def filled(api: Api, people: int) -> bytes:
    """Fill the open round, and return the next one."""
    body = await api.publication()
    answer = await api.client.post("/reports", content=body_of(body, sealed_reports(body, people)))
    assert answer.json()["accepted"] == people
    return await api.publication()


async def test_reports_on_earlier_decisions_are_counted_also_after_a_restart(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        choices = decided(await api.publication(), 10)
        await filled(api, 20)
        third = await filled(api, 20)
        answer = await client.post("/reports", content=body_of(third, late(third, choices, 1)))
        assert answer.json() == {"accepted": 10, "refused": {}}
    async with serving(create_app(settings)) as client:
        more = late(third, decided(third, 10), 3)
        answer = await client.post("/reports", content=body_of(third, more))
        assert answer.json() == {"accepted": 10, "refused": {}}
        facts = await Api(client).facts()
        assert facts | {"version": 4, "accepted": 60, "refused": {}} == facts


@pytest.mark.parametrize("age", [3, 4, 65_535])
async def test_decisions_of_no_known_policy_are_refused(api: Api, age: int) -> None:
    await api.create(SMALL)
    await filled(api, 20)
    third = await filled(api, 20)
    report = os.urandom(16) + age.to_bytes(AGE_SIZE, "little") + bytes(6)
    answer = await api.client.post("/reports", content=body_of(third, [seal(third, report)]))
    assert_problem(answer, 400, "out-of-range")
    assert (await api.facts())["received"] == 0


async def test_bad_ages_do_not_take_good_reports_with_them(api: Api) -> None:
    await api.create(SMALL)
    second = await filled(api, 20)
    bad = [seal(second, os.urandom(16) + (9).to_bytes(AGE_SIZE, "little") + bytes(6)) for _ in range(3)]
    answer = await api.client.post("/reports", content=body_of(second, [*bad, *sealed_reports(second, 5)]))
    assert answer.json() == {"accepted": 5, "refused": {"out-of-range": 3}}


async def test_with_a_window_the_learner_sees_whose_decisions_a_batch_is_about(
    settings: ServerSettings, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds open at 0, 100 and 200 seconds; reports of the third, to 300, are on choices of 150 seconds before."""
    seen, learned, clock = [], Schedule.learned, Hands()

    def noting(self, step, release, decided=()):
        seen.append({policy.version: round(share, 1) for policy, share in decided})
        return learned(self, step, release, decided)

    monkeypatch.setattr(Schedule, "learned", noting)
    clock.time = SystemClock().now()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await api.create(SHUFFLED | {"experiment.conversion_window": 150})
        for _ in range(3):
            clock.time += 100
            body = await api.publication()
            batch = body_of(body, sealed_reports(body, 100))
            headers = {SIGNATURE_HEADER: BATCH.sign(batch, shuffler_key, clock.now())}
            assert (await client.post("/batches", content=batch, headers=headers)).json()["closed"]
    assert seen == [{1: 1.0}, {1: 1.0}, {1: 0.5, 2: 0.5}]


async def test_a_learner_sees_whose_decisions_reports_are_about_also_where_they_tell_it(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, where coins tell classes and reports their ages: all policies decided which arms people have."""
    seen, learned, clock = [], Schedule.learned, Hands()

    def noting(self, step, release, decided=()):
        seen.append({policy.version: round(share, 1) for policy, share in decided})
        return learned(self, step, release, decided)

    monkeypatch.setattr(Schedule, "learned", noting)
    spec = linear_spec("local").model_dump(mode="json", exclude_none=True)
    spec["experiment"] |= {"round_size": 20, "round_growth": 0.0, "conversion_window": 150.0}
    clock.time = SystemClock().now()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        assert (await client.post("/experiments", json=spec, headers=ADMIN)).status_code == 201
        bodies = []
        for _ in range(3):
            clock.time += 100
            bodies.append(await api.publication())
            assert message_size(followed(bodies[-1]).policy) == 6 + AGE_SIZE
            choices = decided(bodies[0], 20)
            reports = late(bodies[-1], choices, 1)
            answer = await client.post("/reports", content=body_of(bodies[-1], reports))
            assert answer.json() == {"accepted": 20, "refused": {}}
    assert seen == [{1: 1.0}, {1: 1.0}, {1: 0.5, 2: 0.5}]


@pytest.mark.parametrize(("limit", "most"), [("_KEPT", 2), ("_BYTES", 2)])
def test_earlier_policies_are_read_once_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """Room for two policies: the one that was asked for longest ago makes room."""
    bodies = {version: published(linear_spec("local"), version=version) for version in (1, 2, 3)}
    size = max(map(len, bodies.values()))
    monkeypatch.setattr(f"privateer_server.rounds.late_reports.{limit}", most if limit == "_KEPT" else most * size)
    reads: list[int] = []

    class Store:
        def publication(self, _name: str, version: int) -> bytes | None:
            reads.append(version)
            return bodies.get(version)

    policies = EarlierPolicies(Store())
    for version in (1, 2, 1, 3, 1, 3, 2, 9):
        found = policies.find("test", version)
        assert (found.version if found else None) == (version if version in bodies else None)
    assert reads == [1, 2, 3, 2, 9]
