"""Pages name modules, folders, tables, events and states that there are, and all of them."""

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import sqlite

from privateer_client.states import ALLOWED, NEXT, ChoiceEvent
from privateer_core.experiment_status import Status
from privateer_core.mechanisms import MECHANISMS
from privateer_core.serving.store import copies
from privateer_core.serving.store.database import create_sql
from privateer_issuer.store import DATABASE as ISSUER
from privateer_issuer.store import FILE as ISSUER_FILE
from privateer_server.data import IDENTITY_FILE, KEYS_FOLDER
from privateer_server.rounds.states import RoundEvent, RoundState
from privateer_server.store.backup import _TABLES
from privateer_server.store.schema import JOURNAL_FILE, JOURNAL_SCHEMA, STORE_FILE, STORE_SCHEMA
from privateer_server.store.schema import JOURNAL_KIND as JOURNAL
from privateer_server.store.schema import STORE_KIND as STORE
from privateer_shuffler.pool import round_file, spent_tokens, store
from privateer_shuffler.resources import KEY_FILE, PIN_FILE
from privateer_shuffler.states import BatchEvent, BatchState
from tests.documents import states

ROOT = Path(__file__).parents[2]


PAGES = sorted((ROOT / "docs" / "privacy").glob("*.md"))
OTHERS = [ROOT / "docs" / name for name in ("threat-model.md", "accounting.md", "audit.md")]
_PATH = re.compile(r"`((?:tests|sdk|shared|lab)/[\w./-]*\w)`")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    named = _PATH.findall(page.read_text())
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_with_claims_has_their_tests_and_attacks(page: Path) -> None:
    text, _, table = page.read_text().partition("\n## Tests and attacks\n")
    if "**Claim.**" in text:
        assert "tests/" in table
        assert "tests/attacks/" in table or "privateer audit" in table or "tests/privacy/" in table


def test_the_page_for_reviewers_lists_every_page_of_proofs() -> None:
    listed = (ROOT / "docs" / "privacy.md").read_text()
    assert not [page.name for page in PAGES if f"](privacy/{page.name}" not in listed]


def test_the_page_for_reviewers_names_every_mechanism() -> None:
    listed = (ROOT / "docs" / "privacy.md").read_text()
    assert not [kind.__name__ for kind in MECHANISMS if f"`{kind.__struct_config__.tag}`" not in listed]


STATES_PAGE = Path("docs/sdk/states.md").read_text()
OPERATIONS = Path("docs/operations/states.md").read_text()


def rows(name: str) -> dict[str, str]:
    """The cells of a table's first and last column."""
    table = STATES_PAGE.partition(f"\n| {name} |")[2].partition("\n\n")[0]
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
    table = STATES_PAGE.partition("\n| event |")[2].partition("\n\n")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(.+?)`", first)) == set(ChoiceEvent)


RETENTION_PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "retention.md").read_text()


def created(schema: str | tuple[Table, ...]) -> str:
    """The statements that make tables."""
    return schema if isinstance(schema, str) else "".join(create_sql(schema, sqlite.dialect()))


SCHEMAS = {
    "server": created(STORE.schema) + created(STORE_SCHEMA.tables),
    "journal": created(JOURNAL.schema) + created(JOURNAL_SCHEMA.tables),
    "shuffler": created(round_file.ROUND_DATABASE.schema)
    + round_file._TOKENS
    + created(store.HISTORY_DATABASE.schema)
    + created(spent_tokens.TOKENS_DATABASE.schema),
    "issuer": created(ISSUER.schema),
}
FILES = [f"{KEYS_FOLDER}/", IDENTITY_FILE, f"{STORE_FILE}-wal", f"{JOURNAL_FILE}-wal", KEY_FILE, PIN_FILE]
FILES += [f"{store.HISTORY_FILE}-wal", f"{spent_tokens.TOKENS_FILE}-wal", f"{copies._PREFIX}*"]
FILES += [store.HISTORY_FILE, spent_tokens.TOKENS_FILE, ISSUER_FILE, f"*{round_file.SUFFIX}"]


def retention_rows() -> list[list[str]]:
    """The table's rows."""
    lines = [line for line in RETENTION_PAGE.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names_in_column(cell: int = 0) -> set[str]:
    """What stands in backticks in the first column."""
    return {name for row in retention_rows() for name in re.findall(r"`([^`]+)`", row[cell])}


@pytest.mark.parametrize("service", list(SCHEMAS))
def test_every_table_is_there(service: str) -> None:
    tables = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", SCHEMAS[service]))
    assert tables
    assert tables - names_in_column() == set()


def test_every_file_is_there() -> None:
    assert set(FILES) - names_in_column() == set()


def test_the_page_names_no_table_that_no_service_has() -> None:
    """The check fails on a planted table, and on a renamed one."""
    tables = {name for text in SCHEMAS.values() for name in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", text)}
    assert names_in_column() - tables - set(FILES) == {"PRIVATEER_ADMIN_TOKENS"}


def test_every_row_says_until_when() -> None:
    assert all(len(row) == 3 and all(row[1:]) for row in retention_rows())
    assert len(retention_rows()) > 25


def test_a_backup_has_what_the_page_says() -> None:
    tables = set(re.findall(r"CREATE TABLE (\w+)", created(STORE.schema)))
    assert tables - set(_TABLES) == {"parts", "report_ids", "openings", "probe", "backup"}
