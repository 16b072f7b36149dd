"""The page on the states of a choice says what the client's tables do."""

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest

from privateer_client.states import ALLOWED, NEXT, ChoiceEvent
from privateer_core.experiment_status import Status
from privateer_server.rounds.states import RoundEvent, RoundState
from privateer_shuffler.states import BatchEvent, BatchState
from tests.documents import states

PAGE = Path("docs/sdk/states.md").read_text()
OPERATIONS = Path("docs/operations/states.md").read_text()


def rows(name: str) -> dict[str, str]:
    """The cells of a table's first and last column."""
    table = PAGE.partition(f"\n| {name} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (`.+?`) \|.*\| (.+?) \|$", table, re.MULTILINE))


def test_the_picture_is_the_tables() -> None:
    for path, text in states.documents().items():
        assert path.read_text() == text, "run python -m tests.documents states"


@pytest.mark.parametrize("picture", states.PICTURES, ids=lambda picture: picture.file)
def test_every_move_is_an_arrow(picture: states.Picture) -> None:
    places = {place for pair in picture.edges for place in pair}
    assert places == set(picture.places)
    assert set(picture.paths) <= set(picture.edges)
    state, event = next(move for move, after in picture.moves.items() if after != move[0])
    planted = replace(picture, moves={**picture.moves, (state, event): state})
    assert planted.to_svg() != picture.to_svg()


def test_the_choices_have_paths_of_their_own() -> None:
    moves = {(state.value, after.value) for (state, _), after in NEXT.items() if state is not after}
    assert moves == set(states.PICTURES[0].paths)


@pytest.mark.parametrize(
    ("names", "heading"),
    [
        (Status, "## Where an experiment stands"),
        (RoundState, "## How far a round is"),
        (BatchState, "## How far a batch is"),
        (RoundEvent, "## How far a round is"),
        (BatchEvent, "## How far a batch is"),
    ],
)
def test_operators_find_every_state_and_event(names: type[StrEnum], heading: str) -> None:
    section = OPERATIONS.partition(heading)[2].partition("\n## ")[0]
    first = " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    assert set(names) <= set(re.findall(r"`(.+?)`", first))


def test_the_page_lists_states_and_what_they_allow() -> None:
    allowed = {name.strip("`"): set(actions.split(", ")) for name, actions in rows("state").items()}
    assert allowed == {state: set(actions) for state, actions in ALLOWED.items()}


def test_the_page_lists_all_events() -> None:
    table = PAGE.partition("\n| event |")[2].partition("\n\n")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(.+?)`", first)) == set(ChoiceEvent)
