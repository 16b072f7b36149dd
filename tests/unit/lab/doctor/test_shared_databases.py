"""``privateer doctor`` on services that share their data in PostgreSQL."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_lab.doctor import checkup
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.services import examine_server, examine_shuffler
from privateer_server.store.schema import JOURNAL_SCHEMA, STORE_SCHEMA
from tests.support.doctor import run
from tests.support.next_versions import next_versions
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.servers import SMALL
from tests.support.shufflers import SharedShufflers
from tests.unit.shuffler.helpers import sealed_reports

pytestmark = pytest.mark.postgres
SETTINGS = ("PRIVATEER_DATABASE", "PRIVATEER_JOURNAL_DATABASE")


@pytest.fixture(autouse=True)
def look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_MAX_LOOKS", 1)


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> Shared:
    databases = Shared.make(postgres, tmp_path)
    databases.key_file.chmod(0o600)
    return databases


def bad(checkup: Checkup) -> list[tuple[str, str, str]]:
    """Return the checks with a remedy, except those of services that do not answer here."""
    elsewhere = ("answers", "its server")
    checks = [check for check in checkup.checks if check.remedy and check.check not in elsewhere]
    return [(check.level.name, check.check, check.detail) for check in checks]


def dumps(cluster: Cluster, urls: Sequence[str]) -> list[list[tuple[object, ...]]]:
    """Return every row of every table with its transaction id."""
    rows = []
    for url in urls:
        names = cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", url)
        rows += [cluster.execute(f'SELECT t::text, xmin::text FROM "{name}" t ORDER BY 1', url) for (name,) in names]
    return rows


async def test_a_server_that_shares_its_data_is_looked_at_and_not_changed(shared: Shared) -> None:
    async with shared.serve_replicas(1) as (api,):
        await api.create(SMALL)
        before = dumps(shared.cluster, [shared.database, shared.journal])
        checkup = examine_server(shared.settings())
        assert dumps(shared.cluster, [shared.database, shared.journal]) == before
    assert bad(checkup) == []
    lines = {check.detail for check in checkup.checks}
    version = STORE_SCHEMA.version
    assert f"the database and the journal are whole, schema {version}: experiments: 1, open rounds: 1" in lines
    assert "open rounds: 1; each has its key, and there are no other keys" in lines
    assert "the journal and the database agree" in lines
    assert any(line.startswith(f"the store's database answers, schema {version}, ") for line in lines)


@pytest.mark.parametrize(
    ("harm", "on_journal", "level", "check", "says"),
    [
        ("DELETE FROM keys", True, "FAIL", "round keys", "the key of the open round of test is lost"),
        ("DELETE FROM publications", True, "WARN", "journal", "a start gives up the open round of test: the journal"),
        ("UPDATE rounds SET total = 'x'", False, "FAIL", "round keys", "the sums of the open round of test"),
        ("UPDATE rounds SET publication = 'x'", False, "FAIL", "database", "an experiment in it cannot be read"),
        ("UPDATE leaves SET digest = 'x'", False, "FAIL", "database", "test: a round is not in the public log as it"),
        (
            "DROP TABLE leaves",
            False,
            "FAIL",
            "database",
            "cannot be read: the database does not answer: UndefinedTable",
        ),
        ("UPDATE privateer_schema SET version = 77", False, "FAIL", "database", "was made by a newer Privateer"),
        ("UPDATE privateer_schema SET kind = 'x'", True, "FAIL", "journal", "the database is the x's"),
    ],
)
async def test_a_disagreement_of_databases_is_a_problem(harm, on_journal, level, check, says, shared):
    async with shared.serve_replicas(1) as (api,):
        await api.create(SMALL)
    shared.cluster.execute(harm, shared.journal if on_journal else shared.database)
    problems = bad(examine_server(shared.settings()))
    assert any((problem_level, name) == (level, check) and says in detail for problem_level, name, detail in problems)


async def test_a_key_file_that_is_not_the_replicas(shared: Shared) -> None:
    async with shared.serve_replicas(1) as (api,):
        await api.create(SMALL)
    shared.key_file.write_bytes(os.urandom(32))
    details = [detail for _, _, detail in bad(examine_server(shared.settings()))]
    assert "what the database keeps of open rounds is encrypted under another key" in details


def test_an_empty_database_and_an_earlier_one_stay_as_they_are(shared: Shared) -> None:
    details = [detail for _, _, detail in bad(examine_server(shared.settings()))]
    assert {"the store's database is empty", "the journal's database is empty"} <= set(details)
    kinds = (("store", shared.database, STORE_SCHEMA), ("journal", shared.journal, JOURNAL_SCHEMA))
    for name, url, schema in kinds:
        shared.cluster.execute("CREATE TABLE privateer_schema (kind text PRIMARY KEY, version integer NOT NULL)", url)
        shared.cluster.execute(f"INSERT INTO privateer_schema VALUES ('{name}', {schema.version})", url)
    before = dumps(shared.cluster, [url for _, url, _ in kinds])
    versions = [schema.version for _, _, schema in kinds]
    with next_versions(STORE_SCHEMA, JOURNAL_SCHEMA):
        details = [detail for _, _, detail in bad(examine_server(shared.settings()))]
    for (name, _, _), version in zip(kinds, versions, strict=True):
        message = f"the {name}'s database is of an earlier Privateer: the next start brings it from schema "
        assert f"{message}{version} to {version + 1}" in details
    assert dumps(shared.cluster, [url for _, url, _ in kinds]) == before


async def test_doctor_finds_unknown_and_damaged_rounds_of_replicas(postgres: Cluster, tmp_path: Path) -> None:
    shared = SharedShufflers.make(postgres, tmp_path)
    (tmp_path / "shuffler-store.key").chmod(0o600)
    header = shared.server.publish(batch=40)
    async with shared.serve_replicas(1) as (shuffler,):
        assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
        before = dumps(postgres, [shared.settings.database])
        checkup = examine_shuffler(shared.settings)
        assert dumps(postgres, [shared.settings.database]) == before
    assert bad(checkup) == []
    assert "the history knows every round that is open, and their secrets decrypt" in {
        check.detail for check in checkup.checks
    }
    shared.rows("UPDATE taken SET version = 0")
    shared.rows("UPDATE rounds SET secret = 'x'")
    details = [detail for _, check, detail in bad(examine_shuffler(shared.settings)) if check == "rounds"]
    assert len(details) == 2
    assert details[0].startswith("the history does not know the round of ")
    assert details[1] == "the secret of a round is damaged"


def test_the_command_says_what_postgresql_has(shared, capsys, monkeypatch):
    settings = dict(zip(SETTINGS, (shared.database, shared.cluster.url("nowhere")), strict=True))
    settings |= {"PRIVATEER_STORE_KEY_FILE": str(shared.key_file), "PRIVATEER_PUBLICATION_KEY": str(shared.identity)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    code, out, err = run(capsys, "server", "--json")
    checks = {check["check"]: check for check in json.loads(out)["checks"]}
    assert (code, err) == (1, "")
    assert (checks["database"]["level"], checks["journal"]["level"]) == ("warn", "fail")
    assert checks["journal"]["detail"].startswith("PRIVATEER_JOURNAL_DATABASE: the database cannot be used: ")
    assert checks["journal"]["detail"].endswith('FATAL:  database "nowhere" does not exist')
    assert checks["journal"]["remedy"]


def test_a_database_error_has_its_reason_and_no_hint(shared: Shared) -> None:
    """The first line of the driver's message has the reason."""
    away = shared.database.replace("?host=", "?host=/nowhere")
    problems = bad(examine_server(shared.settings().model_copy(update={"database": away})))
    (reason,) = [detail for _, check, detail in problems if check == "database"]
    assert reason.startswith("PRIVATEER_DATABASE: the database cannot be used: connection ")
    assert reason.endswith("failed: No such file or directory")
    shared.cluster.execute("CREATE ROLE stranger LOGIN")
    with pytest.raises(SpecError) as refused:
        PostgresDatabase(shared.database.replace("postgres@", "stranger@"), STORE_SCHEMA, "PRIVATEER_DATABASE")
    assert refused.value.detail == "the database cannot be used: permission denied for schema public"
