"""Accounts of participants over generated runs: every interface has the same account, without unknown numbers."""

import random
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple, cast

import httpx
import msgspec
import pytest

from privateer_core.answer.people import People
from privateer_core.privacy.trust import TRUST, Crowd, Recipient
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.expectation.expected import summarize_runs
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.plans import Variant
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import fetch_answer, fetch_shuffler_progress
from privateer_lab.simulation.delayed_reports import LateSimulation
from privateer_lab.simulation.simulate import make_simulation
from tests.support.sealing import body_of
from tests.support.servers import MSGPACK
from tests.support.specs import make_spec

MODELS = ("shuffle", "local", "central", "none")


def reachable(spec: ArmsSpec) -> int:
    """Count the participants of all rounds, round by round."""
    return sum(planned.batch_size for planned in spec.planned_rounds()) + spec.gain_people


def generate_spec(seed: int) -> ArmsSpec:
    rng, model = random.Random(seed), MODELS[seed % len(MODELS)]
    size = rng.choice((100, 130, 180))
    promise = {"privacy.delta": 1e-6} if TRUST[model].delta_least else {}
    return make_spec(
        {
            "experiment.name": f"run-{seed}",
            "experiment.horizon": rng.randint(4 * size, 8 * size),
            "experiment.round_size": size,
            "experiment.min_round_fraction": rng.choice((0.0, 0.4)),
            "experiment.evaluation_fraction": rng.choice((0.0, 0.34)),
            "experiment.conversion_window_seconds": rng.choice((0.0, 0.0, 1.0)) if model == "local" else 0.0,
            "privacy.model": model,
            "privacy.epsilon": None if model == "none" else 1.0,
            "population.name": "peaks",
            **promise,
            **({"privacy.min_batch": 100} if TRUST[model].crowd is Crowd.BATCH else {}),
        }
    )


class Accounts(NamedTuple):
    """The accounts that the interfaces give of a run."""

    spec: ArmsSpec
    facts: dict[str, Any]  # the dashboard's JSON
    from_answer: People
    complete: People
    loaded: LoadResult
    rounds: list[dict[str, Any]]


def check_sums(people: People) -> None:
    parts = (people.counted, people.held.total, people.n_refused, people.not_asked, people.out_of_reach, people.unknown)
    assert people.planned + people.replaced == sum(parts)


def check(accounts: Accounts) -> None:
    """Compare the accounts with independent counts: the rounds' history, and the answers to participants."""
    facts, server = accounts.facts, msgspec.convert(accounts.facts["people"], People)
    loaded = accounts.loaded.account
    for people in (server, loaded, accounts.complete, accounts.from_answer):
        check_sums(people)
    assert accounts.from_answer == server
    closed = sum(row["received"] for row in accounts.rounds if row["version"] < facts["version"])
    assert (server.counted, server.held.in_open_round) == (closed, facts["received"])
    assert server.replaced == server.n_refused == sum(facts["refused"].values())
    is_late = facts["draining_until"] is not None or server.planned > accounts.spec.experiment.horizon
    assert is_late or server.reachable == reachable(accounts.spec)
    # Nobody else takes part, so that what was accepted is counted or waits.
    assert loaded.counted + loaded.held.total == accounts.loaded.accepted
    waiting = accounts.loaded.accepted - closed - facts["received"]
    assert loaded.held.at_shuffler == waiting
    at_shuffler = accounts.complete.held.at_shuffler
    assert at_shuffler is not None
    assert at_shuffler <= waiting <= at_shuffler + accounts.complete.unknown
    is_seen = not (facts["shuffler"] and facts["batch_size"])
    assert (server.held.at_shuffler == 0) == is_seen, "what is assumed is printed as known"
    assert is_seen or server.unknown == min(server.held.needed, server.planned - closed - server.out_of_reach)
    assert server.held.needed == max(0, facts["batch_size"] - facts["received"])


def upload_garbage(at: Services, name: str) -> None:
    """Upload bytes that are no report."""
    publication = httpx.get(f"{at.server}/experiments/{name}/policy", headers=MSGPACK).content
    size = decode_publication(publication).round.sealed_size
    answer = httpx.post(f"{at.server}/reports", content=body_of(publication, [bytes(size)]))
    assert answer.status_code >= 400 or answer.json()["accepted"] == 0


def run_experiment(at: Services, spec: ArmsSpec, users: int | None) -> Accounts:
    name = spec.name
    body = spec.without_people().model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
    if TRUST[spec.privacy.model].endpoint is not Recipient.SHUFFLER:
        upload_garbage(at, name)
    people = {"name": "peaks"}
    loaded = run_load(name, at.server, at.shuffler, users=users, population=people, batch=20, sender_key=at.sender_key)
    facts = httpx.get(f"{at.server}/experiments/{name}").json()
    answered = fetch_answer(at.server, name).people
    waits = fetch_shuffler_progress(facts, at.shuffler_admin)
    with_shuffler = waits.add_to(answered) if waits else answered
    rounds = httpx.get(f"{at.server}/experiments/{name}/history").json()["rounds"]
    return Accounts(spec, facts, answered, with_shuffler, loaded, rounds)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as services:
        yield services


