"""The site: what is made from the code is up to date, every page is listed, and the tutorials' commands work."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from privateer_lab.services import free_port, running
from tests.docs.test_readme import AS_TYPED, blocks, execute, fewer
from tests.documents import commands, endpoints

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted(page.name for page in (ROOT / "docs" / "tutorials").glob("*.md"))
AS_TYPED_BY_NIGHT = [pytest.param(page, None, marks=pytest.mark.nightly) for page in TUTORIALS]
TOKEN = "change-me-to-something-random"


@pytest.mark.parametrize("page", [commands, endpoints])
def test_the_reference_is_that_of_the_code(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for path, text in page.documents().items():
        assert path.read_text() == text, "run make documents"


def test_every_page_is_listed_once() -> None:
    listed = list(_leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    there = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


def _leaves(nav: Any) -> Any:
    if isinstance(nav, str):
        yield nav
    for one in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(one)


def typed(page: str, people: int | None) -> list[str]:
    """The commands of a page, or by day for fewer people."""
    lines = [line for block in blocks("sh", (ROOT / "docs" / page).read_text()) for line in block.splitlines()]
    assert lines
    return [fewer(re.sub(r"(^|\s)privateer ", r"\1.venv/bin/privateer ", line), people) for line in lines]


@pytest.mark.parametrize(("page", "people"), AS_TYPED_BY_NIGHT)
def test_the_tutorials_commands_work(page: str, people: int | None, tmp_path: Path) -> None:
    """Those between `up` and the end run against services elsewhere."""
    with running(tmp_path / "data", free_port(), free_port(), token=TOKEN) as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        for line in typed(f"tutorials/{page}", people):
            if not line.endswith(" up"):
                assert execute(_placed(line, tmp_path), environment) is not None


def _placed(line: str, folder: Path) -> str:
    """A command whose files are in a folder of its own."""
    return re.sub(r"(?<=\s)(garden(?:\.toml|/certificate\.json)?)(?=\s|$)", lambda name: str(folder / name[1]), line)


@AS_TYPED
@pytest.mark.parametrize("page", ["choosing.md", "papers.md"])
def test_the_pages_commands_work(page: str, people: int | None, tmp_path: Path) -> None:
    for line in typed(page, people):
        assert execute(line.replace("--plot ", f"--plot {tmp_path}/"), dict(os.environ))
