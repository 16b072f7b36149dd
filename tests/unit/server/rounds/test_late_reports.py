"""Late reports, the policies that they follow, and sizes of rounds."""

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client.participation import Participation
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.clock import SystemClock
from privateer_core.policies.policy import AGE_SIZE, message_size
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_lab.environments.environment import Delay
from privateer_server.algorithms.phased.design import near_optimal_design
from privateer_server.app import create_app
from privateer_server.experiments.experiment import measure_experiment
from privateer_server.rounds.earlier_policies import EarlierPolicies, shares_by_policy
from privateer_server.rounds.schedule import Schedule
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.publications import published
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem
from tests.support.specs import linear_spec

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


async def test_the_learner_gets_the_policy_mix_of_a_batch(settings, shuffler_key, monkeypatch):
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


async def test_the_learner_gets_the_policy_mix_of_reports_with_ages(settings, monkeypatch):
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
        f"privateer_server.rounds.earlier_policies.{limit}", n_cached * (1 if limit == "_MAX_CACHED_POLICIES" else size)
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


OPENED = [0.0, 100.0, 200.0, 300.0]


@pytest.mark.parametrize(
    ("mean", "opens", "closes", "expected"),
    [
        (0.0, 300.0, 400.0, [0, 0, 0, 1]),
        (100.0, 300.0, 400.0, [0, 0, 1, 0]),
        (150.0, 300.0, 400.0, [0, 0.5, 0.5, 0]),
        (50.0, 300.0, 500.0, [0, 0, 0.25, 0.75]),
    ],
)
def test_policy_shares_of_fixed_delays(mean: float, opens: float, closes: float, expected: list[float]) -> None:
    shares = shares_by_policy(OPENED, opens, closes, Delay(law="fixed", mean=mean).cumulative_probability)
    assert shares == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("law", ["exponential", "heavy-tailed"])
def test_policy_shares_match_simulated_delays(law: str) -> None:
    """A million people; standard errors are below .002."""
    rng, delay = np.random.default_rng(5), Delay(law=law, mean=120.0)
    chose = rng.uniform(0, 400, 1_000_000)
    reports = chose + delay.draw(len(chose), rng)
    during = (reports > 300) & (reports <= 400)
    versions = np.searchsorted(OPENED, chose[during], side="right") - 1
    shares = np.bincount(versions, minlength=4) / during.sum()
    assert shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability) == pytest.approx(shares, abs=0.02)


def test_policies_after_the_end_have_no_share() -> None:
    delay = Delay(law="exponential", mean=100.0)
    shares = shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability, last_choice=200.0)
    assert (shares[2:] == 0).all()
    assert shares.sum() == pytest.approx(1)


def test_reports_before_anybody_can_have_reported_are_about_the_rounds_own_policy() -> None:
    delay = Delay(law="fixed", mean=1000.0)
    assert shares_by_policy(OPENED, 300.0, 400.0, delay.cumulative_probability).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("law", ["fixed", "exponential", "heavy-tailed"])
def test_delay_distributions_have_their_means(law: str) -> None:
    delay = Delay(law=law, mean=50.0)
    assert delay.draw(1_000_000, np.random.default_rng(1)).mean() == pytest.approx(50, rel=0.03)
    times = np.array([-1.0, 0.0, 10.0, 49.0, 51.0, 1e9])
    probabilities = delay.cumulative_probability(times)
    assert (probabilities[:1] == 0).all()
    assert (np.diff(probabilities) >= 0).all()
    assert probabilities[-1] == pytest.approx(1)


EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Spec:
    return parse_spec(tomllib.loads((EXAMPLES / f"{name}.toml").read_text()))


@pytest.mark.parametrize("name", ["stations", "sparse", "additive-shuffle", "linear", "trial", "convex-two-point"])
def test_no_seed_changes_the_size_that_is_admitted(name: str) -> None:
    schedule = Schedule(example(name))
    sizes = [measure_experiment(schedule, schedule.open(seed)) for seed in (0, 1, 2**40 + 7, 2**63 - 1)]
    assert sizes.count(sizes[0]) == len(sizes)


def test_the_size_of_phases_does_not_depend_on_the_round_that_it_is_asked_in() -> None:
    """A warm start begins in a later phase, which plays other actions than the first."""
    schedule = Schedule(example("stations"))
    first: Any = schedule.open(3)
    averages = np.linspace(-1, 1, len(first.policy.support))
    later: Any = schedule.advance(first, VectorSums(first.batch_size, first.batch_size * averages, 0.0), 3)
    assert len(later.policy.support) != len(first.policy.support)  # or the test shows nothing
    assert measure_experiment(schedule, later) == measure_experiment(schedule, first)


@pytest.mark.parametrize("max_actions", [20, 25, 40])
def test_a_design_never_plays_more_actions_than_it_may(max_actions: int) -> None:
    rng = np.random.default_rng(max_actions)
    for actions in (rng.normal(size=(300, 20)) for _ in range(5)):
        free, bounded = near_optimal_design(actions, 1.05), near_optimal_design(actions, 1.05, max_actions)
        assert len(free.support) > 40  # or the bound does nothing
        assert len(bounded.support) == max_actions
        assert (bounded.rank, bounded.weights.min() > 0, bounded.weights.sum()) == (20, True, pytest.approx(1))


def test_phases_carry_no_more_than_was_expected_at_creation() -> None:
    tables = tomllib.loads((EXAMPLES / "dpe.toml").read_text())
    tables["actions"]["seed"] = 2
    spec = parse_section(PhasedSpec, tables)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=20)
    schedule = Schedule(spec)
    step = first = schedule.open(3)
    carried, played = [], []
    while step.batch_size:
        carried.append(step.policy.terms.messages)
        actions = step.policy.decide(np.zeros((1, 0)), np.zeros(1, np.uint32)).actions
        played.append(len(actions))
        averages = spec.actions.matrix[actions] @ (theta / np.linalg.norm(theta))
        noisy = averages + rng.normal(size=len(averages)) * 0.1 / np.sqrt(step.batch_size)
        step = schedule.advance(step, VectorSums(step.batch_size, step.batch_size * noisy, 0.0), 3)
    assert max(played) > played[0]  # or the test shows nothing
    expected = schedule.learner.list_round_volumes(first)
    assert all(now <= planned.messages for now, planned in zip(carried, expected, strict=False))
