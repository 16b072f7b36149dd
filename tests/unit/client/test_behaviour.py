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

from privateer_client import Client, Outcome
from privateer_client.inputs import context_vector, read_outcome
from privateer_client.person_choice import PersonChoice
from privateer_client.states import ALLOWED, NEXT, OUTCOMES, ChoiceState
from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, PrivateerError, UnfitValueWarning
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
    "list": lambda values: [value_of(one) for one in values],
    "object": lambda values: {name: value_of(one) for name, one in values.items()},
}


def value_of(tagged: dict[str, Any]) -> Any:
    ((kind, value),) = tagged.items()
    return _KINDS[kind](value)


def used(case: dict[str, Any]) -> tuple[list[float], bool]:
    """What a policy gets of a value, and whether the developer is told."""
    value = value_of(case["value"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UnfitValueWarning)
        if "feature" in case:
            read = context_vector({"x": value}, make_spec({"context.features": {"x": case["feature"]}}).features)
        else:
            reward: Any = Reward(**case["reward"])
            outcome = GuardedReward(reward, tuple(case["guardrails"])) if "guardrails" in case else reward
            spec: Any = SimpleNamespace(
                reward=reward, outcome=outcome, without_outcome=lambda _: outcome.without_outcome
            )
            policy: Any = SimpleNamespace(read=lambda spec, told: spec.outcome.read(told))
            read, _ = read_outcome(policy, spec, "a", value)
    return np.ravel(read).tolist(), bool(told)


def sessions(case: dict[str, Any], folder: Path) -> tuple[list[str], list[str]]:
    """Which arms are shown, as letters by when each came first, and what becomes of reports."""
    server = Server(published(make_spec()))
    server.headers = {} if case["asks"] else {ASKS_HEADER: ASKS_NOBODY}
    folder.mkdir()
    device, joined = Device(folder, server), dict[int, Any]()
    arms, outcomes = list[str](), list[str]()
    for what, number, *how in case["steps"]:
        if what == "join":
            joined[number] = device.start().join("test")
        elif what == "choose":
            arms.append(joined[number].choose(CONTEXT if how == ["near"] else OTHER))
        elif what == "report":
            outcomes.append(joined[number].report(1.0))
        else:
            server.moves_on(make_spec(), number)
            device.clock.time += 60
    letters = dict[str, str]()
    return [letters.setdefault(arm, "ABCDEFG"[len(letters)]) for arm in arms], outcomes


def clock(case: dict[str, Any], folder: Path) -> list[str | None]:
    """What becomes of a choice while a clock is set."""
    server, clock = Server(published(make_spec({"experiment.conversion_window": float(case["window"])}))), Hands()
    folder.mkdir()
    device, outcomes = Device(folder, server, clock), list[str | None]()
    clock.time = _NOW + case["chosen"]
    session = device.start().join("test")
    session.choose(CONTEXT)
    for at, what, _ in case["steps"]:
        clock.time = _NOW + at
        server.is_down = {"away": True, "back": False}.get(what, server.is_down)
        told = session.report(1.0) if what == "report" else None
        outcomes.append(device.start().resend().get("test") if what == "resend" else told)
    return outcomes


def states(case: dict[str, Any], folder: Path) -> list[tuple[str | None, str | None]]:
    """In which state a choice is after each step, and what became of its report."""
    server = Server(published(make_spec({"experiment.conversion_window": float(case["window"])})))
    server.headers = {} if case.get("asks", True) else {ASKS_HEADER: ASKS_NOBODY}
    folder.mkdir()
    device, session = Device(folder, server), None
    seen = list[tuple[str | None, str | None]]()
    for step in case["steps"]:
        outcome = None
        match step["do"]:
            case "join":
                session = device.start().join("test")
            case "resend":
                outcome = device.start().resend().get("test")
            case "publish":
                server.moves_on(make_spec({"experiment.conversion_window": float(case["window"])}), step["version"])
                device.clock.time += 60
            case "pass":
                device.clock.time += step["seconds"]
            case "pause" | "asks":
                server.headers = {ASKS_HEADER: ASKS_NOBODY} if step["do"] == "pause" else {}
            case "away" | "back":
                server.is_down = step["do"] == "away"
            case what:
                calls = {"report": (1.0,), "forget": ()}
                told = getattr(session, what)(*calls[what]) if what in calls else chosen(session, what)
                outcome = told if what == "report" else None
        seen.append((session.state if session and "state" in step else None, outcome))
    return seen


def chosen(session: Any, what: str) -> Any:
    return session.choose(CONTEXT, fresh=what == "fresh")


def made(address: str) -> bool:
    try:
        Client(address)
    except InputError:
        return False
    return True


def wrong(behaviour: dict[str, list[dict[str, Any]]], folder: Path) -> list[tuple[str, int]]:
    """Which cases go otherwise."""
    found = [
        ("values", number)
        for number, case in enumerate(behaviour["values"])
        if used(case) != (case["used"], case["warned"])
    ]
    for number, case in enumerate(behaviour["sessions"]):
        told = [sessions(case, folder / f"session-{number}-{person}") for person in range(_PEOPLE)]
        found += [("sessions", number)] * any(one != (case["arms"], case["outcomes"]) for one in told)
    found += [
        ("addresses", number)
        for number, case in enumerate(behaviour["addresses"])
        if made(case["address"]) != case["made"]
    ]
    for number, case in enumerate(behaviour["clocks"]):
        told_at = clock(case, folder / f"clock-{number}")
        found += [("clocks", number)] * (told_at != [outcome for *_, outcome in case["steps"]])
    for number, case in enumerate(behaviour["choices"]):
        expected = [(step.get("state"), step.get("outcome")) for step in case["steps"]]
        found += [("choices", number)] * (states(case, folder / f"choice-{number}") != expected)
    table = {(row["state"], row["event"]): row["next"] for row in behaviour["states"]}
    found += [("states", number) for number, row in enumerate(behaviour["states"]) if not is_row(row)]
    found += [("states", -1)] * bool(table and table.keys() != NEXT.keys())
    found += [
        ("actions", number)
        for number, row in enumerate(behaviour["actions"])
        if (sorted(ALLOWED[row["state"]]), OUTCOMES.get(row["state"])) != (row["allowed"], row["outcome"])
    ]
    return found


def is_row(row: dict[str, Any]) -> bool:
    return NEXT.get((row["state"], row["event"])) == row["next"]


def test_a_device_behaves_as_is_written(tmp_path: Path) -> None:
    assert wrong(BEHAVIOUR, tmp_path) == []
    told = [case["warned"] for case in BEHAVIOUR["values"]]
    assert (len(told) > 70, sum(told) > 20) == (True, True)


@pytest.mark.parametrize(
    ("kind", "number", "change"),
    [
        ("values", 6, {"warned": False}),
        ("values", 0, {"used": [0.26]}),
        ("sessions", 2, {"outcomes": ["accepted", "accepted"]}),
        ("sessions", 0, {"arms": ["A", "B"]}),
        ("addresses", 3, {"made": True}),
        ("clocks", 2, {"chosen": 0}),
        ("choices", 1, {"window": 0}),
        ("choices", 4, {"asks": True}),
        ("actions", 0, {"allowed": ["report"]}),
        ("actions", 2, {"outcome": "not-asked"}),
    ],
)
def test_a_difference_shows(tmp_path: Path, kind: str, number: int, change: dict[str, Any]) -> None:
    none: dict[str, list[dict[str, Any]]] = {name: [] for name in BEHAVIOUR}
    case = BEHAVIOUR[kind][number]
    assert wrong(none | {kind: [case | change]}, tmp_path) == [(kind, 0)]


@pytest.mark.parametrize("number", range(len(BEHAVIOUR["states"])))
def test_each_row_of_the_table_counts(tmp_path: Path, number: int) -> None:
    none: dict[str, list[dict[str, Any]]] = {name: [] for name in BEHAVIOUR}
    rows = [dict(row) for row in BEHAVIOUR["states"]]
    rows[number]["next"] = "closed" if rows[number]["next"] != "closed" else "offered"
    assert wrong(none | {"states": rows}, tmp_path) == [("states", number)]
    assert wrong(none | {"states": rows[:number] + rows[number + 1 :]}, tmp_path) == [("states", -1)]


@pytest.mark.parametrize("case", BEHAVIOUR["connections"], ids=lambda case: case["service"])
def test_errors_have_the_words_of_every_client(tmp_path: Path, case: dict[str, Any]) -> None:
    with LISTENING[case["service"]]() as url, pytest.raises(PrivateerError) as caught:
        Client(url, ledger=tmp_path / "x.db", timeout=0.5).join("test")
    assert (caught.value.slug, caught.value.detail) == (case["error"], case["words"].format(url=url, seconds=0.5))


def test_what_is_told_is_told_once_a_session_and_name(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    for _ in range(2):
        session = device.start().join("test")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UnfitValueWarning)
            for _ in range(3):
                session.choose({"x1": "secret", "x2": None}, fresh=True)
        assert sorted(str(one.message).partition(":")[0] for one in told) == ["x1", "x2"]
        assert not any("secret" in str(one.message) for one in told)
    with pytest.warns(UnfitValueWarning, match="^reward: ") as warned:
        outcomes = [session.report("secret") for _ in range(2)]
    assert (len(warned), outcomes) == (1, ["accepted", "already-reported"])


ENDS = {
    Outcome.ACCEPTED: {ChoiceState.DELIVERED},
    Outcome.ALREADY_REPORTED: {ChoiceState.DELIVERED},
    Outcome.PENDING: {ChoiceState.WAITING, ChoiceState.DUE, ChoiceState.DELIVERED},
    Outcome.NOT_ASKED: {ChoiceState.CLOSED, ChoiceState.GIVEN_UP},
}
"""States after a report, by what came of it; one that is sealed may wait."""


def moved(device: Device, server: Server, step: str, draw: random.Random) -> None:
    """The world goes on: rounds open, one that takes no earlier choices among them, and servers fail or pause."""
    if step == "publish":
        version = decode_publication(server.body).round.version + draw.choice([1, 1_000_000])
        server.moves_on(parse_spec(json.loads(decode_publication(server.body).spec)), version)
    elif step == "fail":
        server.is_down = not server.is_down
    elif step == "pause":
        server.headers = {} if server.headers else {ASKS_HEADER: ASKS_NOBODY}
    device.clock.time += draw.choice([0.0, 60.0, 4000.0, 100_000.0])


def walk(folder: Path, seed: int) -> set[ChoiceState]:
    """Take 40 steps of two sessions of one person, whatever the world does; return the states of the sessions."""
    draw, seen = random.Random(seed), set[ChoiceState]()
    server = Server(published(make_spec({"experiment.conversion_window": draw.choice([0.0, 3600.0])})))
    folder.mkdir()
    device = Device(folder, server)
    joined = [device.start().join("test") for _ in range(2)]
    for _ in range(40):
        moved(device, server, draw.choice(["publish", "fail", "pause", "", "", ""]), draw)
        place = draw.randrange(2)
        step = draw.choice(["join", "choose", "choose", "choose", "fresh", "fresh", "report", "forget", "forget"])
        if step == "join":
            joined[place] = device.start().join("test")
        session = joined[place]
        if step == "report":
            session.choose(CONTEXT)
            outcome = session.report(1.0)
            assert session.state in ENDS[outcome]
        elif step == "forget":
            session.forget()
        elif step != "join":
            chosen(session, step)
        known = PersonChoice(session._publications, device.ledger(), device.clock)
        known.look_up(session._participation)
        assert known.state is session.state or step == "report"
        seen.add(session.state)
    assert len(device.ledger().payments()) <= 1
    assert len({*server.sent}) <= 1  # the same bytes may come again
    return seen


def test_sessions_know_what_the_ledger_says_and_report_once(tmp_path: Path) -> None:
    seen = [walk(tmp_path / str(seed), seed) for seed in range(24)]
    assert set.union(*seen) == set(ChoiceState)
