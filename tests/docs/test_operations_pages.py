"""The pages on operations name every event of the logs, and the schemas that a start migrates; compose files agree."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from privateer_client.ledger import ledger_schema
from privateer_core.serving.store.database import oldest_version
from privateer_core.serving.store.sqlite import FileKind
from privateer_issuer.store import DATABASE as ISSUER
from privateer_lab.services.processes import free_port, run_services
from privateer_server.store.schema import JOURNAL_KIND as JOURNAL
from privateer_server.store.schema import JOURNAL_SCHEMA, STORE_SCHEMA
from privateer_server.store.schema import STORE_KIND as STORE
from privateer_shuffler.pool import round_file, shared_store, spent_tokens, store
from tests.docs.test_readme import in_this_process

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "docs" / "operations"
SOURCES: Final = ("shared/privateer_core", "server", "shuffler", "issuer")
_EVENT: Final = re.compile(r"\blog_event\(\s*[\w.]+,\s*([^,]+)")
_NAMED: Final = re.compile(r'"([^"]+)"')


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables of a section."""
    section = (PAGES / page).read_text().partition(f"\n{heading}\n")[2]
    lines = [line for line in re.split(r"\n##+ ", section)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def events() -> Iterator[str]:
    """Yield the events that services log, and the common beginning of events with two forms."""
    for place in SOURCES:
        for path in (ROOT / place).rglob("*.py"):
            text = path.read_text()
            for argument in _EVENT.findall(text):
                named = _NAMED.findall(argument) or _NAMED.findall(
                    re.findall(rf"\b{argument.strip()}(?:: Final)? = (.+)", text)[-1]
                )
                yield named[0]


def test_every_event_is_on_the_page() -> None:
    events_of_code = set(events())
    assert {"started", "stopped", "round closed", "migrated", "backup fetched", "batch delivered"} <= events_of_code
    listed = {name for row in rows("logs.md", "## Events") for name in re.findall("`([^`]+)`", row[0])}
    assert events_of_code == listed


def test_the_page_says_from_which_schemas_a_start_migrates() -> None:
    def of(kind: FileKind) -> list[str]:
        return [str(kind.version), str(oldest_version(kind.version, kind.steps)) if kind.steps else ""]

    table = {row[0]: row[1:] for row in rows("upgrade.md", "## Schemas")}
    assert table["server: `server.db`, and a backup of it"] == of(STORE)
    assert table["server: `journal.db`"] == of(JOURNAL)
    databases = (round_file.ROUND_DATABASE, store.HISTORY_DATABASE)
    assert [of(kind) for kind in databases] == 2 * [table["shuffler: `*.db`, `taken.sqlite`"]]
    assert of(spent_tokens.TOKENS_DATABASE) == table["shuffler: `spent.sqlite`"]
    assert table["issuer: `issuer.db`"] == of(ISSUER)
    (ledger,) = (row for name, row in table.items() if name.startswith("a device's"))
    assert ledger == [str(ledger_schema.VERSION), ""]
    shared = {"server's data": STORE_SCHEMA, "server's journal": JOURNAL_SCHEMA, "shuffler's": shared_store.SHUFFLER}
    for owner, kind in shared.items():
        row = table[f"PostgreSQL: the {owner}"]
        assert row == [str(kind.version), str(min(kind.steps)) if min(kind.steps, default=0) else ""]


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.scale.yml"])
def test_every_composed_service_logs_as_its_operator_says(name: str) -> None:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / name).read_text())["services"]
    names = [name_ for name_ in ("server", "shuffler", "issuer") if name_ in services]
    assert len(names) == (3 if name == "docker-compose.yml" else 2)
    assert {services[name_]["environment"]["PRIVATEER_LOG_FORMAT"] for name_ in names} == {
        "${PRIVATEER_LOG_FORMAT:-text}"
    }


def test_the_file_with_the_token_is_in_no_image_and_no_repository() -> None:
    for name in (".gitignore", ".dockerignore"):
        assert ".env" in (ROOT / name).read_text().splitlines()
    assert "> .env)" in (PAGES / "install.md").read_text()


@pytest.mark.nightly
def test_a_backup_goes_into_a_volume_as_the_page_says(tmp_path: Path) -> None:
    """The commands that the page has a container run, on a folder in the place of the volume."""
    page, volume = (PAGES / "backup.md").read_text(), tmp_path / "data" / "server"
    (swap,) = re.findall(r"server sh -c '\n(.*?)' < restored/server\.db\n", page, re.DOTALL)
    (tidy,) = re.findall(r"server (rm -r .*)\n", page)
    ports, backup = (free_port(), free_port()), tmp_path / "backup"
    with run_services(tmp_path / "data", *ports) as at:
        environment = os.environ | {"PRIVATEER_ADMIN_URL": at.admin, "PRIVATEER_ADMIN_TOKEN": at.token}
        in_this_process(["create", str(ROOT / "examples" / "peaks-shuffle.toml")], environment)
        in_this_process(["backup", str(backup)], environment)
        before = in_this_process(["log", "key", "--url", at.server, "--json"], {})
        size = int(httpx.get(f"{at.server}/log/head").text.splitlines()[1])
    keys, identity = set((volume / "keys").iterdir()), (volume / "identity.key").read_bytes()
    in_this_process(["restore", str(backup), str(tmp_path / "restored")], {})
    subprocess.run(
        ["sh", "-c", swap.replace("/data", str(volume))],
        input=(tmp_path / "restored" / "server.db").read_bytes(),
        check=True,
    )
    with run_services(tmp_path / "data", *ports) as at:
        assert in_this_process(["log", "key", "--url", at.server, "--json"], {}) == before
        assert int(httpx.get(f"{at.server}/log/head").text.splitlines()[1]) == size + 1
        assert httpx.get(f"{at.server}/experiments/peaks-shuffle").json()["version"] == 1_000_001
    assert (volume / "identity.key").read_bytes() == identity
    assert len(keys) == len(set((volume / "keys").iterdir()) - keys) == 1
    subprocess.run(["sh", "-c", tidy.replace("/data", str(volume))], check=True)
    assert not list(volume.glob("before*"))
