"""What docs/behaviour.json says of a device: the client in JavaScript does the same (sdk/js/test/behaviour.test.js)."""

import json
import random
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_client import Client, ReportStatus
from privateer_client.inputs import encode_context, read_outcome
from privateer_client.person_choice import PersonChoice
from privateer_client.states import ALLOWED, NEXT, OUTCOMES, ChoiceState
from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode
from privateer_core.errors import InputError, InvalidValueWarning, PrivateerError
from privateer_core.mechanisms import FeatureSums
from privateer_core.spec.reward import GuardedReward, Reward
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, decode_publication
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OTHER, Device, Server
from tests.support.publications import published
from tests.support.silent_services import LISTENING
from tests.support.specs import make_spec

BEHAVIOUR: dict[str, list[dict[str, Any]]] = json.loads(Path("docs/behaviour.json").read_text())
_NOW = 1.8e9
_PEOPLE = 6
_KINDS: dict[str, Callable[[Any], Any]] = {
    "number": lambda value: value,
    "whole": int,
    "decimal": Decimal,
    "fraction": Fraction,
    "text": str,
    "yes": bool,
    "nan": lambda _: float("nan"),
    "null": lambda _: None,
    "infinite": lambda sign: sign * float("inf"),
    "list": lambda values: [value_of(value) for value in values],
    "object": lambda values: {name: value_of(value) for name, value in values.items()},
}


def value_of(tagged: dict[str, Any]) -> Any:
    ((kind, value),) = tagged.items()
    return _KINDS[kind](value)