def run_and_check(seed: int, at: Services) -> Accounts:
    spec, rng = generate_spec(seed), random.Random(-seed)
    users = rng.choice((None, rng.randint(1, spec.experiment.horizon)))
    accounts = run_experiment(at, spec, users)
    check(accounts)
    if users is None and not spec.experiment.conversion_window_seconds:
        account = cast(People, accounts.loaded.account)
        assert (account.counted, account.not_asked, account.held.total) == (reachable(spec), 0, 0)
        assert accounts.loaded.over
    return accounts


@pytest.mark.parametrize("seed", range(4))
def test_every_interface_has_the_same_account_of_a_run(seed: int, at: Services) -> None:
    run_and_check(seed, at)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4, 60))
def test_every_interface_has_the_same_account_of_many_runs(seed: int, at: Services) -> None:
    run_and_check(seed, at)


def test_a_wrong_account_is_noticed(at: Services) -> None:
    """Planted: the rest counts as learned from, what a shuffler has is 0, and `load` asks before all is counted."""
    spec = make_spec(
        {
            "experiment.name": "unfilled",
            "experiment.horizon": 470,
            "experiment.round_size": 100,
            "privacy.model": "shuffle",
            "privacy.delta": 1e-6,
            "privacy.min_batch": 100,
        }
    )
    accounts = run_experiment(at, spec, 339)
    check(accounts)
    server, loaded = accounts.from_answer, cast(People, accounts.loaded.account)
    assert (server.counted, server.unknown, server.not_asked, server.out_of_reach) == (300, 100, 0, 70)
    assert (loaded.held.at_shuffler, loaded.held.needed) == (39, 61)
    rest = replace(server, counted=server.counted + 70, out_of_reach=0)
    blind = replace(server, held=replace(server.held, at_shuffler=0), not_asked=100, unknown=0)
    early = replace(loaded, counted=200, not_asked=loaded.not_asked + 100)
    for people in (rest, blind):
        facts = accounts.facts | {"people": msgspec.to_builtins(people)}
        with pytest.raises(AssertionError):
            check(accounts._replace(facts=facts, from_answer=people))
    result = LoadResult(accepted=accounts.loaded.accepted, account=early)
    with pytest.raises(AssertionError):
        check(accounts._replace(loaded=result))


def simulate_account(spec: Spec, seed: int) -> People:
    """Play a run, and compare its account with who chose while rounds were open."""
    run = make_simulation(spec, seed)
    while run.step.batch_size:
        run.close_round()
    account, people = run.account(), run.people
    check_sums(account)
    assert account.counted == run.costs.people
    if spec.experiment.reports_per_person == 1:
        late = len(run.pending) if isinstance(run, LateSimulation) else 0  # they report after the last round
        assert account.counted + account.n_refused + late == people
        assert late <= account.out_of_reach
    run.finish()
    assert run.build_run().account == account
    return account


@pytest.mark.parametrize("seed", range(6))
def test_plan_and_simulation_have_the_same_account(seed: int) -> None:
    spec = generate_spec(seed)
    spec = spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"conversion_window_seconds": 0.0})})
    account = simulate_account(spec, seed)
    assert (account.planned, account.counted) == (spec.experiment.horizon, reachable(spec))
    choice = VariedSpec("as it is", "as the spec says", Variant(spec.privacy.model, spec.privacy.bound, spec))
    run = choice.play(seed, inf)
    assert isinstance(run, PartialRun)
    planned = summarize_runs(spec, [choice], {0: [run]}).people
    assert (planned.not_asked, planned.out_of_reach) == (reachable(spec), spec.experiment.horizon - reachable(spec))


LATE = (
    {"population.delay": {"law": "exponential", "mean": 90.0}},
    {"population.delay": {"law": "fixed", "mean": 40.0}},
    {
        "experiment.conversion_window_seconds": 86_400.0,
        "experiment.arrivals_per_day": 70.0,
        "privacy.arm_visibility": "visible",
    },
    {"experiment.reports_per_person": 3},
)


@pytest.mark.parametrize("seed", range(8))
def test_late_and_returning_people_are_in_the_account(seed: int) -> None:
    """Rounds fill later with delays, and reports of some participants find no open round."""
    rng = random.Random(seed)
    size, is_shuffled = rng.choice((100, 150)), seed >= len(LATE)
    shared = {
        "experiment.horizon": rng.randint(5 * size, 9 * size),
        "experiment.round_size": size,
        "population.name": "peaks",
        **({"privacy.model": "shuffle", "privacy.delta": 1e-6, "privacy.min_batch": 100} if is_shuffled else {}),
        **LATE[seed % len(LATE)],
    }
    account = simulate_account(make_spec(shared), seed)
    assert account.planned == shared["experiment.horizon"]
    if is_shuffled and "experiment.reports_per_person" not in shared:
        assert account.n_refused + account.out_of_reach
