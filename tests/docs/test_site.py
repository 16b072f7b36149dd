"""The site: what is made from the code is up to date, every page is listed, and the tutorials' commands work."""

import ast
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from privateer_lab.services.processes import free_port, run_services
from tests.docs.test_readme import AS_TYPED, SECONDS, blocks, execute, with_fewer
from tests.documents import commands, endpoints, openapi

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted(page.name for page in (ROOT / "docs" / "tutorials").glob("*.md"))
AS_TYPED_BY_NIGHT = [pytest.param(page, None, marks=pytest.mark.nightly) for page in TUTORIALS]
TOKEN = "change-me-to-something-random"


MADE = {str(path.relative_to("docs")): text for path, text in (commands.documents() | endpoints.documents()).items()}
"""The pages that `make site` makes from the code."""
IN_GIT = [page for page in sorted((ROOT / "docs").rglob("*.md")) if str(page.relative_to(ROOT / "docs")) not in MADE]


def test_the_reference_has_every_command_and_every_route() -> None:
    page = MADE["reference/commands.md"]
    for path, command in commands.leaves():
        section = re.split(rf"\n## `{path}[` ]", page)[1].partition("\n## ")[0]
        assert all(
            f"`{name}`" in section for param in command.params for name in param.opts if name[0] == "-" != name
        ), path
    routes = {
        f"| `{method.upper()} {path}` |"
        for document in openapi.service_documents().values()
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert len(routes) > 30
    assert not {route for route in routes if route not in MADE["reference/endpoints.md"]}


@pytest.mark.parametrize(("package", "page"), [("client", "device"), ("lab", "lab")])
def test_the_reference_has_every_name_that_users_import(package: str, page: str) -> None:
    text = (ROOT / "docs" / "reference" / "python" / f"{page}.md").read_text()
    names = set(re.findall(r"(?:^::: [\w.]*\.|heading: )(\w+)$", text, re.MULTILINE))
    exported = set(import_module(f"privateer_{package}").__all__)
    assert len(exported) > 8
    assert exported - names <= {"InvalidValueWarning"}


def test_every_page_is_listed_once() -> None:
    listed = list(_leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == sorted([*MADE, *(str(page.relative_to(ROOT / "docs")) for page in IN_GIT)])


TASKS = {
    "a React page": "web.md#react",
    "FastAPI for many people": "sdk/people.md#fastapi",
    "a board of Grafana": "recipes.md#a-grafana-board-of-one-experiment",
    "rows of a warehouse": "recipes.md#rows-of-a-warehouse",
    "what epsilon 1 means": "choosing.md#3-what-does-epsilon-mean",
}
"""What strangers come for, with the section that serves them."""
_LINK = re.compile(r"\]\(([\w./-]+\.md)?(#[\w-]+)?\)")


def _links(page: str) -> set[str]:
    """Return the sections that a page links to."""
    links = _LINK.findall((ROOT / "docs" / page).read_text())
    return {os.path.normpath(Path(page).parent / (to or Path(page).name)) + anchor for to, anchor in links}


@pytest.mark.parametrize("task", TASKS)
def test_what_strangers_come_for_is_two_clicks_from_the_start_page(task: str) -> None:
    """Planted: a start page without the link to the recipes."""
    first = _links("README.md")
    pages = {link.partition("#")[0] for link in first} - set(MADE)
    assert TASKS[task] in first.union(*map(_links, pages))


@pytest.mark.parametrize("page", IN_GIT, ids=lambda page: page.stem)
def test_the_pages_name_commands_and_options_that_there_are(page: Path) -> None:
    """`load` alone reads its options itself."""
    by_path = {path: {name for param in command.params for name in param.opts} for path, command in commands.leaves()}
    for line in re.findall(r"(?:^|`|\$ )((?:\.venv/bin/)?privateer [a-z][^`\n#|]*)", page.read_text(), re.MULTILINE):
        words = line.removeprefix(".venv/bin/").split()
        path = next((" ".join(words[:count]) for count in (3, 2) if " ".join(words[:count]) in by_path), None)
        is_group = path is None and any(name.startswith(f"{' '.join(words[:2])} ") for name in by_path)
        assert path or is_group, line
        options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert options <= by_path[path] | {"--help"} if path and by_path[path] else not options or path, line


def unknown_commands(source: str) -> set[str]:
    """Return what a module's texts call a command of ``privateer`` and is none."""
    known = {path.split()[1] for path, _ in commands.leaves()}
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    texts = [text for text in constants if isinstance(text, str)]
    return {word for text in texts for word in re.findall(r"\bprivateer ([a-z][a-z-]+)", text)} - known


def test_messages_name_commands_that_there_are() -> None:
    """Planted: ``privateer server``, which a restored backup's message named long after it was ``privateer serve``."""
    for package in ("shared", "client", "server", "shuffler", "issuer", "lab", "papers"):
        for module in (ROOT / package).rglob("*.py"):
            assert not unknown_commands(module.read_text()), module
    assert unknown_commands('print(f"restored. Start it with: {settings} privateer server")') == {"server"}


def test_pages_that_link_to_generated_pages_say_how_to_make_these() -> None:
    """What is made from the code is not in git, so that links to it lead nowhere there until it is made."""
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {f"docs/{page}" for page in MADE} <= set(ignored)
    for page in IN_GIT:
        refs = re.findall(r"\]\([^)]*((?:reference/(?:commands|endpoints)\.md)|review\.schema\.json)", page.read_text())
        assert not refs or "make documents" in page.read_text(), page


def _leaves(nav: Any) -> Any:
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(entry)


def typed_commands(page: str, people: int | None) -> list[str]:
    """The commands of a page, or by day for fewer people."""
    lines = [line for block in blocks("sh", (ROOT / "docs" / page).read_text()) for line in block.splitlines()]
    assert lines
    return [with_fewer(re.sub(r"(^|\s)privateer ", r"\1.venv/bin/privateer ", line), people) for line in lines]


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(("page", "people"), AS_TYPED_BY_NIGHT)
def test_the_tutorials_commands_work(page: str, people: int | None, tmp_path: Path) -> None:
    """Those between `up` and the end run against services elsewhere."""
    with run_services(tmp_path / "data", free_port(), free_port(), token=TOKEN) as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER_URL": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        for line in typed_commands(f"tutorials/{page}", people):
            if not line.endswith(" up"):
                assert execute(_move_files(line, tmp_path), environment, typed=people is None) is not None


def _move_files(line: str, folder: Path) -> str:
    """A command whose files are in a folder of its own."""
    return re.sub(r"(?<=\s)(garden(?:\.toml|/certificate\.json)?)(?=\s|$)", lambda name: str(folder / name[1]), line)


@AS_TYPED
@pytest.mark.parametrize("page", ["choosing.md", "papers.md"])
def test_the_pages_commands_work(page: str, people: int | None, tmp_path: Path) -> None:
    for line in typed_commands(page, people):
        adapted = line.replace("--plot ", f"--plot {tmp_path}/")
        assert execute(adapted, dict(os.environ), typed=people is None)