def encode_value(case: dict[str, Any]) -> tuple[list[float], bool]:
    """Return the numbers that a policy gets for a value, and whether the developer is warned."""
    value = value_of(case["value"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InvalidValueWarning)
        if "feature" in case:
            read = encode_context({"x": value}, make_spec({"context.features": {"x": case["feature"]}}).features)
        else:
            reward: Any = Reward(**case["reward"])
            outcome = GuardedReward(reward, tuple(case["guardrails"])) if "guardrails" in case else reward
            spec: Any = SimpleNamespace(
                reward=reward, outcome=outcome, without_outcome=lambda _: outcome.without_outcome
            )
            policy: Any = SimpleNamespace(read=lambda spec, outcome: spec.outcome.read(outcome))
            read, _ = read_outcome(policy, spec, "a", value)
    return np.ravel(read).tolist(), bool(caught)


def sessions(case: dict[str, Any], folder: Path) -> tuple[list[str], list[str]]:
    """Return the shown arms, as letters in order of first appearance, and the outcomes of reports."""
    server = Server(published(make_spec()))
    server.headers = {} if case["asks"] else {ASKS_HEADER: ASKS_NOBODY}
    folder.mkdir()
    device, joined = Device(folder, server), dict[int, Any]()
    arms, outcomes = list[str](), list[str]()
    for action, number, *options in case["steps"]:
        if action == "join":
            joined[number] = device.start().join("test")
        elif action == "choose":
            arms.append(joined[number].choose(CONTEXT if options == ["near"] else OTHER))
        elif action == "report":
            outcomes.append(joined[number].report(1.0))
        else:
            server.moves_on(make_spec(), number)
            device.clock.time += 60
    letters = dict[str, str]()
    return [letters.setdefault(arm, "ABCDEFG"[len(letters)]) for arm in arms], outcomes


def clock(case: dict[str, Any], folder: Path) -> list[str | None]:
    """Return the status of a choice after each step while a clock is set."""
    server, clock = (
        Server(published(make_spec({"experiment.conversion_window_seconds": float(case["window"])}))),
        Hands(),
    )
    folder.mkdir()
    device, outcomes = Device(folder, server, clock), list[str | None]()
    clock.time = _NOW + case["chosen"]
    session = device.start().join("test")
    session.choose(CONTEXT)
    for at, event, _ in case["steps"]:
        clock.time = _NOW + at
        server.is_down = {"away": True, "back": False}.get(event, server.is_down)
        status = session.report(1.0) if event == "report" else None
        outcomes.append(device.start().flush().get("test") if event == "flush" else status)
    return outcomes


def states(case: dict[str, Any], folder: Path) -> list[tuple[str | None, str | None]]:
    """Return the state of a choice and the status of its report after each step."""
    server = Server(published(make_spec({"experiment.conversion_window_seconds": float(case["window"])})))
    server.headers = {} if case.get("asks", True) else {ASKS_HEADER: ASKS_NOBODY}
    folder.mkdir()
    device, session = Device(folder, server), None
    states_after = list[tuple[str | None, str | None]]()
    for step in case["steps"]:
        outcome = None
        match step["do"]:
            case "join":
                session = device.start().join("test")
            case "flush":
                outcome = device.start().flush().get("test")
            case "publish":
                server.moves_on(
                    make_spec({"experiment.conversion_window_seconds": float(case["window"])}), step["version"]
                )
                device.clock.time += 60
            case "pass":
                device.clock.time += step["seconds"]
            case "pause" | "asks":
                server.headers = {ASKS_HEADER: ASKS_NOBODY} if step["do"] == "pause" else {}
            case "away" | "back":
                server.is_down = step["do"] == "away"
            case action:
                calls = {"report": (1.0,), "forget": ()}
                status = getattr(session, action)(*calls[action]) if action in calls else make_choice(session, action)
                outcome = status if action == "report" else None
        states_after.append((session.state if session and "state" in step else None, outcome))
    return states_after


def make_choice(session: Any, action: str) -> Any:
    return session.choose(CONTEXT, fresh=action == "fresh")


def identify(address: str) -> str | None:
    """Return the address by which the ledger knows a server, None if the client refuses it."""
    try:
        return Client(address)._url
    except InputError:
        return None


def is_accepted(mechanism: str, body: str) -> bool:
    """Whether a client accepts a mechanism of published terms."""
    assert mechanism == "feature-sums"
    try:
        return decode(bytes.fromhex(body), FeatureSums).arms > 0
    except PrivateerError:
        return False


def find_deviations(behaviour: dict[str, list[dict[str, Any]]], folder: Path) -> list[tuple[str, int]]:
    """Which cases go otherwise."""
    deviations = [
        ("values", number)
        for number, case in enumerate(behaviour["values"])
        if encode_value(case) != (case["used"], case["warned"])
    ]
    for number, case in enumerate(behaviour["sessions"]):
        outcomes = [sessions(case, folder / f"session-{number}-{person}") for person in range(_PEOPLE)]
        deviations += [("sessions", number)] * any(outcome != (case["arms"], case["outcomes"]) for outcome in outcomes)
    deviations += [
        ("addresses", number)
        for number, case in enumerate(behaviour["addresses"])
        if identify(case["address"]) != case["identity"]
    ]
    deviations += [
        ("mechanisms", number)
        for number, case in enumerate(behaviour["mechanisms"])
        if is_accepted(case["mechanism"], case["body"]) != case["accepted"]
    ]
    for number, case in enumerate(behaviour["clocks"]):
        told_at = clock(case, folder / f"clock-{number}")
        deviations += [("clocks", number)] * (told_at != [outcome for *_, outcome in case["steps"]])
    for number, case in enumerate(behaviour["choices"]):
        expected = [(step.get("state"), step.get("outcome")) for step in case["steps"]]
        deviations += [("choices", number)] * (states(case, folder / f"choice-{number}") != expected)
    table = {(row["state"], row["event"]): row["next"] for row in behaviour["states"]}
    deviations += [("states", number) for number, row in enumerate(behaviour["states"]) if not is_row(row)]
    deviations += [("states", -1)] * bool(table and table.keys() != NEXT.keys())
    deviations += [
        ("actions", number)
        for number, row in enumerate(behaviour["actions"])
        if (sorted(ALLOWED[row["state"]]), OUTCOMES.get(row["state"])) != (row["allowed"], row["outcome"])
    ]
    return deviations


def is_row(row: dict[str, Any]) -> bool:
    return NEXT.get((row["state"], row["event"])) == row["next"]


def test_a_device_behaves_as_the_shared_cases_say(tmp_path: Path) -> None:
    assert find_deviations(BEHAVIOUR, tmp_path) == []
    warned = [case["warned"] for case in BEHAVIOUR["values"]]
    assert (len(warned) > 70, sum(warned) > 20) == (True, True)


@pytest.mark.parametrize(
    ("kind", "number", "change"),
    [
        ("values", 6, {"warned": False}),
        ("values", 0, {"used": [0.26]}),
        ("sessions", 2, {"outcomes": ["accepted", "accepted"]}),
        ("sessions", 0, {"arms": ["A", "B"]}),
        ("addresses", 3, {"identity": "https://learn.example"}),
        ("addresses", 16, {"identity": "https://learn.example."}),
        ("mechanisms", 0, {"accepted": False}),
        ("mechanisms", 3, {"accepted": True}),
        ("clocks", 2, {"chosen": 0}),
        ("choices", 1, {"window": 0}),
        ("choices", 4, {"asks": True}),
        ("actions", 0, {"allowed": ["report"]}),
        ("actions", 2, {"outcome": "not-requested"}),
    ],
)
def test_a_changed_expectation_is_a_deviation(tmp_path: Path, kind: str, number: int, change: dict[str, Any]) -> None:
    none: dict[str, list[dict[str, Any]]] = {name: [] for name in BEHAVIOUR}
    case = BEHAVIOUR[kind][number]
    assert find_deviations(none | {kind: [case | change]}, tmp_path) == [(kind, 0)]


@pytest.mark.parametrize("number", range(len(BEHAVIOUR["states"])))
def test_each_removed_row_of_the_state_table_is_a_deviation(tmp_path: Path, number: int) -> None:
    none: dict[str, list[dict[str, Any]]] = {name: [] for name in BEHAVIOUR}
    rows = [dict(row) for row in BEHAVIOUR["states"]]
    rows[number]["next"] = "closed" if rows[number]["next"] != "closed" else "offered"
    assert find_deviations(none | {"states": rows}, tmp_path) == [("states", number)]
    assert find_deviations(none | {"states": rows[:number] + rows[number + 1 :]}, tmp_path) == [("states", -1)]


@pytest.mark.parametrize("case", BEHAVIOUR["connections"], ids=lambda case: case["service"])
def test_errors_have_the_words_of_every_client(tmp_path: Path, case: dict[str, Any]) -> None:
    with LISTENING[case["service"]]() as url, pytest.raises(PrivateerError) as caught:
        Client(url, ledger=tmp_path / "x.db", timeout=0.5).join("test")
    assert (caught.value.slug, caught.value.detail) == (case["error"], case["words"].format(url=url, seconds=0.5))


def test_each_invalid_value_is_warned_of_once_per_session_and_name(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    for _ in range(2):
        session = device.start().join("test")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InvalidValueWarning)
            for _ in range(3):
                session.choose({"x1": "secret", "x2": None}, fresh=True)
        assert sorted(str(warning.message).partition(":")[0] for warning in caught) == ["x1", "x2"]
        assert not any("secret" in str(warning.message) for warning in caught)
    with pytest.warns(InvalidValueWarning, match="^reward: ") as warned:
        outcomes = [session.report("secret") for _ in range(2)]
    assert (len(warned), outcomes) == (1, ["accepted", "already-reported"])


ENDS = {
    ReportStatus.ACCEPTED: {ChoiceState.DELIVERED},
    ReportStatus.ALREADY_REPORTED: {ChoiceState.DELIVERED},
    ReportStatus.PENDING: {ChoiceState.WAITING, ChoiceState.DUE, ChoiceState.DELIVERED},
    ReportStatus.NOT_REQUESTED: {ChoiceState.CLOSED, ChoiceState.GIVEN_UP},
}
"""States after a report, by what came of it; one that is sealed may wait."""


def advance_world(device: Device, server: Server, step: str, draw: random.Random) -> None:
    """Open rounds, among them a round that accepts no earlier choices, and let the server fail or pause."""
    if step == "publish":
        version = decode_publication(server.body).round.version + draw.choice([1, 1_000_000])
        server.moves_on(parse_spec(json.loads(decode_publication(server.body).spec)), version)
    elif step == "fail":
        server.is_down = not server.is_down
    elif step == "pause":
        server.headers = {} if server.headers else {ASKS_HEADER: ASKS_NOBODY}
    device.clock.time += draw.choice([0.0, 60.0, 4000.0, 100_000.0])


def walk(folder: Path, seed: int) -> set[ChoiceState]:
    """Take 40 steps of two sessions of a participant while rounds pass; return the states of the sessions."""
    draw, visited = random.Random(seed), set[ChoiceState]()
    server = Server(published(make_spec({"experiment.conversion_window_seconds": draw.choice([0.0, 3600.0])})))
    folder.mkdir()
    device = Device(folder, server)
    joined = [device.start().join("test") for _ in range(2)]
    for _ in range(40):
        advance_world(device, server, draw.choice(["publish", "fail", "pause", "", "", ""]), draw)
        index = draw.randrange(2)
        step = draw.choice(["join", "choose", "choose", "choose", "fresh", "fresh", "report", "forget", "forget"])
        if step == "join":
            joined[index] = device.start().join("test")
        session = joined[index]
        if step == "report":
            session.choose(CONTEXT)
            outcome = session.report(1.0)
            assert session.state in ENDS[outcome]
        elif step == "forget":
            session.forget()
        elif step != "join":
            make_choice(session, step)
        person_choice = PersonChoice(session._publications, device.ledger(), device.clock)
        person_choice.load_stored(session._participation)
        assert person_choice.state is session.state or step == "report"
        visited.add(session.state)
    assert len(device.ledger().payments()) <= 1
    assert len({*server.posts}) <= 1  # the same bytes may come again
    return visited


def test_sessions_know_what_the_ledger_says_and_report_once(tmp_path: Path) -> None:
    walks = [walk(tmp_path / str(seed), seed) for seed in range(10)]
    assert set.union(*walks) == set(ChoiceState)
