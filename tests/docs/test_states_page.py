"""The page on the states of a choice says what the client's tables do."""

import re
from pathlib import Path

import pytest

from privateer_client.states import ALLOWED, NEXT, ChoiceEvent, ChoiceState
from tests.documents import states

PAGE = Path("docs/sdk/states.md").read_text()


def rows(name: str) -> dict[str, str]:
    """The cells of a table's first and last column."""
    table = PAGE.partition(f"\n| {name} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (`.+?`) \|.*\| (.+?) \|$", table, re.MULTILINE))


def test_the_picture_is_the_tables() -> None:
    for path, text in states.documents().items():
        assert path.read_text() == text, "run python -m tests.documents states"


def test_every_move_is_an_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = {(state.value, after.value) for (state, _), after in NEXT.items() if state is not after}
    assert moves == set(states._PATHS)
    before = states.documents()
    monkeypatch.setattr(states, "NEXT", NEXT | {(ChoiceState.DUE, ChoiceEvent.TAKEN): ChoiceState.GIVEN_UP})
    assert states.documents() != before  # planted


def test_the_page_lists_states_and_what_they_allow() -> None:
    told = {name.strip("`"): set(actions.split(", ")) for name, actions in rows("state").items()}
    assert told == {state: set(actions) for state, actions in ALLOWED.items()}


def test_the_page_lists_all_events() -> None:
    table = PAGE.partition("\n| event |")[2].partition("\n\n")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(.+?)`", first)) == set(ChoiceEvent)
