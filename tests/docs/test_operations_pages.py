"""The pages on operations name every event of the logs, and the schemas that a start migrates; compose files agree."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from privateer_client.ledger import ledger_file
from privateer_core.serving.store.sqlite import FileKind
from privateer_issuer.store import DATABASE as ISSUER
from privateer_server.store.schema import JOURNAL_KIND as JOURNAL
from privateer_server.store.schema import JOURNAL_SCHEMA, STORE_SCHEMA
from privateer_server.store.schema import STORE_KIND as STORE
from privateer_shuffler.pool import round_file, shared_store, spent_tokens, store

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "docs" / "operations"
SOURCES: Final = ("shared/privateer_core", "server", "shuffler", "issuer")
_EVENT: Final = re.compile(r"\btell\(\s*[\w.]+,\s*([^,]+)")
_NAMED: Final = re.compile(r'"([^"]+)"')


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables of a section."""
    section = (PAGES / page).read_text().partition(f"\n{heading}\n")[2]
    lines = [line for line in re.split(r"\n##+ ", section)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def events() -> Iterator[str]:
    """What services say, and the beginning of what they say in two ways."""
    for place in SOURCES:
        for path in (ROOT / place).rglob("*.py"):
            text = path.read_text()
            for told in _EVENT.findall(text):
                named = _NAMED.findall(told) or _NAMED.findall(
                    re.findall(rf"\b{told.strip()}(?:: Final)? = (.+)", text)[-1]
                )
                yield named[0]


def test_every_event_is_on_the_page() -> None:
    found = set(events())
    assert {"started", "stopped", "round closed", "migrated", "backup fetched", "batch delivered"} <= found
    listed = {name for row in rows("logs.md", "## Events") for name in re.findall("`([^`]+)`", row[0])}
    assert found == listed


def test_the_page_says_from_which_schemas_a_start_migrates() -> None:
    def of(kind: FileKind) -> list[str]:
        return [str(kind.version), str(kind.oldest) if kind.steps else ""]

    table = {row[0]: row[1:] for row in rows("upgrade.md", "## Schemas")}
    assert table["server: `server.db`, and a backup of it"] == of(STORE)
    assert table["server: `journal.db`"] == of(JOURNAL)
    kept = (round_file.ROUND_DATABASE, store.HISTORY_DATABASE, spent_tokens.TOKENS_DATABASE)
    shufflers = [of(one) for one in kept]
    assert shufflers == 3 * [table["shuffler: `*.db`, `taken.sqlite`, `spent.sqlite`"]]
    assert table["issuer: `issuer.db`"] == of(ISSUER)
    (ledger,) = (row for name, row in table.items() if name.startswith("a device's"))
    assert ledger == [str(ledger_file._VERSION), "every earlier one"]
    for kinds, owner in (((STORE_SCHEMA, JOURNAL_SCHEMA), "server"), ((shared_store.SHUFFLER,), "shuffler")):
        row = table[f"PostgreSQL: the {owner}'s"]
        for kind in kinds:
            assert row == [str(kind.version), str(min(kind.steps)) if min(kind.steps, default=0) else ""]


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.scale.yml"])
def test_every_composed_service_logs_as_its_operator_says(name: str) -> None:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / name).read_text())["services"]
    ours = [one for one in ("server", "shuffler", "issuer") if one in services]
    assert len(ours) == (3 if name == "docker-compose.yml" else 2)
    assert {services[one]["environment"]["PRIVATEER_LOG"] for one in ours} == {"${PRIVATEER_LOG:-text}"}


def test_the_file_with_the_token_is_in_no_image_and_no_repository() -> None:
    for name in (".gitignore", ".dockerignore"):
        assert ".env" in (ROOT / name).read_text().splitlines()
    assert "> .env)" in (PAGES / "install.md").read_text()
